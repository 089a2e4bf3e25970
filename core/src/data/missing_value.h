// The replacement for missing values: the mean or the median of those that the training rows have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tessera/sdk/random.h"

namespace tessera::data {

class MissingValue {
 public:
  void add(double value) {
    ++count_;
    mean_ += (value - mean_) / static_cast<double>(count_);
    if (sample_.size() < kSample) {
      sample_.push_back(value);
    } else if (const uint64_t place = random_.below(static_cast<uint64_t>(count_)); place < kSample) {
      sample_[place] = value;
    }
  }
  void add_missing() { ++missing_; }

  int64_t count() const { return count_; }  // number of values
  int64_t missing() const { return missing_; }
  double mean() const { return mean_; }
  // Exact for up to 100,000 values, otherwise the median of 100,000 of them. Only the order of the values decides which
  // ones. For an even number of values it is the mean of the two in the middle.
  double median() {
    const size_t half = sample_.size() / 2;
    const auto middle = sample_.begin() + static_cast<int64_t>(half);
    std::nth_element(sample_.begin(), middle, sample_.end());
    if (sample_.size() % 2 == 1) return *middle;
    return (*std::max_element(sample_.begin(), middle) + *middle) / 2;
  }

 private:
  static constexpr size_t kSample = 100000;
  int64_t count_ = 0, missing_ = 0;
  double mean_ = 0;
  std::vector<double> sample_;
  sdk::Random random_{1};
};

}  // namespace tessera::data
