#include "batch_statistics.h"

#include <cmath>

namespace tessera_dense {
namespace {

float* buffer(const Run& run, size_t i) { return tessera::sdk::data_as<float>(run.buffers[i]); }

}  // namespace

BatchStatistics::BatchStatistics(int64_t width, double eps, double momentum)
    : width_(width), eps_(eps), momentum_(momentum), sums_(static_cast<size_t>(2 * width + 1)) {}

std::vector<tessera::sdk::Parameter> BatchStatistics::buffers() const {
  return {{"running_mean", {width_}},
          {"running_var", {width_}, tessera::sdk::constant(1)},
          {"num_batches_tracked", {}, {}, tessera::sdk::dtype_of<int64_t>()}};
}

void BatchStatistics::take(const Run& run, const float* x, float* kept) {
  kept[2 * width_] = 0;
  if (run.call.trains) return take_of_batch(run, x, kept);
  for (int64_t i = 0; i < width_; ++i) {
    kept[i] = buffer(run, 0)[i];
    kept[width_ + i] = static_cast<float>(1 / std::sqrt(buffer(run, 1)[i] + eps_));
  }
}

// Two passes, so that a large mean costs the variance no precision: first sums and count, then squares around the mean.
void BatchStatistics::take_of_batch(const Run& run, const float* x, float* kept) {
  const int64_t width = width_;
  std::fill(sums_.begin(), sums_.end(), 0.0);
  for (int64_t s = 0; s < run.batch; ++s) {
    for (int64_t i = 0; i < width; ++i) sums_[static_cast<size_t>(i)] += x[s * width + i];
  }
  sums_.back() = static_cast<double>(run.batch);
  add_up(run);
  const double count = sums_.back(), each = count > 0 ? 1 / count : 0;
  for (int64_t i = 0; i < width; ++i) kept[i] = static_cast<float>(sums_[static_cast<size_t>(i)] * each);
  std::fill(sums_.begin(), sums_.end(), 0.0);
  for (int64_t s = 0; s < run.batch; ++s) {
    for (int64_t i = 0; i < width; ++i) {
      const double off = double{x[s * width + i]} - kept[i];
      sums_[static_cast<size_t>(width + i)] += off * off;
    }
  }
  add_up(run);
  kept[2 * width] = static_cast<float>(count);
  if (count == 0) {
    std::fill_n(kept + width, width, 1.0f);
    return;
  }
  for (int64_t i = 0; i < width; ++i) {
    const double variance = sums_[static_cast<size_t>(width + i)] * each;
    kept[width + i] = static_cast<float>(1 / std::sqrt(variance + eps_));
    const double unbiased = count > 1 ? variance * count / (count - 1) : variance;
    follow(buffer(run, 0)[i], kept[i]);
    follow(buffer(run, 1)[i], unbiased);
  }
  ++*tessera::sdk::data_as<int64_t>(run.buffers[2]);
}

std::span<const double> BatchStatistics::sum(const Run& run, const float* x, const float* g, const float* kept) {
  const float *mean = kept, *inverse = kept + width_;
  std::fill(sums_.begin(), sums_.end(), 0.0);
  for (int64_t s = 0; s < run.batch; ++s) {
    for (int64_t i = 0; i < width_; ++i) {
      const int64_t at = s * width_ + i;
      sums_[static_cast<size_t>(i)] += g[at];
      sums_[static_cast<size_t>(width_ + i)] += double{g[at]} * ((x[at] - mean[i]) * inverse[i]);
    }
  }
  return sums_;
}

void BatchStatistics::back(const Run& run, const float* x, const float* g, const float* kept, const float* scale,
                           float* dx) {
  const float *mean = kept, *inverse = kept + width_;
  const double count = kept[2 * width_];
  if (count > 0) add_up(run);
  if (!dx) return;
  const double each = count > 0 ? 1 / count : 0;
  for (int64_t s = 0; s < run.batch; ++s) {
    for (int64_t i = 0; i < width_; ++i) {
      const int64_t at = s * width_ + i;
      const double xhat = (x[at] - mean[i]) * inverse[i];
      const double own = g[at] - each * (sums_[static_cast<size_t>(i)] + xhat * sums_[static_cast<size_t>(width_ + i)]);
      dx[at] = static_cast<float>(scale[i] * inverse[i] * own);
    }
  }
}

void BatchStatistics::add_up(const Run& run) {
  int64_t shape = static_cast<int64_t>(sums_.size());
  run.call.sum_over_ranks({sums_.data(), {kDLCPU, 0}, 1, tessera::sdk::dtype_of<double>(), &shape, nullptr, 0});
}

void BatchStatistics::follow(float& running, double now) const {
  running = static_cast<float>((1 - momentum_) * running + momentum_ * now);
}

}  // namespace tessera_dense
