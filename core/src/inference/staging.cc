#include "inference/staging.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "checkpoint/patience.h"
#include "inference/manifest.h"

namespace tessera::inference {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStaging = ".packing";
constexpr const char* kTableFiles = ".rows";

bool own(const fs::path& path) {
  const fs::path name = path.filename();
  return name == kManifestFile || name == kDenseFile || name.extension() == kTableFiles;
}

void refuse(const std::error_code& error, const char* what, const std::string& path) {
  if (error) checkpoint::fail_with(error.value(), what, path);
}

}  // namespace

Staging::Staging(const std::string& directory)
    : target_(checkpoint::absolute_directory(directory, "a packed model needs the path of a directory")),
      staging_(target_ + kStaging) {
  std::error_code error;
  if (fs::exists(target_, error)) {
    fail(Code::kAlreadyExists, target_, " exists: pack to another directory, or remove it first");
  }
  checkpoint::make_directories(fs::path(target_).parent_path().string());
  fs::create_directory(staging_, error);
  refuse(error, "create", staging_);
  lock_ = checkpoint::Descriptor(::open(staging_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock_.get() < 0) checkpoint::fail_with(errno, "open", staging_);
  // File systems that cannot lock directories do without, because the lock only separates two jobs.
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail(Code::kUnavailable, "another job is packing a model to ", target_);
  clear();
}

// Removes the files of a killed run, and leaves others alone.
void Staging::clear() {
  std::error_code error;
  for (fs::directory_iterator it(staging_, error), end; !error && it != end; it.increment(error)) {
    if (!own(it->path()))
      fail(Code::kAlreadyExists, it->path().string(), " is not part of a packed model: move it away");
  }
  refuse(error, "list", staging_);
  for (fs::directory_iterator it(staging_, error), end; !error && it != end; it.increment(error))
    fs::remove(it->path(), error);
  refuse(error, "clear", staging_);
}

Staging::~Staging() {
  if (committed_) return;
  try {
    clear();
    std::error_code ignored;
    fs::remove(staging_, ignored);
  } catch (const Error&) {  // the next run clears it
  }
}

void Staging::commit() {
  checkpoint::sync_directory(staging_);
  std::error_code error;
  // A directory that appeared meanwhile is replaced if it is empty, and is an error otherwise.
  fs::rename(staging_, target_, error);
  refuse(error, "rename", staging_);
  committed_ = true;
  checkpoint::sync_directory(fs::path(target_).parent_path().string());
}

}  // namespace tessera::inference
