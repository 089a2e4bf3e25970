// Memory in which the ranks of a job report to their launcher and to each other: their step, the newest checkpoint, and
// sentences already printed. It outlives the ranks, so the launcher's table can show it however the job ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tessera::cli {

struct RankStatus {
  std::atomic<int64_t> step;   // steps done in all; -1 if unknown
  std::atomic<int64_t> saved;  // step of the newest checkpoint of this run; -1 if none
};
static_assert(std::atomic<int64_t>::is_always_lock_free);

// A sentence that one rank prints for all: its hash, or 0 if unused.
struct SaidSentence {
  std::atomic<uint64_t> hash;
  std::atomic<bool> written;
};

// The launcher's board, shared with processes that inherit fd().
class StatusBoard {
 public:
  explicit StatusBoard(int ranks);  // if the system has no memory for it, nothing is ever reported
  ~StatusBoard();
  StatusBoard(const StatusBoard&) = delete;
  StatusBoard& operator=(const StatusBoard&) = delete;

  // Called in the process of a rank before it becomes another program.
  void hand_on() const;
  const RankStatus* rank(int rank) const { return ranks_ ? ranks_ + rank : nullptr; }

 private:
  int fd_ = -1;
  int64_t bytes_ = 0;
  void* memory_ = nullptr;
  RankStatus* ranks_ = nullptr;
};

// A rank's entry, for `tessera train` under `tessera launch`; elsewhere nothing is reported.
class OwnStatus {
 public:
  explicit OwnStatus(int rank);
  void tell_step(int64_t step) const {
    if (place_) place_->step.store(step, std::memory_order_relaxed);
  }
  void tell_saved(int64_t step) const {
    if (place_) place_->saved.store(step, std::memory_order_relaxed);
  }

 private:
  RankStatus* place_ = nullptr;  // valid as long as the process lives
};

// Writes a line to standard error, unless another rank of the same launcher has already written the same line. A wrong
// command is wrong on all ranks.
void say_once(const std::string& line);

}  // namespace tessera::cli
