// Decides when a run saves while it trains: every n steps, every n minutes, or both.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "tessera/error.h"
#include "tessera/process_group.h"

namespace tessera {

// True for disk errors, which may pass. A diverged model or a lost rank will fail again.
inline bool of_the_disk(const Error& e) {
  return e.code() == Code::kUnavailable || e.code() == Code::kResourceExhausted;
}

struct SaveScheduleOptions {
  int64_t every_steps = 0;                           // 0: not by steps
  double every_s = 0;                                // 0: not by time; rank 0's clock counts
  int64_t first_step = 0;                            // steps done before this run
  std::function<double()> seconds = steady_seconds;  // a clock; tests replace it

  static double steady_seconds();
};

class SaveSchedule {
 public:
  explicit SaveSchedule(SaveScheduleOptions options);
  // True if due() must be called after this step; the same on all ranks. The further away the next save by time is, the
  // rarer the calls are.
  bool looks(int64_t step) const { return step >= next_look_; }
  // True if a checkpoint must be saved after this step. A due save waits while some rank is `busy` with the previous
  // one. Collective.
  bool due(int64_t step, bool busy, const ProcessGroup& group);

 private:
  int64_t steps_until_time(int64_t step);

  SaveScheduleOptions options_;
  int64_t next_look_ = std::numeric_limits<int64_t>::max();
  int64_t last_look_ = 0;
  double last_look_s_ = 0, last_save_s_ = 0;
  bool waits_ = false;  // a save is due
};

}  // namespace tessera
