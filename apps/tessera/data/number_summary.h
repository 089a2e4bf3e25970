// A summary of a column's numbers: extremes, mean and deviation of all, quantiles of a sample of them.
#pragma once

#include <cstdint>
#include <vector>

#include "data/random.h"

namespace tessera::cli {

class NumberSummary {
 public:
  static constexpr size_t kSample = 8192;  // numbers that are kept

  void add(double value);
  // The numbers of `sample` come `times` times each.
  void add(double value, int64_t times);

  int64_t count() const { return count_; }
  int64_t whole() const { return whole_; }  // how many are whole
  double least() const { return least_; }
  double most() const { return most_; }
  double mean() const { return mean_; }
  double deviation() const;
  // The numbers in ascending order: all of them, or kSample drawn evenly, always the same ones.
  std::vector<double> sample() const;

 private:
  void moments(double value, double times);

  int64_t count_ = 0, whole_ = 0;
  double least_ = 0, most_ = 0, mean_ = 0, squares_ = 0;  // squares: sum of squared distances to the mean
  std::vector<double> sample_;
  data::Random random_{0x5eed};
};

// Of numbers in ascending order the one that a part `share` of them, 0 to 1, lies below; 0 of none.
double quantile(const std::vector<double>& ascending, double share);

}  // namespace tessera::cli
