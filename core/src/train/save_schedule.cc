#include "train/save_schedule.h"

#include <algorithm>
#include <chrono>

namespace tessera {

double SaveScheduleOptions::steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

SaveSchedule::SaveSchedule(SaveScheduleOptions options) : options_(std::move(options)) {
  last_look_ = options_.first_step;
  last_look_s_ = last_save_s_ = options_.seconds();
  if (const int64_t n = options_.every_steps; n > 0) next_look_ = (options_.first_step / n + 1) * n;
  if (options_.every_s > 0) next_look_ = options_.first_step + 1;
}

// Returns half of the steps until the next save at the current pace, so that a change of pace is noticed. 0: a save is
// due by time.
int64_t SaveSchedule::steps_until_time(int64_t step) {
  constexpr double kMost = 1e9;
  const double now = options_.seconds(), left = last_save_s_ + options_.every_s - now;
  const double pace = static_cast<double>(step - last_look_) / std::max(now - last_look_s_, 1e-9);
  last_look_ = step;
  last_look_s_ = now;
  return left <= 0 ? 0 : 1 + static_cast<int64_t>(std::min(kMost, left * pace / 2));
}

bool SaveSchedule::due(int64_t step, bool busy, const ProcessGroup& group) {
  const bool by_time = options_.every_s > 0;
  const Tensor all = Tensor::from(std::vector<int64_t>{busy, 0});
  int64_t* const any_busy = all.data<int64_t>();
  int64_t* const until = any_busy + 1;
  if (by_time && group.rank() == 0) *until = steps_until_time(step);
  if (group.world_size() > 1) group.all_reduce(all, ReduceOp::kMax, "due checkpoint").wait();
  const int64_t n = options_.every_steps;
  waits_ = waits_ || (n > 0 && step % n == 0) || (by_time && *until == 0);
  const bool now = waits_ && *any_busy == 0;
  if (now) last_save_s_ = options_.seconds();
  waits_ = waits_ && !now;
  next_look_ = n > 0 ? (step / n + 1) * n : std::numeric_limits<int64_t>::max();
  if (by_time) next_look_ = std::min(next_look_, step + std::max<int64_t>(1, *until));
  if (waits_) next_look_ = step + 1;
  return now;
}

}  // namespace tessera
