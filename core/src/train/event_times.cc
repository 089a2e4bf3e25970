#include "train/event_times.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr double kLeast = 1e-3;

}  // namespace

void EventTimes::add(std::span<const double> times, double now) {
  for (const double time : times) {
    if (std::isnan(time)) continue;
    if (rows_++ == 0) first_ = newest_ = time;
    if (time < newest_) {
      ++late_rows_;
      latest_ = std::max(latest_, newest_ - time);
    }
    first_ = std::min(first_, time);
    newest_ = std::max(newest_, time);
    const double delay = std::max(0.0, now - time);
    delays_ += delay;
    longest_ = std::max(longest_, delay);
    const double bin = delay <= kLeast ? 0 : kPerOctave * std::log2(delay / kLeast);
    ++counts_[static_cast<size_t>(std::min(bin, static_cast<double>(counts_.size() - 1)))];
  }
}

double EventTimes::quantile(double part) const {
  const double wanted = part * static_cast<double>(rows_);
  int64_t seen = 0;
  for (size_t bin = 0; bin < counts_.size(); ++bin) {
    seen += counts_[bin];
    if (static_cast<double>(seen) >= wanted)
      return std::min(longest_, kLeast * std::exp2(static_cast<double>(bin + 1) / kPerOctave));
  }
  return longest_;
}

std::optional<EventTimeFigures> EventTimes::figures() const {
  if (rows_ == 0) return std::nullopt;
  return EventTimeFigures{.rows = rows_,
                          .first = first_,
                          .newest = newest_,
                          .delay_s = {delays_ / static_cast<double>(rows_), quantile(0.5), quantile(0.99), longest_},
                          .late_rows = late_rows_,
                          .max_lateness_s = latest_};
}

}  // namespace tessera
