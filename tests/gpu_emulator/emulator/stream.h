// emulator/stream.h - a queue of work, and the OS threads that do it. Internal to the emulator.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "emulator/block.h"

namespace emulator {

// Runs launches, one at a time: the calling thread and helpers take blocks in turn.
class Launcher {
 public:
  Launcher() = default;
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Returns "", or the error of a block; other blocks may then not have run.
  std::string run(const Launch& launch);

 private:
  void help(size_t helper, uint64_t seen);  // takes part in launches after round `seen`
  void take_blocks(Block& block);

  std::vector<std::unique_ptr<Block>> blocks_;  // one per worker; [0] is the caller's
  std::vector<std::thread> helpers_;
  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  uint64_t round_ = 0;  // launches handed to helpers
  size_t busy_ = 0;
  bool stop_ = false;
  const Launch* launch_ = nullptr;
  std::atomic<uint64_t> next_{0};
  std::atomic<bool> failed_{false};
  std::string error_;
};

// The point in a stream at which an event was recorded.
class Mark {
 public:
  explicit Mark(bool captured) : captured(captured) {}
  // ThreadSanitizer does not see the counts by which marks are shared. The lock shows it that all others are done.
  ~Mark() { const std::lock_guard lock(mutex_); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  const bool captured;  // a point of a graph, which nothing outside can wait for
  void reach();
  void wait();
  bool reached();
  std::chrono::steady_clock::time_point time();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  std::chrono::steady_clock::time_point time_;
};

class Event {
 public:
  explicit Event(bool timing) : timing_(timing) {}
  std::shared_ptr<Mark> record(bool captured);  // a new mark that the stream will reach
  std::shared_ptr<Mark> last();                 // NULL before the first record
  bool timing() const { return timing_; }

 private:
  const bool timing_;
  std::mutex mutex_;
  std::shared_ptr<Mark> last_;
};

using Task = std::function<void(Launcher&)>;

// The work that a capture recorded.
class Graph {
 public:
  std::vector<Task> tasks;
};

class Stream {
 public:
  enum class Kind { kQueue, kImmediate };  // immediate: the NULL stream, whose work is done when add() returns
  explicit Stream(Kind kind);
  ~Stream();  // waits until all work is done
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // [any-thread] `always`: runs also after an error, which skips all other work.
  void add(Task work, bool always = false);
  void wait_until_idle();  // [any-thread]

  // Between begin and end of a capture, add() records. `spoil` notes an operation that cannot be in a graph;
  // end_capture() then returns NULL.
  bool begin_capture();  // false if a capture is under way, or if the stream is immediate
  bool capturing();
  void spoil_capture();
  std::unique_ptr<Graph> end_capture();

 private:
  struct Work {
    Task run;
    std::chrono::steady_clock::time_point not_before;
    bool always;
  };
  void run_one(const Task& work);
  void serve();

  const Kind kind_;
  Launcher launcher_;
  std::mutex running_;  // serialises immediate work of several threads
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  std::unique_ptr<Graph> captured_;
  bool spoiled_ = false;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

// Encloses everything that a stream does: device memory can be touched inside.
void begin_work();
void end_work();

// The process's sticky error; the first one stays.
void stick(std::string sentence);
bool stuck();

}  // namespace emulator
