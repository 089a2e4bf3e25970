#include "checkpoint/directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kName = "save-", kStaging = ".saving";
constexpr const char* kReplaced = ".replaced";        // where versions before put DIR while they exchanged it
constexpr std::string_view kOfMounts = "lost+found";  // in an empty file system

// Runs a std::filesystem call that reports by error_code.
template <class Call>
auto checked(const char* what, const std::string& path, const Call& call) {
  std::error_code error;
  auto result = call(error);
  if (error) fail_with(error.value(), what, path);
  return result;
}

bool exists(const std::string& path) {
  return checked("look at", path, [&](std::error_code& e) { return fs::exists(fs::path(path), e); });
}

bool is_checkpoint(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(cat(path, '/', kManifestFile), ignored);
}

// False where it cannot be looked at: that is no reason to remove what is beside it.
bool lacks_manifest(const std::string& path) {
  std::error_code ignored;
  return fs::status(cat(path, '/', kManifestFile), ignored).type() == fs::file_type::not_found;
}

std::string absolute(const std::string& directory) {
  if (directory.empty()) fail(Code::kInvalidArgument, "a checkpoint needs the path of a directory");
  fs::path path = checked("resolve", directory,
                          [&](std::error_code& e) { return fs::weakly_canonical(fs::absolute(directory), e); });
  if (!path.has_filename()) path = path.parent_path();
  return path.string();
}

std::string path_of(const std::string& directory, int64_t number) { return cat(directory, '/', kName, number); }

// N of "save-N".
std::optional<int64_t> number_of(std::string_view name) {
  if (!name.starts_with(kName)) return std::nullopt;
  name.remove_prefix(kName.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number < 1 || number == INT64_MAX)
    return std::nullopt;
  return number;
}

struct Contents {
  std::vector<int64_t> named;   // checkpoints, ascending
  std::vector<int64_t> staged;  // that were not put in their place
  std::vector<int64_t> rests;   // of a removal that was interrupted
  int64_t last = 0;             // the highest number in use, for anything
  bool flat = false;            // a checkpoint's files are in the directory itself
  std::string stranger;         // something else that is there; empty: nothing
};

Contents contents_of(const std::string& directory) {
  Contents out;
  out.flat = is_checkpoint(directory);
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool staged = name.ends_with(kStaging);
    if (const auto number = number_of(name.substr(0, name.size() - (staged ? kStaging.size() : 0)))) {
      out.last = std::max(out.last, *number);
      if (staged)
        out.staged.push_back(*number);
      else if (is_checkpoint(it->path().string()))
        out.named.push_back(*number);
      else if (it->is_directory(error) && lacks_manifest(it->path().string()))
        out.rests.push_back(*number);
    } else if (name != kOfMounts) {
      out.stranger = name;
    }
  }
  if (error) fail_with(error.value(), "list", directory);
  std::sort(out.named.begin(), out.named.end());
  std::sort(out.staged.begin(), out.staged.end());
  return out;
}

void remove_files(const std::string& directory) {
  std::error_code ignored;
  fs::remove(cat(directory, '/', kManifestFile), ignored);  // first: what lacks it is no checkpoint
  std::vector<fs::path> own;
  for (fs::directory_iterator it(directory, ignored), end; !ignored && it != end; it.increment(ignored)) {
    if (is_file_name(it->path().filename().string())) own.push_back(it->path());
  }
  for (const fs::path& file : own) fs::remove(file, ignored);
}

// Best effort: the checkpoint that it makes room for is safe already. A directory with files of others stays.
void remove_checkpoint(const std::string& path) {
  const Descriptor lock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.get() >= 0 && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return;  // it is read
  remove_files(path);
  std::error_code ignored;
  fs::remove(path, ignored);
}

std::string base_path(const std::string& directory, const Manifest::Base& base) {
  return (fs::path(directory).parent_path() / base.name).string();
}

// What of all that was to be written is not there: the manifest comes last and has a checksum of its own. Empty: it is
// whole.
std::string missing_of(const std::string& staging) {
  try {
    const Manifest manifest = manifest_in(staging);
    for (const Manifest::File& file : manifest.files) {
      const InputFile there(cat(staging, '/', file.name));
      if (there.size() != file.bytes) return cat(there.path(), " has ", there.size(), " bytes instead of ", file.bytes);
    }
    if (!manifest.base) return "";
    (void)hold_base(staging, *manifest.base);
    return missing_of(base_path(staging, *manifest.base));
  } catch (const Error& e) {
    return e.what();
  }
}

