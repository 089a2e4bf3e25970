#include "plugin/kept_verdict.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "config/fnv1a.h"
#include "config/json.h"
#include "tessera/abi/base.h"
#include "tessera/error.h"

namespace tessera::plugin {
namespace fs = std::filesystem;
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostVerdicts = 256;
constexpr size_t kMostBytes = size_t{1} << 20;

// A file as it is now: "4096 bytes at 1700000000.5"; "" if there is none.
std::string identity(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 ? identity_of(s) : "";
}

std::vector<std::string> identities(const std::vector<std::string>& paths) {
  std::vector<std::string> out;
  for (const std::string& path : paths) out.push_back(identity(path));
  return out;
}

std::string machine() {
  utsname name{};
  return ::uname(&name) == 0 ? str_cat(name.nodename, ' ', name.machine) : "";
}

// XDG's rule: folders of the user's cache are made for the user only.
void make_folders(const fs::path& folder) {
  fs::path here;
  for (const fs::path& name : folder) {
    here /= name;
    (void)::mkdir(here.c_str(), 0700);
  }
}

// The text of a file of this user that nobody else may write; "": there is none.
std::string own_text(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return "";
  struct stat s {};
  std::string text;
  if (::fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == ::geteuid() && (s.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
      s.st_size <= static_cast<off_t>(kMostBytes)) {
    text.resize(static_cast<size_t>(s.st_size));
    const ssize_t got = ::read(fd, text.data(), text.size());
    text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  }
  ::close(fd);
  return text;
}

// Replaces the file as a whole; mkstemp makes it readable for this user only.
void write_own(const std::string& folder, const std::string& path, const std::string& text) {
  std::string name = folder + "/new-XXXXXX";
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return;
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (::close(fd) != 0 || !written || ::rename(name.c_str(), path.c_str()) != 0) ::unlink(name.c_str());
}

void drop_oldest(const std::string& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  for (const fs::directory_entry& e : fs::directory_iterator(folder)) files.emplace_back(e.last_write_time(), e.path());
  if (files.size() <= kMostVerdicts) return;
  std::sort(files.begin(), files.end());
  files.resize(files.size() - kMostVerdicts / 2);
  for (const auto& [time, path] : files) fs::remove(path);
}

}  // namespace

KeptVerdict::Lock::Lock(Lock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::exchange(other.path_, "")) {}

// Whoever waits for the removed file finds the verdict when it gets the lock.
KeptVerdict::Lock::~Lock() {
  if (fd_ < 0) return;
  ::unlink(path_.c_str());
  ::close(fd_);
}

KeptVerdict::KeptVerdict(std::string folder, const std::string& path, const PluginFile& file)
    : folder_(std::move(folder)), plugin_(path), file_(file) {
  if (folder_.empty()) return;
  folder_ += "/plugin_verdicts";
  // Machines with one home, and installations of one user, do not replace each other's verdicts.
  const uint64_t hash = fnv1a(path, fnv1a(machine(), fnv1a(own_file())));
  std::array<char, 24> name{};
  (void)std::snprintf(name.data(), name.size(), "/%016llx", static_cast<unsigned long long>(hash));
  path_ = folder_ + name.data() + ".json";
}

KeptVerdict::Lock KeptVerdict::lock(std::chrono::seconds longest) const {
  Lock out;
  if (path_.empty()) return out;
  make_folders(folder_);
  const std::string path = path_ + ".lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return out;
  const auto until = std::chrono::steady_clock::now() + longest;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || std::chrono::steady_clock::now() > until) {
      ::close(fd);
      return out;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  out.fd_ = fd;
  out.path_ = path;
  return out;
}

// All that a verdict depends on, except the content.
ordered_json KeptVerdict::subject() const {
  const std::string own = own_file();
  return {{"epoch", TSR_ABI_EPOCH},
          {"core", str_cat(TESSERA_VERSION, ", ", own, ", ", identity(own))},
          {"machine", machine()},
          {"file", str_cat(plugin_, ", ", file_.identity())}};
}

uint32_t KeptVerdict::checksum() const {
  std::vector<unsigned char> piece(size_t{1} << 18);
  uLong sum = ::crc32(0, nullptr, 0);
  for (uint64_t at = 0; at < file_.size();) {
    const uint64_t n = std::min<uint64_t>(piece.size(), file_.size() - at);
    file_.read(at, piece.data(), n);
    sum = ::crc32(sum, piece.data(), static_cast<uInt>(n));
    at += n;
  }
  return static_cast<uint32_t>(sum);
}

std::optional<TrialEnd> KeptVerdict::find() const try {
  const std::string text = path_.empty() ? "" : own_text(path_);
  if (text.empty()) return std::nullopt;
  const config::JsonSource source{path_, Code::kInternal, kMostBytes};
  const ordered_json json = config::parse_json(text, source);
  const config::JsonObject kept(json, source);
  if (kept.member("subject") != subject()) return std::nullopt;
  const TrialEnd end = trial_end(kept.member("end"));
  if (kept.get<std::vector<std::string>>("libraries") != identities(end.libraries)) return std::nullopt;
  if (kept.get<uint32_t>("crc32") != checksum()) return std::nullopt;
  return end;
} catch (const std::exception&) {
  return std::nullopt;
}

void KeptVerdict::keep(const TrialEnd& end) const try {
  if (path_.empty() || !end.lasting || end.harmless) return;
  const ordered_json json{
      {"subject", subject()}, {"crc32", checksum()}, {"libraries", identities(end.libraries)}, {"end", to_json(end)}};
  make_folders(folder_);
  write_own(folder_, path_, json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  drop_oldest(folder_);
} catch (const std::exception&) {
  return;  // the next start tries the file again
}

}  // namespace tessera::plugin
