// Layer norm, batch norm, and Dice, which uses the statistics of batch norm.
#include "batch_statistics.h"

namespace tessera_dense {
namespace {

using tessera::sdk::constant;

// Adds the gradients of a norm's weight and bias. Threads divide the columns, so that sums keep the order of the rows.
void add_norm_gradients(tessera::sdk::Host host, const RowLoops& loops, const Run& run, int64_t width, const float* x,
                        const float* dy) {
  constexpr int64_t kColumns = 32;
  one_by_one(host, (width + kColumns - 1) / kColumns, run.batch * width >= kValuesWorthAThread, [&](int64_t i) {
    loops.add_scale_shift(run.batch, width, i * kColumns, std::min(width, (i + 1) * kColumns), x, dy, run.gradients[0],
                          run.gradients[1]);
  });
}

// PyTorch's LayerNorm: y = (x - mean) / sqrt(variance + eps) * weight + bias, with the mean and the biased variance of
// the row.
class LayerNormPiece : public Piece {
 public:
  LayerNormPiece(tessera::sdk::Host host, int64_t width, double eps)
      : Piece(width, width), host_(host), loops_(*choose_loops().of_rows), eps_(static_cast<float>(eps)) {
    parameters_.push_back({"weight", {width}, constant(1)});
    parameters_.push_back({"bias", {width}});
  }
  // Keeps the standardised rows, and 1 / sqrt(variance + eps) of each.
  int64_t kept(int64_t batch) const override { return batch * (in() + 1); }

  void forward(const Run& run, const float* x, float* y, float* kept) override {
    in_row_blocks(host_, run.batch, in(), [&](int64_t begin, int64_t end) {
      const int64_t at = begin * in(), rows = end - begin;
      loops_.standardise(rows, in(), eps_, x + at, kept + at, kept + run.batch * in() + begin);
      loops_.scale_shift(rows, in(), kept + at, run.parameters[0], run.parameters[1], y + at);
    });
  }
  void backward(const Run& run, const float*, const float* dy, float* dx, const float* kept) override {
    add_norm_gradients(host_, loops_, run, in(), kept, dy);
    if (!dx) return;
    in_row_blocks(host_, run.batch, in(), [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) loops_.multiply(in(), dy + s * in(), run.parameters[0], 1, dx + s * in());
      const int64_t at = begin * in();
      loops_.standardise_back(end - begin, in(), kept + at, kept + run.batch * in() + begin, dx + at, dx + at);
    });
  }

 private:
  tessera::sdk::Host host_;
  const RowLoops& loops_;
  float eps_;
};

// TorchRec's SwishLayerNorm: x * sigmoid(layer_norm(x)).
class SwishLayerNormPiece : public Piece {
 public:
  SwishLayerNormPiece(tessera::sdk::Host host, int64_t width, double eps)
      : Piece(width, width), host_(host), loops_(*choose_loops().of_rows), eps_(static_cast<float>(eps)) {
    parameters_.push_back({"norm.weight", {width}, constant(1)});
    parameters_.push_back({"norm.bias", {width}});
  }
  // Keeps the standardised rows, and 1 / sqrt(variance + eps) of each.
  int64_t kept(int64_t batch) const override { return batch * (in() + 1); }

  void forward(const Run& run, const float* x, float* y, float* kept) override {
    in_row_blocks(host_, run.batch, in(), [&](int64_t begin, int64_t end) {
      const int64_t at = begin * in(), n = (end - begin) * in();
      loops_.standardise(end - begin, in(), eps_, x + at, kept + at, kept + run.batch * in() + begin);
      loops_.scale_shift(end - begin, in(), kept + at, run.parameters[0], run.parameters[1], y + at);
      loops_.activate(Activation::kSigmoid, n, 0, y + at, y + at);
      loops_.multiply(n, y + at, x + at, 1, y + at);
    });
  }
  void backward(const Run& run, const float* x, const float* dy, float* dx, const float* kept) override {
    float* of_norm = gradient_.at_least(host_, run.batch * in());
    const int64_t size = rows_of_block(in());
    float* scratch = block_.at_least(host_, size * in() * std::max<int64_t>(slots_of(host_, run.batch, size), 1));
    in_blocks(host_, run.batch, size, [&](int64_t begin, int64_t end, int64_t slot) {
      const int64_t at = begin * in(), rows = end - begin, n = rows * in();
      float *norm = scratch + slot * size * in(), *g = of_norm + at;
      loops_.scale_shift(rows, in(), kept + at, run.parameters[0], run.parameters[1], norm);
      loops_.multiply(n, dy + at, x + at, 1, g);
      loops_.activate_back(Activation::kSigmoid, n, 0, norm, g, g);
      if (!dx) return;
      for (int64_t s = 0; s < rows; ++s) loops_.multiply(in(), g + s * in(), run.parameters[0], 1, dx + at + s * in());
      loops_.standardise_back(rows, in(), kept + at, kept + run.batch * in() + begin, dx + at, dx + at);
      loops_.activate(Activation::kSigmoid, n, 0, norm, norm);
      loops_.multiply(n, dy + at, norm, 1, norm);
      loops_.add_scaled(n, 1, norm, dx + at);
    });
    add_norm_gradients(host_, loops_, run, in(), kept, of_norm);
  }

