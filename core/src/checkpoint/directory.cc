#include "checkpoint/directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <set>
#include <string_view>

#include "checkpoint/patience.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kName = "save-", kStaging = ".saving";
constexpr const char* kReplaced = ".replaced";        // where old versions moved DIR while they exchanged it
constexpr std::string_view kOfMounts = "lost+found";  // is in an empty file system

// Runs a std::filesystem call that reports by error_code.
template <class Call>
auto checked(const char* what, const std::string& path, const Call& call) {
  std::error_code error;
  auto result = call(error);
  if (error) fail_with(error.value(), what, path);
  return result;
}

enum class Presence { kThere, kMissing, kUnknown };

Presence manifest_of(const std::string& path) {
  try {
    return type_of(str_cat(path, '/', kManifestFile)) == S_IFREG ? Presence::kThere : Presence::kMissing;
  } catch (const Error&) {
    return Presence::kUnknown;
  }
}
// A checkpoint that cannot be looked at counts: opening it reports the reason.
bool is_checkpoint(const std::string& path) { return manifest_of(path) != Presence::kMissing; }

std::string path_of(const std::string& directory, int64_t number) { return str_cat(directory, '/', kName, number); }

// Returns N of "save-N".
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
  std::vector<int64_t> staged;  // saves that did not get their final name
  std::vector<int64_t> rests;   // directories with files of a checkpoint but no manifest
  int64_t last = 0;             // the highest number in use, for any of these
  bool flat = false;            // a checkpoint's files are in the directory itself
  std::string stranger;         // a file or folder that is not ours; empty: none
};

Contents contents_of(const std::string& directory) {
  Contents out{.flat = is_checkpoint(directory)};
  for (const std::string& name : names_in(directory)) {
    const bool staged = name.ends_with(kStaging);
    if (const auto number = number_of(name.substr(0, name.size() - (staged ? kStaging.size() : 0)))) {
      out.last = std::max(out.last, *number);
      const std::string path = str_cat(directory, '/', name);
      if (staged)
        out.staged.push_back(*number);
      else if (is_checkpoint(path))
        out.named.push_back(*number);
      else if (type_of(path) == S_IFDIR)
        out.rests.push_back(*number);
    } else if (name != kOfMounts && name != kLockFile) {
      out.stranger = name;
    }
  }
  std::sort(out.named.begin(), out.named.end());
  std::sort(out.staged.begin(), out.staged.end());
  return out;
}

// Removes the manifest first and stops if that fails. A directory without a manifest is no checkpoint.
void remove_files(const std::string& directory) {
  std::error_code error;
  fs::remove(str_cat(directory, '/', kManifestFile), error);
  if (error) return;
  std::vector<fs::path> own;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (is_file_name(it->path().filename().string())) own.push_back(it->path());
  }
  for (const fs::path& file : own) fs::remove(file, error);
}

// Best effort, because the checkpoint that replaces it is already safe. A directory stays if it has foreign files, if
// somebody reads it, or if neither can be told. If it is a symbolic link, only the link is removed.
void remove_checkpoint(const std::string& path) {
  std::error_code ignored;
  if (fs::is_symlink(path, ignored)) {
    fs::remove(path, ignored);
    return;
  }
  const Descriptor lock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.get() < 0 || (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)) return;
  remove_files(path);
  fs::remove(path, ignored);
}

std::string base_path(const std::string& directory, const Manifest::Base& base) {
  return (fs::path(directory).parent_path() / base.name).string();
}

// A checkpoint as it was found. Damaged: files are missing or differ from the manifest, which is written last and has
// its own checksum. Unreadable: damage cannot be told, or the checkpoint has a newer format.
struct Seen {
  enum State { kWhole, kDamaged, kUnreadable };
  std::string path;
  State state = kWhole;
  std::string why;   // the reason if it is not whole
  std::string base;  // path of the base beside it; empty: it needs none
};

Seen look_at(const std::string& path) {
  Seen seen{path};
  try {
    const Manifest manifest = manifest_in(path);
    if (manifest.base) seen.base = base_path(path, *manifest.base);
    for (const Manifest::File& file : manifest.files) {
      const InputFile there(str_cat(path, '/', file.name));
      if (there.size() != file.bytes)
        fail(Code::kDataLoss, there.path(), " has ", there.size(), " bytes instead of ", file.bytes);
    }
    if (!manifest.base) return seen;
    const HeldCheckpoint held = hold_base(path, *manifest.base);
    const Seen base = look_at(held.path);
    seen.state = base.state;
    seen.why = base.why;
  } catch (const Error& e) {
    seen.state = e.code() == Code::kDataLoss || e.code() == Code::kNotFound ? Seen::kDamaged : Seen::kUnreadable;
    seen.why = e.what();
  }
  return seen;
}

