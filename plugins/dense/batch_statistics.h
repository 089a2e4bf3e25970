// Mean and variance of the columns of a batch: over the samples of all ranks while training, otherwise running means.
#pragma once

#include <span>
#include <vector>

#include "piece.h"

namespace tessera_dense {

// xhat = (x - mean) * inverse with inverse = 1 / sqrt(variance + eps), like PyTorch's SyncBatchNorm: the batch's
// variance is biased, and the running variance is not. Sums are in double.
class BatchStatistics {
 public:
  BatchStatistics(int64_t width, double eps, double momentum);

  // The first buffers of a run: running mean, running variance, and the number of batches.
  std::vector<tessera::sdk::Parameter> buffers() const;
  // Floats that a run keeps: the means, then the inverses, then the number of samples (0 for running means).
  int64_t kept() const { return 2 * width_ + 1; }
  void take(const Run& run, const float* x, float* kept);

  // Per column, the sums over this rank's rows of g = dloss / dxhat, followed by those of g * xhat. Valid until the
  // next call.
  std::span<const double> sum(const Run& run, const float* x, const float* g, const float* kept);
  // dx = scale * inverse * (g - mean(g) - xhat * mean(g * xhat)), with means over all ranks computed from the last
  // sum(). `scale` is per column. Every rank must call this; a rank that does not want dx passes NULL.
  void back(const Run& run, const float* x, const float* g, const float* kept, const float* scale, float* dx);

 private:
  void take_of_batch(const Run& run, const float* x, float* kept);
  void add_up(const Run& run);
  void follow(float& running, double now) const;

  int64_t width_;
  double eps_, momentum_;
  std::vector<double> sums_;  // two per column, then the number of samples
};

}  // namespace tessera_dense