bool is_whole(const std::string& path) { return missing_of(path).empty(); }

// The checkpoints of a directory; one in the directory itself counts as the oldest.
std::vector<std::string> newest_first(const std::string& directory) {
  const Contents contents = contents_of(directory);
  std::vector<std::string> out;
  for (auto number = contents.named.rbegin(); number != contents.named.rend(); ++number)
    out.push_back(path_of(directory, *number));
  if (contents.flat) out.push_back(directory);
  return out;
}

// The checkpoint beside it that one needs; empty: none.
std::string base_of(const std::string& path) {
  try {
    const Manifest manifest = manifest_in(path);
    return manifest.base ? base_path(path, *manifest.base) : "";
  } catch (const Error&) {  // nothing can be loaded from it
    return "";
  }
}

// The newest checkpoint of a directory, or itself; empty: there is none.
std::string newest(const std::string& directory) {
  std::error_code error;
  if (!fs::exists(directory, error)) {
    const std::string replaced = directory + kReplaced;
    return is_checkpoint(replaced) ? replaced : "";
  }
  if (!fs::is_directory(directory, error)) return "";
  const Contents contents = contents_of(directory);
  if (!contents.named.empty()) return path_of(directory, contents.named.back());
  return contents.flat ? directory : "";
}

}  // namespace

StagedCheckpoint::StagedCheckpoint(const std::string& directory) : directory_(absolute(directory)) {
  if (exists(directory_) && !fs::is_directory(directory_))
    fail(Code::kAlreadyExists, directory_, " is a file: checkpoints need a directory");
  made_directory_ =
      checked("create", directory_, [&](std::error_code& e) { return fs::create_directories(directory_, e); });
  lock_ = Descriptor(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock_.get() < 0) fail_with(errno, "open", directory_);
  // File systems that cannot lock a directory do without: the lock only tells two jobs from each other.
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail(Code::kUnavailable, "another job is writing a checkpoint to ", directory_);
  Contents contents = contents_of(directory_);
  if (contents.last == 0 && !contents.flat && !contents.stranger.empty()) {
    fail(Code::kAlreadyExists, directory_, " exists and holds no checkpoint, but \"", contents.stranger,
         "\": save to another directory");
  }
  for (const int64_t number : contents.rests) remove_checkpoint(path_of(directory_, number));
  for (const int64_t number : contents.staged) {
    const std::string left = path_of(directory_, number) + std::string(kStaging);
    if (is_whole(left)) {
      const std::string name = path_of(directory_, ++contents.last);
      checked("rename", left, [&](std::error_code& e) { return fs::rename(left, name, e), true; });
    } else {
      remove_checkpoint(left);
    }
  }
  name_ = path_of(directory_, contents.last + 1);
  staging_ = name_ + std::string(kStaging);
  checked("create", staging_, [&](std::error_code& e) { return fs::create_directory(staging_, e); });
}

StagedCheckpoint::~StagedCheckpoint() {
  if (left_) return;
  remove_checkpoint(staging_);
  std::error_code ignored;
  if (made_directory_) fs::remove(directory_, ignored);
}

void StagedCheckpoint::check_space(int64_t bytes, int64_t saves, int keep) const {
  struct statvfs info {};
  if (::statvfs(staging_.c_str(), &info) != 0) fail_with(errno, "look at", staging_);
  if (info.f_blocks == 0) return;  // a file system that does not tell
  // An old one is removed when the new one is whole.
  const std::vector<std::string> others = newest_first(directory_);
  const int64_t whole = std::count_if(others.begin(), others.end(), is_whole);
  const int64_t copies = std::max<int64_t>(1, std::min(saves, int64_t{keep} + 1 - whole));
  const auto room = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (static_cast<double>(copies) * static_cast<double>(bytes) <= room) return;
  fail(Code::kResourceExhausted, copies == 1 ? std::string("a checkpoint") : cat(copies, " checkpoints"), " of ", bytes,
       " bytes will not fit in ", directory_, ", where ", static_cast<int64_t>(room),
       " bytes are free: make room, or save elsewhere");
}