// Lists the checkpoints of a directory. One in the directory itself counts as the oldest.
std::vector<std::string> newest_first(const std::string& directory) {
  const Contents contents = contents_of(directory);
  std::vector<std::string> out;
  for (auto number = contents.named.rbegin(); number != contents.named.rend(); ++number)
    out.push_back(path_of(directory, *number));
  if (contents.flat) out.push_back(directory);
  return out;
}

// Returns the newest checkpoint of a directory, or the directory itself; empty: there is none.
std::string newest(const std::string& directory) {
  const mode_t type = type_of(directory);
  if (type == 0) {
    const std::string replaced = directory + kReplaced;
    return is_checkpoint(replaced) ? replaced : "";
  }
  if (type != S_IFDIR) return "";
  const Contents contents = contents_of(directory);
  if (!contents.named.empty()) return path_of(directory, contents.named.back());
  return contents.flat ? directory : "";
}

std::string absolute(const std::string& directory) {
  return absolute_directory(directory, "a checkpoint needs the path of a directory");
}

}  // namespace

StagedCheckpoint::StagedCheckpoint(const std::string& directory, const DirectoryLock* held) {
  if (held == nullptr) own_lock_.emplace(directory, "saves to");
  directory_ = held != nullptr ? held->directory() : own_lock_->directory();
  int64_t last = 0;
  tidy(&last);
  name_ = path_of(directory_, last + 1);
  staging_ = name_ + std::string(kStaging);
  checked("create", staging_, [&](std::error_code& e) { return fs::create_directory(staging_, e); });
}

// Cleans up after interrupted saves and removals. `last` becomes the highest number that is still in use.
void StagedCheckpoint::tidy(int64_t* last) const {
  Contents contents = contents_of(directory_);
  if (contents.last == 0 && !contents.flat && !contents.stranger.empty()) {
    fail(Code::kAlreadyExists, directory_, " exists and holds no checkpoint, but \"", contents.stranger,
         "\": save to another directory");
  }
  // A checkpoint is removed only after a newer one is whole. Files without a newer checkpoint have lost their manifest.
  for (const int64_t number : contents.rests) {
    std::error_code ignored;
    if (!contents.named.empty() && number < contents.named.back())
      remove_checkpoint(path_of(directory_, number));
    else
      fs::remove(path_of(directory_, number), ignored);  // succeeds only if it is empty
  }
  for (const int64_t number : contents.staged) {
    const std::string left = path_of(directory_, number) + std::string(kStaging);
    const Seen seen = look_at(left);
    if (seen.state == Seen::kWhole) {
      const std::string name = path_of(directory_, ++contents.last);
      checked("rename", left, [&](std::error_code& e) { return fs::rename(left, name, e), true; });
    } else if (seen.state == Seen::kDamaged) {
      remove_checkpoint(left);
    }
  }
  *last = contents.last;
}

StagedCheckpoint::~StagedCheckpoint() {
  if (!left_) remove_checkpoint(staging_);
}

void StagedCheckpoint::check_space(int64_t bytes, int64_t saves, int keep) const {
  struct statvfs info {};
  if (::statvfs(staging_.c_str(), &info) != 0) fail_with(errno, "look at", staging_);
  if (info.f_blocks == 0) return;  // the file system does not tell
  // The oldest checkpoint is removed when the new one is whole.
  const std::vector<std::string> others = newest_first(directory_);
  const int64_t whole = std::count_if(others.begin(), others.end(),
                                      [](const std::string& path) { return look_at(path).state == Seen::kWhole; });
  const int64_t copies = std::max<int64_t>(1, std::min(saves, int64_t{keep} + 1 - whole));
  const auto room = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (static_cast<double>(copies) * static_cast<double>(bytes) <= room) return;
  fail(Code::kResourceExhausted, copies == 1 ? std::string("a checkpoint") : str_cat(copies, " checkpoints"), " of ",
       bytes, " bytes will not fit in ", directory_, ", where ", static_cast<int64_t>(room),
       " bytes are free: make room, or save elsewhere");
}

void StagedCheckpoint::commit(int keep) {
  sync_directory(staging_);
  left_ = true;
  std::error_code error;
  fs::rename(staging_, name_, error);
  if (error) {
    fail(Code::kUnavailable, "cannot rename ", staging_, " to ", name_, ": ", error.message(),
         "; the checkpoint is complete: load it from there, or save to ", directory_, " again, which moves it there");
  }
  sync_directory(directory_);
  remove_old(keep);
}

