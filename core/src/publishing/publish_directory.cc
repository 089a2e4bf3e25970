#include "publishing/publish_directory.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/patience.h"
#include "inference/manifest.h"
#include "publishing/publication.h"

namespace tessera::publishing {
namespace {

namespace fs = std::filesystem;

// True for "base-7", "delta-7" and the files that they are made from: a publication's name before the first dot.
bool is_ours(const std::string& name) {
  const std::string stem = name.substr(0, name.find('.'));
  for (const std::string prefix : {"base-", "delta-"}) {
    if (stem.size() > prefix.size() && stem.starts_with(prefix) &&
        std::all_of(stem.begin() + std::ssize(prefix), stem.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return true;
  }
  return false;
}

// Removes the files of a packed model, and the directory if nothing else is in it.
void remove_model(const std::string& path) {
  std::error_code ignored;
  std::vector<fs::path> own;
  for (fs::directory_iterator it(path, ignored), end; !ignored && it != end; it.increment(ignored)) {
    const fs::path name = it->path().filename();
    if (name == inference::kManifestFile || name == inference::kDenseFile || name.extension() == ".rows" ||
        name.extension() == ".keys")
      own.push_back(it->path());
  }
  for (const fs::path& file : own) fs::remove(file, ignored);
  fs::remove(path, ignored);
}

// Removes a checkpoint that a base was made from: DIR/save-1 and its files.
void remove_rows(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    fs::remove(path, ignored);
    return;
  }
  for (fs::recursive_directory_iterator it(path, ignored), end; !ignored && it != end; it.increment(ignored)) {
    const fs::path name = it->path().filename();
    if (it->is_directory(ignored) ? name.string().starts_with("save-")
                                  : name == checkpoint::kLockFile || checkpoint::is_file_name(name.string()))
      continue;
    return;  // a foreign file: everything stays
  }
  if (!ignored) fs::remove_all(path, ignored);  // on an error its content is unknown
}

}  // namespace

PublishDirectory::PublishDirectory(const std::string& path) : path_(path) {
  if (path.empty()) fail(Code::kInvalidArgument, "publishing needs the path of a directory");
  lock_.emplace(path_, "publishes to");
  std::vector<std::string> left;
  for (const std::string& name : checkpoint::names_in(path_)) {
    if (name == checkpoint::kLockFile) continue;
    if (!is_ours(name)) {
      fail(Code::kAlreadyExists, path_, " holds \"", name,
           "\", which is not a publication: publish to a directory of its own");
    }
    const std::string stem = name.substr(0, name.find('.'));
    if (name.ends_with(".publishing") || name.ends_with(".rows") || checkpoint::type_of(at(stem + ".json")) == 0)
      left.push_back(name);
  }
  for (const std::string& name : left) clear(name);
}

void PublishDirectory::clear(const std::string& name) const {
  if (name.starts_with("base-") && !name.ends_with(".rows")) remove_model(at(name));
  remove_rows(at(name));
}

int64_t PublishDirectory::last() const {
  int64_t out = 0;
  for (const auto kind : {Publication::kBase, Publication::kDelta}) {
    const std::vector<int64_t> numbers = publications_in(path_, kind);
    if (!numbers.empty()) out = std::max(out, numbers.back());
  }
  return out;
}

void PublishDirectory::prune(int keep_bases) const {
  const std::vector<int64_t> bases = publications_in(path_, Publication::kBase);
  const auto too_many = std::ssize(bases) - std::max(1, keep_bases);
  std::error_code error;
  for (int64_t i = 0; i < too_many; ++i) {
    const std::string base = at(Publication::name_of(Publication::kBase, bases[static_cast<size_t>(i)]));
    const checkpoint::Descriptor held(::open(base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // A base that is followed stays, and also one if that cannot be told.
    if (held.get() < 0 ? errno != ENOENT : ::flock(held.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      continue;
    fs::remove(base + ".json", error);  // first, because a base without it is none
    if (!error) remove_model(base);
  }
  const int64_t oldest = bases.empty() ? 0 : bases[static_cast<size_t>(std::max<int64_t>(0, too_many))];
  for (const int64_t number : publications_in(path_, Publication::kDelta)) {
    if (number > oldest) break;
    const std::string delta = at(Publication::name_of(Publication::kDelta, number));
    fs::remove(delta + ".json", error);
    if (!error) fs::remove(delta + ".safetensors", error);
  }
}

checkpoint::Descriptor hold_base(const std::string& path) {
  checkpoint::Descriptor lock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  checkpoint::lock_shared(lock.get());
  return lock;
}

}  // namespace tessera::publishing
