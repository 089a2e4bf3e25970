#include "checkpoint/directory.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStaging = ".saving";
constexpr const char* kReplaced = ".replaced";
constexpr std::array<std::string_view, 3> kOwnFiles = {kManifestFile, kModelFile, kOptimizerFile};

bool own(const fs::path& file) {
  return std::find(kOwnFiles.begin(), kOwnFiles.end(), file.filename().string()) != kOwnFiles.end();
}

// Runs a std::filesystem call that reports by error_code.
template <class Call>
auto checked(const char* what, const std::string& path, const Call& call) {
  std::error_code error;
  const auto result = call(error);
  if (error) fail_with(error.value(), what, path);
  return result;
}

bool exists(const std::string& path) {
  return checked("look at", path, [&](std::error_code& e) { return fs::exists(fs::path(path), e); });
}

void rename(const std::string& from, const std::string& to) {
  checked("rename", from, [&](std::error_code& e) { return fs::rename(from, to, e), true; });
}

std::vector<fs::path> entries(const std::string& directory) {
  std::error_code error;
  std::vector<fs::path> out;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    out.push_back(it->path());
  if (error) fail_with(error.value(), "list", directory);
  return out;
}

void remove_own_files(const std::string& directory) {
  for (const std::string_view name : kOwnFiles) {
    const std::string path = cat(directory, '/', name);
    checked("remove", path, [&](std::error_code& e) { return fs::remove(path, e); });
  }
}

// What is left of a replaced checkpoint: its own files go, others move to `target`.
void clear_away(const std::string& replaced, const std::string& target) {
  remove_own_files(replaced);
  for (const fs::path& path : entries(replaced)) {
    const std::string to = cat(target, '/', path.filename().string());
    if (exists(to)) {
      fail(Code::kAlreadyExists, path.string(), " is no part of a checkpoint, and ", to,
           " is there already: move one of them away");
    }
    rename(path.string(), to);
  }
  checked("remove", replaced, [&](std::error_code& e) { return fs::remove(replaced, e); });
}

// Before anything is touched: what lies at our places must be ours.
void refuse_strangers(const std::string& target, const std::string& staging) {
  if (exists(staging)) {
    for (const fs::path& path : entries(staging)) {
      if (!own(path)) fail(Code::kAlreadyExists, path.string(), " is no part of a checkpoint: move it away");
    }
  }
  if (!exists(target)) return;
  if (!fs::is_directory(target)) fail(Code::kAlreadyExists, target, " is a file: a checkpoint needs a directory");
  if (!exists(cat(target, '/', kManifestFile)) && !entries(target).empty())
    fail(Code::kAlreadyExists, target, " exists and holds no checkpoint: save to another directory");
}

std::string absolute(const std::string& directory) {
  if (directory.empty()) fail(Code::kInvalidArgument, "a checkpoint needs the path of a directory");
  fs::path path = checked("resolve", directory,
                          [&](std::error_code& e) { return fs::weakly_canonical(fs::absolute(directory), e); });
  if (!path.has_filename()) path = path.parent_path();
  return path.string();
}

}  // namespace

StagedDirectory::StagedDirectory(const std::string& directory)
    : target_(absolute(directory)), staging_(target_ + kStaging), replaced_(target_ + kReplaced) {
  refuse_strangers(target_, staging_);
  const std::string parent = fs::path(target_).parent_path().string();
  checked("create", parent, [&](std::error_code& e) { return fs::create_directories(parent, e); });
  checked("create", staging_, [&](std::error_code& e) { return fs::create_directory(staging_, e); });
  lock_ = Descriptor(::open(staging_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock_.get() < 0) fail_with(errno, "open", staging_);
  // File systems that cannot lock a directory do without: the lock only tells two jobs from each other.
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail(Code::kUnavailable, "another job is writing a checkpoint to ", target_);
  remove_own_files(staging_);
  // What an interrupted save left.
  if (!exists(replaced_)) return;
  if (exists(target_))
    clear_away(replaced_, target_);
  else
    rename(replaced_, target_);
}

StagedDirectory::~StagedDirectory() {
  if (committed_) return;
  std::error_code ignored;
  for (const std::string_view name : kOwnFiles) fs::remove(cat(staging_, '/', name), ignored);
  fs::remove(staging_, ignored);
}

void StagedDirectory::commit() {
  sync_directory(staging_);
  const bool replaces = exists(target_);
  if (replaces) rename(target_, replaced_);
  rename(staging_, target_);
  committed_ = true;
  sync_directory(fs::path(target_).parent_path().string());
  if (replaces) clear_away(replaced_, target_);
}

std::string whole_checkpoint(const std::string& directory) {
  const std::string target = absolute(directory), replaced = target + kReplaced;
  if (exists(cat(target, '/', kManifestFile))) return target;
  if (!exists(target) && exists(cat(replaced, '/', kManifestFile))) return replaced;
  fail(Code::kNotFound, "there is no checkpoint at ", target, ": it has no file ", kManifestFile);
}

}  // namespace tessera::checkpoint
