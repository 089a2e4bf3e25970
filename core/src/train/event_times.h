// Statistics on event times of rows, and on the delay until they were trained on.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "tessera/train_job.h"

namespace tessera {

class EventTimes {
 public:
  // Adds rows in training order. Times and `now` are in seconds since 1970; NaN: the row has no time.
  void add(std::span<const double> times, double now);
  std::optional<EventTimeFigures> figures() const;  // unset: no row had a time

 private:
  static constexpr size_t kPerOctave = 8, kOctaves = 40;  // buckets start at 1 ms
  double quantile(double part) const;

  int64_t rows_ = 0, late_rows_ = 0;
  double first_ = 0, newest_ = 0, delays_ = 0, longest_ = 0, latest_ = 0;
  std::array<int64_t, kPerOctave * kOctaves> counts_{};  // of delays
};

}  // namespace tessera
