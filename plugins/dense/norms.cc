// Layer norm and batch norm.
#include <cmath>

#include "piece.h"

namespace tessera_dense {
namespace {

using tessera::sdk::constant;

// y = (x - mean) / sqrt(variance + eps) * weight + bias, mean and (biased) variance of the row: PyTorch's LayerNorm.
class LayerNormPiece : public Piece {
 public:
  LayerNormPiece(tessera::sdk::Host host, int64_t width, double eps)
      : Piece(width, width), host_(host), loops_(*choose_loops().of_rows), eps_(static_cast<float>(eps)) {
    parameters_.push_back({"weight", {width}, constant(1)});
    parameters_.push_back({"bias", {width}});
  }
  // The standardised rows, and 1 / sqrt(variance + eps) of each.
  int64_t kept(int64_t batch) const override { return batch * (in() + 1); }

  void forward(const Run& run, const float* x, float* y, float* kept) override {
    loops_.standardise(run.batch, in(), eps_, x, kept, kept + run.batch * in());
    loops_.scale_shift(run.batch, in(), kept, run.parameters[0], run.parameters[1], y);
  }
  void backward(const Run& run, const float*, const float* dy, float* dx, const float* kept) override {
    loops_.add_scale_shift(run.batch, in(), kept, dy, run.gradients[0], run.gradients[1]);
    if (!dx) return;
    float* g = inner_.at_least(host_, run.batch * in());
    for (int64_t s = 0; s < run.batch; ++s) loops_.multiply(in(), dy + s * in(), run.parameters[0], 1, g + s * in());
    loops_.standardise_back(run.batch, in(), kept, kept + run.batch * in(), g, dx);
  }

 private:
  tessera::sdk::Host host_;
  const RowLoops& loops_;
  float eps_;
  Floats inner_;
};

// The same with mean and variance of a column, over the samples of all ranks while training and as running means
// otherwise: PyTorch's SyncBatchNorm. Sums are in double.
class BatchNormPiece : public Piece {
 public:
  BatchNormPiece(int64_t width, double eps, double momentum)
      : Piece(width, width), eps_(eps), momentum_(momentum), sums_(static_cast<size_t>(2 * width + 1)) {
    parameters_.push_back({"weight", {width}, constant(1)});
    parameters_.push_back({"bias", {width}});
    buffers_.push_back({"running_mean", {width}});
    buffers_.push_back({"running_var", {width}, constant(1)});
    buffers_.push_back({"num_batches_tracked", {}, {}, tessera::sdk::dtype_of<int64_t>()});
  }
  // The mean, 1 / sqrt(variance + eps), and the number of samples behind them, 0 for running means.
  int64_t kept(int64_t) const override { return 2 * in() + 1; }

  void forward(const Run& run, const float* x, float* y, float* kept) override {
    float *mean = kept, *inverse = kept + in();
    kept[2 * in()] = 0;
    if (run.call.trains) {
      take_statistics(run, x, kept);
    } else {
      for (int64_t i = 0; i < in(); ++i) {
        mean[i] = buffer(run, 0)[i];
        inverse[i] = static_cast<float>(1 / std::sqrt(buffer(run, 1)[i] + eps_));
      }
    }
    for (int64_t s = 0; s < run.batch; ++s) {
      for (int64_t i = 0; i < in(); ++i)
        y[s * in() + i] = (x[s * in() + i] - mean[i]) * inverse[i] * run.parameters[0][i] + run.parameters[1][i];
    }
  }

  void backward(const Run& run, const float* x, const float* dy, float* dx, const float* kept) override {
    const float *mean = kept, *inverse = kept + in();
    const int64_t width = in();
    std::fill(sums_.begin(), sums_.end(), 0.0);
    for (int64_t s = 0; s < run.batch; ++s) {
      for (int64_t i = 0; i < width; ++i) {
        const int64_t at = s * width + i;
        sums_[static_cast<size_t>(i)] += dy[at];
        sums_[static_cast<size_t>(width + i)] += double{dy[at]} * ((x[at] - mean[i]) * inverse[i]);
      }
    }
    for (int64_t i = 0; i < width; ++i) {
      run.gradients[1][i] += static_cast<float>(sums_[static_cast<size_t>(i)]);
      run.gradients[0][i] += static_cast<float>(sums_[static_cast<size_t>(width + i)]);
    }
    const double count = kept[2 * width];
    if (count > 0) add_up(run);  // on all ranks, whether they want dx or not
    if (!dx) return;
    const double each = count > 0 ? 1 / count : 0;
    for (int64_t s = 0; s < run.batch; ++s) {
      for (int64_t i = 0; i < width; ++i) {
        const int64_t at = s * width + i;
        const double xhat = (x[at] - mean[i]) * inverse[i];
        const double own =
            dy[at] - each * (sums_[static_cast<size_t>(i)] + xhat * sums_[static_cast<size_t>(width + i)]);
        dx[at] = static_cast<float>(run.parameters[0][i] * inverse[i] * own);
      }
    }
  }

 private:
  static float* buffer(const Run& run, size_t i) { return tessera::sdk::data_as<float>(run.buffers[i]); }
  void add_up(const Run& run) {
    int64_t shape = static_cast<int64_t>(sums_.size());
    run.call.sum_over_ranks({sums_.data(), {kDLCPU, 0}, 1, tessera::sdk::dtype_of<double>(), &shape, nullptr, 0});
  }
  // Two passes, so that a large mean costs the variance no digits: sums and count first, then squares around the mean.
  void take_statistics(const Run& run, const float* x, float* kept) {
    const int64_t width = in();
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
  void follow(float& running, double now) const {
    running = static_cast<float>((1 - momentum_) * running + momentum_ * now);
  }

  double eps_, momentum_;
  std::vector<double> sums_;
};

}  // namespace

std::unique_ptr<Piece> make_layer_norm(tessera::sdk::Host host, int64_t width, double eps) {
  return std::make_unique<LayerNormPiece>(host, width, eps);
}
std::unique_ptr<Piece> make_batch_norm(int64_t width, double eps, double momentum) {
  return std::make_unique<BatchNormPiece>(width, eps, momentum);
}

}  // namespace tessera_dense
