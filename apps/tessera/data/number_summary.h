// A summary of a column's numbers: extremes, mean and deviation of all, quantiles of a sample.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/sdk/random.h"

namespace tessera::cli {

class NumberSummary {
 public:
  static constexpr size_t kSample = 8192;  // size of the sample

  void add(double value);
  // Adds `value` as if it occurred `times` times.
  void add(double value, int64_t times);

  int64_t count() const { return count_; }
  int64_t whole() const { return whole_; }  // how many are whole numbers
  double least() const { return least_; }
  double most() const { return most_; }
  double mean() const { return mean_; }
  double deviation() const;
  // The numbers in ascending order: all of them, or a uniform sample of kSample that is the same in every run.
  std::vector<double> sample() const;

 private:
  void moments(double value, double times);

  int64_t count_ = 0, whole_ = 0;
  double least_ = 0, most_ = 0, mean_ = 0, squares_ = 0;  // squares_: sum of squared distances to the mean
  std::vector<double> sample_;
  sdk::Random random_{0x5eed};
};

// The quantile of ascending numbers for `share` in [0, 1]; 0 if there are none.
double quantile(const std::vector<double>& ascending, double share);

}  // namespace tessera::cli
