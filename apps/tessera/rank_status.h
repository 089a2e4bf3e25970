// What the ranks of a job tell their launcher and each other while they run, in memory that outlives them: how far they
// are, and what is saved, which the launcher's table says when the job has ended, however that was; and what was said.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tessera::cli {

struct RankStatus {
  std::atomic<int64_t> step;   // steps done in all; -1: none is known
  std::atomic<int64_t> saved;  // the step of the newest checkpoint of this run; -1: none
};
static_assert(std::atomic<int64_t>::is_always_lock_free);

// A sentence that a rank says for all: by its hash, 0 for none.
struct SaidSentence {
  std::atomic<uint64_t> hash;
  std::atomic<bool> written;
};

// The launcher's: shared with processes that inherit fd().
class StatusBoard {
 public:
  explicit StatusBoard(int ranks);  // where the system has no memory for it, nothing is ever known
  ~StatusBoard();
  StatusBoard(const StatusBoard&) = delete;
  StatusBoard& operator=(const StatusBoard&) = delete;

  // In the process of a rank, before it becomes another program.
  void hand_on() const;
  const RankStatus* rank(int rank) const { return ranks_ ? ranks_ + rank : nullptr; }

 private:
  int fd_ = -1;
  int64_t bytes_ = 0;
  void* memory_ = nullptr;
  RankStatus* ranks_ = nullptr;
};

// A rank's own: of `tessera train` under `tessera launch`; elsewhere nobody is told.
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
  RankStatus* place_ = nullptr;  // as long as the process
};

// Writes a line to standard error, unless another rank of the same launcher has written just that one: what is wrong
// with a command is wrong on all ranks.
void say_once(const std::string& line);

}  // namespace tessera::cli
