#include "train/reading_line.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "stopwatch.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

// Bytes that this process has read so far; 0 if the system does not say.
int64_t bytes_read() {
  std::ifstream in("/proc/self/io");
  std::string key;
  for (int64_t value = 0; in >> key >> value;) {
    if (key == "rchar:") return value;
  }
  return 0;
}

// Size of a file or of a directory's files; 0 for a pattern or a pipe.
int64_t size_of(const std::string& path) {
  std::error_code failed;
  if (fs::is_regular_file(path, failed)) return static_cast<int64_t>(fs::file_size(path, failed));
  int64_t all = 0;
  for (fs::recursive_directory_iterator at(path, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored)) all += static_cast<int64_t>(at->file_size(ignored));
  }
  return all;
}

}  // namespace

std::string reading_text(const std::string& path, int64_t size, int64_t read, double seconds) {
  constexpr int64_t kMb = 1000000;
  const std::string all = size >= kMb ? str_cat(" (", size / kMb, " MB)") : std::string();
  return str_cat("reading ", fs::path(path).filename().string(), all, ": ", read / kMb, " MB so far, ",
                 static_cast<int64_t>(seconds), " s");
}

ReadingLine::ReadingLine(std::string path, bool shown) : path_(std::move(path)) {
  if (shown && !path_.empty()) thread_ = std::thread([this] { draw_until_done(); });
}

ReadingLine::~ReadingLine() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ReadingLine::draw_until_done() {
  constexpr std::chrono::milliseconds kFirst{1000}, kNext{250};
  const int64_t before = bytes_read();
  const Stopwatch watch;
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, kFirst, [this] { return done_; })) return;
  const int64_t size = size_of(path_);
  do {
    std::fprintf(stderr, "\r%s\x1b[K", reading_text(path_, size, bytes_read() - before, watch.seconds()).c_str());
  } while (!changed_.wait_for(lock, kNext, [this] { return done_; }));
  std::fputs("\r\x1b[K", stderr);
}

}  // namespace tessera::cli
