// The limits that end a search.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stop_token>
#include <utility>

namespace tessera {

// Counts work, so that equal input ends a search at the same point in every process. On a machine so slow that the work
// takes longer than allowed, a clock ends it. A part of a budget ends when the whole ends.
class Budget {
 public:
  // 0 seconds: there is no limit.
  explicit Budget(double seconds, std::stop_token stop = {})
      : stop_(std::move(stop)),
        left_(seconds > 0 ? static_cast<int64_t>(std::min(seconds * kUnitsPerSecond, 9e18)) : INT64_MAX),
        end_(seconds > 0 ? Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                              std::chrono::duration<double>(std::min(seconds, 1e9)))
                         : Clock::time_point::max()) {}
  Budget(Budget& whole, int64_t units) : whole_(&whole), left_(std::min(units, whole.left_)), end_(whole.end_) {}
  // A part of the budget: the share `of_one` of the work that `whole` has left.
  static Budget share(Budget& whole, double of_one) {
    Budget part(whole,
                whole.left_ == INT64_MAX ? INT64_MAX : static_cast<int64_t>(static_cast<double>(whole.left_) * of_one));
    const Clock::time_point now = Clock::now();
    if (whole.end_ != Clock::time_point::max() && now < whole.end_) {
      part.end_ = now + std::chrono::duration_cast<Clock::duration>((whole.end_ - now) * of_one);
    }
    return part;
  }

  // A unit is about the time to look at one rank. Returns false if the budget is used up.
  bool spend(int64_t units) {
    if (whole_ != nullptr) whole_->spend(units);
    if (left_ != INT64_MAX) left_ -= units;
    since_look_ += units;
    if (since_look_ >= kUnitsPerLook) {
      since_look_ = 0;
      late_ = late_ || stop_.stop_requested() || (end_ != Clock::time_point::max() && Clock::now() >= end_);
    }
    return !over();
  }
  bool over() const { return left_ <= 0 || late_ || (whole_ != nullptr && whole_->over()); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kUnitsPerSecond = 1e8;  // on a slow machine
  static constexpr int64_t kUnitsPerLook = 200'000;

  Budget* whole_ = nullptr;
  std::stop_token stop_;
  int64_t left_;
  int64_t since_look_ = 0;
  Clock::time_point end_;
  bool late_ = false;
};

}  // namespace tessera