void StagedCheckpoint::commit(int keep) {
  sync_directory(staging_);
  left_ = true;
  std::error_code error;
  fs::rename(staging_, name_, error);
  if (error) {
    fail(Code::kUnavailable, "cannot rename ", staging_, " to ", name_, ": ", error.message(),
         "; the checkpoint is whole where it is: load it from there, or save to ", directory_,
         " again, which puts it in its place");
  }
  sync_directory(directory_);
  remove_old(keep);
}

std::string StagedCheckpoint::name() const { return fs::path(name_).filename().string(); }

// What is older than the last of so many whole ones. Broken ones count for nothing: they go when their turn comes.
void StagedCheckpoint::remove_old(int keep) const {
  const std::vector<std::string> all = newest_first(directory_);
  size_t kept = 0;
  for (int whole = 0; kept < all.size() && whole < std::max(1, keep); ++kept) whole += is_whole(all[kept]) ? 1 : 0;
  // The oldest first: who lists the directory meanwhile may miss the newest, and has to find no older one for it.
  const std::vector<std::string> old(all.rbegin(), all.rend() - static_cast<std::ptrdiff_t>(kept));
  // Those with a base first: one that is being read stays, and its base with it.
  std::set<std::string> needed;
  for (const std::string& path : std::span(all).first(kept)) needed.insert(base_of(path));
  for (const std::string& path : old) {
    const std::string base = base_of(path);
    if (base.empty()) continue;
    remove_checkpoint(path);
    if (is_checkpoint(path)) needed.insert(base);
  }
  for (const std::string& path : old) {
    if (path == directory_)
      remove_files(path);
    else if (!needed.contains(path) && base_of(path).empty())
      remove_checkpoint(path);
  }
}

HeldCheckpoint hold_checkpoint(const std::string& directory) {
  const std::string target = absolute(directory);
  constexpr int kAttempts = 100;  // another job may save: what is listed is gone, and what is there was not listed yet
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    HeldCheckpoint held{newest(target), Descriptor()};
    if (held.path.empty()) continue;
    held.lock = Descriptor(::open(held.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // A lock on DIR itself would keep others from saving there.
    const bool is_one_of_many = number_of(fs::path(held.path).filename().string()).has_value();
    while (is_one_of_many && ::flock(held.lock.get(), LOCK_SH) != 0 && errno == EINTR) {
    }
    if (is_checkpoint(held.path)) return held;
  }
  fail(Code::kNotFound, "there is no checkpoint at ", target, ": neither it nor a directory ", kName,
       "N in it has a file ", kManifestFile);
}

bool has_base(const std::string& path, const Manifest::Base& base) {
  const std::string manifest = cat(base_path(path, base), '/', kManifestFile);
  try {
    const InputFile file(manifest);
    return file.crc32(0, file.size()) == base.crc;
  } catch (const Error&) {
    return false;
  }
}

HeldCheckpoint hold_base(const std::string& path, const Manifest::Base& base) {
  HeldCheckpoint held{base_path(path, base), Descriptor()};
  held.lock = Descriptor(::open(held.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (held.lock.get() >= 0 && ::flock(held.lock.get(), LOCK_SH) != 0 && errno == EINTR) {
  }
  if (has_base(path, base)) return held;
  fail(Code::kDataLoss, path, " holds the rows that changed since ", base.name, ", and ", held.path,
       is_checkpoint(held.path) ? " is another checkpoint than that one" : " is not there",
       ": both are needed, side by side");
}

FoundCheckpoints find_checkpoints(const std::string& directory) {
  const std::string target = absolute(directory);
  FoundCheckpoints out;
  std::error_code error;
  if (!fs::is_directory(target, error)) return out;
  { const StagedCheckpoint tidied(target); }
  for (const std::string& path : newest_first(target)) {
    const std::string missing = missing_of(path);
    if (missing.empty())
      out.whole.push_back(path);
    else
      out.broken.push_back(missing.starts_with(path) ? missing : cat(path, ": ", missing));
  }
  return out;
}

bool has_checkpoint(const std::string& directory) { return !newest(absolute(directory)).empty(); }

}  // namespace tessera::checkpoint
