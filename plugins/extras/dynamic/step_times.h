// Times of steps, for rows whose time to live is in seconds.
#pragma once

#include <cstdint>
#include <deque>

namespace extras {

// Remembers times of steps, to find the steps that are older than a number of seconds.
class StepTimes {
 public:
  StepTimes() = default;
  explicit StepTimes(double seconds) : seconds_(seconds) {}

  // Returns the first step that is not too old. `time` is the time of `step`, in seconds.
  uint32_t first_young(uint32_t step, double time) {
    if (times_.empty() || time >= times_.back().time + seconds_ / kKept) times_.push_back({time, uint64_t{step}});
    while (times_.size() > 1 && times_[1].time <= time - seconds_) times_.pop_front();
    return times_.front().time <= time - seconds_ ? static_cast<uint32_t>(times_.front().step) : 0;
  }

  bool empty() const { return times_.empty(); }
  template <class Write>
  void save(const Write& write) const {
    const uint64_t count = times_.size();
    write(&count, sizeof(count));
    for (const Moment& m : times_) write(&m, sizeof(m));
  }
  // Adds saved times, only those of the first rank: steps were the same on all ranks, and clocks nearly so.
  template <class Read>
  void add(const Read& read) {
    const bool kept = times_.empty() && seconds_ > 0;
    uint64_t count = 0;
    read(&count, sizeof(count));
    for (; count > 0; --count) {
      Moment m{};
      read(&m, sizeof(m));
      if (kept) times_.push_back(m);
    }
  }

 private:
  static constexpr double kKept = 256;  // a step is remembered for each 256th of the time to live
  struct Moment {
    double time;
    uint64_t step;
  };
  double seconds_ = 0;
  std::deque<Moment> times_;
};

}  // namespace extras
