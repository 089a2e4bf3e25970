// When a run saves while it trains: every so many steps, so many minutes, or both.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "tessera/error.h"
#include "tessera/process_group.h"

namespace tessera {

// Why a save failed: the disk may do better the next time; a model that has come apart or a rank that is gone will not.
inline bool of_the_disk(const Error& e) {
  return e.code() == Code::kUnavailable || e.code() == Code::kResourceExhausted;
}

struct SaveScheduleOptions {
  int64_t every_steps = 0;                           // 0: not by steps
  double every_s = 0;                                // 0: not by time, which is rank 0's
  int64_t first_step = 0;                            // steps done before this run
  std::function<double()> seconds = steady_seconds;  // of a clock, for tests

  static double steady_seconds();
};

class SaveSchedule {
 public:
  explicit SaveSchedule(SaveScheduleOptions options);
  // Whether to ask due() behind a step, on all ranks alike. It is asked seldom: the less often, the longer there is to
  // the next save by time.
  bool looks(int64_t step) const { return step >= next_look_; }
  // Whether to save behind this step, now. A save that is due while some rank is `busy` with the one before waits until
  // none is. Collective.
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
