// When rows happened, and how long afterwards they were trained on.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

namespace tessera {

class EventTimes {
 public:
  // Rows in the order in which they are trained on, in seconds since 1970; NaN: there is none. `now`: likewise.
  void add(std::span<const double> times, double now);
  // {"rows", "first", "newest", "delay_s": {"mean", "p50", "p99", "max"}, "late_rows", "max_lateness_s"}: a delay is
  // from the event to its step; a row is late when one with a later time came before it, by its distance to the latest.
  // Null: no row had a time. Quantiles are up to 9 % above the exact ones.
  nlohmann::ordered_json json() const;

 private:
  static constexpr size_t kPerOctave = 8, kOctaves = 40;  // from 1 ms on
  double quantile(double part) const;

  int64_t rows_ = 0, late_rows_ = 0;
  double first_ = 0, newest_ = 0, delays_ = 0, longest_ = 0, latest_ = 0;
  std::array<int64_t, kPerOctave * kOctaves> counts_{};  // of delays
};

}  // namespace tessera