std::string StagedCheckpoint::name() const { return fs::path(name_).filename().string(); }

// Removes the checkpoints older than the last `keep` whole ones. Damaged ones are not counted, and go by their age.
void StagedCheckpoint::remove_old(int keep) const {
  std::vector<Seen> all;
  for (const std::string& path : newest_first(directory_)) all.push_back(look_at(path));
  const auto unreadable =
      std::find_if(all.begin(), all.end(), [](const Seen& seen) { return seen.state == Seen::kUnreadable; });
  auto kept = all.begin();
  for (int whole = 0; kept != unreadable && whole < std::max(1, keep); ++kept)
    whole += kept->state == Seen::kWhole ? 1 : 0;
  // Remove the oldest first, because a concurrent reader that misses the newest must not pick an older one instead.
  const std::vector<Seen> old(std::make_reverse_iterator(unreadable), std::make_reverse_iterator(kept));
  // Remove those with a base first. One that is being read stays, and so does its base.
  std::set<std::string> needed;
  std::for_each(all.begin(), kept, [&](const Seen& seen) { needed.insert(seen.base); });
  for (const Seen& seen : old) {
    if (seen.base.empty()) continue;
    remove_checkpoint(seen.path);
    if (is_checkpoint(seen.path)) needed.insert(seen.base);
  }
  for (const Seen& seen : old) {
    if (seen.path == directory_)
      remove_files(seen.path);
    else if (!needed.contains(seen.path) && seen.base.empty())
      remove_checkpoint(seen.path);
  }
}

HeldCheckpoint hold_checkpoint(const std::string& directory) {
  const std::string target = absolute(directory);
  constexpr int kAttempts = 100;  // a concurrent save may remove what was listed
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    HeldCheckpoint held{newest(target), Descriptor()};
    if (held.path.empty()) continue;
    held.lock = Descriptor(::open(held.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    lock_shared(held.lock.get());
    if (is_checkpoint(held.path)) return held;
  }
  fail(Code::kNotFound, "there is no checkpoint at ", target, ": neither it nor a directory ", kName,
       "N in it has a file ", kManifestFile);
}

bool has_base(const std::string& path, const Manifest::Base& base) {
  try {
    const InputFile file(str_cat(base_path(path, base), '/', kManifestFile));
    return file.crc32(0, file.size()) == base.crc;
  } catch (const Error& e) {
    if (e.code() == Code::kNotFound || e.code() == Code::kDataLoss) return false;
    throw;
  }
}

HeldCheckpoint hold_base(const std::string& path, const Manifest::Base& base) {
  HeldCheckpoint held{base_path(path, base), Descriptor()};
  held.lock = Descriptor(::open(held.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  lock_shared(held.lock.get());
  if (has_base(path, base)) return held;
  fail(Code::kDataLoss, path, " has only the rows that changed since ", base.name, ", and ", held.path,
       is_checkpoint(held.path) ? " is a different checkpoint" : " is not there",
       ": both are needed, next to each other");
}

FoundCheckpoints find_checkpoints(const std::string& directory, const DirectoryLock* held) {
  const std::string target = absolute(directory);
  FoundCheckpoints out;
  if (type_of(target) != S_IFDIR) return out;
  { const StagedCheckpoint tidied(target, held); }
  for (const std::string& path : newest_first(target)) {
    const Seen seen = look_at(path);
    const std::string why = seen.why.starts_with(path) ? seen.why : str_cat(path, ": ", seen.why);
    if (seen.state == Seen::kWhole)
      (out.unreadable.empty() ? out.whole : out.older).push_back(path);
    else
      (seen.state == Seen::kDamaged ? out.broken : out.unreadable).push_back(why);
  }
  if (!out.whole.empty()) return out;
  for (const int64_t number : contents_of(target).rests)
    out.broken.push_back(str_cat(path_of(target, number), " has lost its ", kManifestFile));
  return out;
}

void remove_checkpoints(const std::string& directory) {
  const std::string target = absolute(directory);
  if (type_of(target) != S_IFDIR) return;
  const Contents contents = contents_of(target);
  for (const std::vector<int64_t>& numbers : {contents.named, contents.rests}) {
    for (const int64_t number : numbers) remove_checkpoint(path_of(target, number));
  }
  for (const int64_t number : contents.staged) remove_checkpoint(path_of(target, number) + std::string(kStaging));
  std::error_code ignored;
  fs::remove(target, ignored);
}

bool has_checkpoint(const std::string& directory) { return !newest(absolute(directory)).empty(); }

}  // namespace tessera::checkpoint
