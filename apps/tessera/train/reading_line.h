// A line that a terminal shows while a job reads its data, before the first step.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::cli {

// For example "reading clicks.csv (334 MB): 120 MB so far, 2 s". `read` is in bytes; files may be read more than once.
std::string reading_text(const std::string& path, int64_t size, int64_t read, double seconds);

// Draws that line on standard error from the first second on, and erases it in its destructor.
class ReadingLine {
 public:
  // Does nothing if `shown` is false.
  ReadingLine(std::string path, bool shown);
  ~ReadingLine();
  ReadingLine(const ReadingLine&) = delete;
  ReadingLine& operator=(const ReadingLine&) = delete;

 private:
  void draw_until_done();

  const std::string path_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace tessera::cli