 private:
  tessera::sdk::Host host_;
  const RowLoops& loops_;
  float eps_;
  Floats gradient_, block_;
};

// PyTorch's SyncBatchNorm: the formula of layer norm, with mean and variance per column.
class BatchNormPiece : public Piece {
 public:
  BatchNormPiece(int64_t width, double eps, double momentum) : Piece(width, width), statistics_(width, eps, momentum) {
    parameters_.push_back({"weight", {width}, constant(1)});
    parameters_.push_back({"bias", {width}});
    buffers_ = statistics_.buffers();
  }
  int64_t kept(int64_t) const override { return statistics_.kept(); }

  void forward(const Run& run, const float* x, float* y, float* kept) override {
    statistics_.take(run, x, kept);
    const float *mean = kept, *inverse = kept + in();
    for (int64_t s = 0; s < run.batch; ++s) {
      for (int64_t i = 0; i < in(); ++i)
        y[s * in() + i] = (x[s * in() + i] - mean[i]) * inverse[i] * run.parameters[0][i] + run.parameters[1][i];
    }
  }

  void backward(const Run& run, const float* x, const float* dy, float* dx, const float* kept) override {
    const std::span<const double> sums = statistics_.sum(run, x, dy, kept);
    for (int64_t i = 0; i < in(); ++i) {
      run.gradients[1][i] += static_cast<float>(sums[static_cast<size_t>(i)]);
      run.gradients[0][i] += static_cast<float>(sums[static_cast<size_t>(in() + i)]);
    }
    statistics_.back(run, x, dy, kept, run.parameters[0], dx);
  }

 private:
  BatchStatistics statistics_;
};

// Dice (Zhou et al., Deep Interest Network, 2018): y = p x + (1 - p) alpha x, p = sigmoid((x - mean) / sqrt(variance +
// eps)). Mean and variance are per column as in batch norm; alpha is trained per column and starts at 0, as in the
// authors' code.
class DicePiece : public Piece {
 public:
  DicePiece(tessera::sdk::Host host, int64_t width, double eps, double momentum)
      : Piece(width, width),
        host_(host),
        loops_(*choose_loops().of_rows),
        statistics_(width, eps, momentum),
        ones_(static_cast<size_t>(width), 1.0f) {
    parameters_.push_back({"alpha", {width}});
    buffers_ = statistics_.buffers();
  }
  // Keeps the statistics, and p.
  int64_t kept(int64_t batch) const override { return statistics_.kept() + batch * in(); }

  void forward(const Run& run, const float* x, float* y, float* kept) override {
    statistics_.take(run, x, kept);
    const float *mean = kept, *inverse = kept + in(), *alpha = run.parameters[0];
    float* p = kept + statistics_.kept();
    for (int64_t s = 0; s < run.batch; ++s) {
      for (int64_t i = 0; i < in(); ++i) p[s * in() + i] = (x[s * in() + i] - mean[i]) * inverse[i];
    }
    loops_.activate(Activation::kSigmoid, run.batch * in(), 0, p, p);
    for (int64_t s = 0; s < run.batch; ++s) {
      for (int64_t i = 0; i < in(); ++i) {
        const int64_t at = s * in() + i;
        y[at] = x[at] * (alpha[i] + (1 - alpha[i]) * p[at]);
      }
    }
  }

  void backward(const Run& run, const float* x, const float* dy, float* dx, const float* kept) override {
    const float *p = kept + statistics_.kept(), *alpha = run.parameters[0];
    float* g = inner_.at_least(host_, run.batch * in());  // dloss / dxhat
    for (int64_t s = 0; s < run.batch; ++s) {
      for (int64_t i = 0; i < in(); ++i) {
        const int64_t at = s * in() + i;
        g[at] = dy[at] * x[at] * (1 - alpha[i]) * p[at] * (1 - p[at]);
        run.gradients[0][i] += dy[at] * x[at] * (1 - p[at]);
      }
    }
    statistics_.sum(run, x, g, kept);
    statistics_.back(run, x, g, kept, ones_.data(), dx);
    if (!dx) return;
    for (int64_t s = 0; s < run.batch; ++s) {
      for (int64_t i = 0; i < in(); ++i) {
        const int64_t at = s * in() + i;
        dx[at] += dy[at] * (alpha[i] + (1 - alpha[i]) * p[at]);
      }
    }
  }

 private:
  tessera::sdk::Host host_;
  const RowLoops& loops_;
  BatchStatistics statistics_;
  std::vector<float> ones_;
  Floats inner_;
};

}  // namespace

std::unique_ptr<Piece> make_layer_norm(tessera::sdk::Host host, int64_t width, double eps) {
  return std::make_unique<LayerNormPiece>(host, width, eps);
}
std::unique_ptr<Piece> make_swish_layer_norm(tessera::sdk::Host host, int64_t width, double eps) {
  return std::make_unique<SwishLayerNormPiece>(host, width, eps);
}
std::unique_ptr<Piece> make_batch_norm(int64_t width, double eps, double momentum) {
  return std::make_unique<BatchNormPiece>(width, eps, momentum);
}
std::unique_ptr<Piece> make_dice(tessera::sdk::Host host, int64_t width, double eps, double momentum) {
  return std::make_unique<DicePiece>(host, width, eps, momentum);
}

}  // namespace tessera_dense
