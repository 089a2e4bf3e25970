// Mean and variance of the columns of a batch: of the samples of all ranks while training, as running means otherwise.
#pragma once

#include <span>
#include <vector>

#include "piece.h"

namespace tessera_dense {

// xhat = (x - mean) * inverse, where inverse = 1 / sqrt(variance + eps), as PyTorch's SyncBatchNorm has it: variances
// are biased, running ones are not. Sums are in double.
class BatchStatistics {
 public:
  BatchStatistics(int64_t width, double eps, double momentum);

  // Running means are kept in the first ones of a run's buffers.
  std::vector<tessera::sdk::Parameter> buffers() const;
  // The state of a run: the means, then the inverses, then the number of samples behind them, 0 for running means.
  int64_t kept() const { return 2 * width_ + 1; }
  void take(const Run& run, const float* x, float* kept);

  // For each column, the sums over this rank's rows of g = dloss / dxhat, and after them those of g * xhat. Valid until
  // the next call.
  std::span<const double> sum(const Run& run, const float* x, const float* g, const float* kept);
  // dx = scale * inverse * (g - mean(g) - xhat * mean(g * xhat)), means over all ranks, with what the last sum() found;
  // `scale`: of each column. Every rank calls it, whether it wants dx or not: NULL then.
  void back(const Run& run, const float* x, const float* g, const float* kept, const float* scale, float* dx);

 private:
  void take_of_batch(const Run& run, const float* x, float* kept);
  void add_up(const Run& run);
  void follow(float& running, double now) const;

  int64_t width_;
  double eps_, momentum_;
  std::vector<double> sums_;  // two of each column, and a count
};

}  // namespace tessera_dense
