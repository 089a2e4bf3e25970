// Norms of a row: layer norm of groups of columns, with a weight for each group or none, and the L2 norm.
#include <cmath>

#include "piece.h"

namespace tessera_dense {
namespace {

// Layer norm without weights, in double. Attention that divides by a length gives small rows; their gradients are large
// and nearly cancel each other.
void standardise_exactly(int64_t width, double eps, const float* x, float* y, float* inverse) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < width; ++i) sum += double{x[i]};
  const double mean = sum / static_cast<double>(width);
  for (int64_t i = 0; i < width; ++i) squares += (double{x[i]} - mean) * (double{x[i]} - mean);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
  for (int64_t i = 0; i < width; ++i) y[i] = static_cast<float>((double{x[i]} - mean) * scale);
  *inverse = static_cast<float>(scale);
}
void standardise_back_exactly(int64_t width, const float* y, float inverse, const float* g, float* dx) {
  double sum = 0, along = 0;
  for (int64_t i = 0; i < width; ++i) {
    sum += double{g[i]};
    along += double{g[i]} * double{y[i]};
  }
  const double mean = sum / static_cast<double>(width), slope = along / static_cast<double>(width);
  for (int64_t i = 0; i < width; ++i)
    dx[i] = static_cast<float>(double{inverse} * (double{g[i]} - mean - double{y[i]} * slope));
}

// Normalises each of `groups` equal parts of a row. With weights, each part has one factor and one offset.
class GroupNormPiece : public Piece {
 public:
  GroupNormPiece(tessera::sdk::Host host, int64_t width, int64_t groups, double eps, bool weights)
      : Piece(width, width),
        host_(host),
        loops_(*choose_loops().of_rows),
        groups_(groups),
        eps_(eps),
        weights_(weights) {
    if (!weights) return;
    parameters_.push_back({"weight", {groups}, tessera::sdk::constant(1)});
    parameters_.push_back({"bias", {groups}});
  }
  // Keeps the standardised parts, and 1 / sqrt(variance + eps) of each.
  int64_t kept(int64_t batch) const override { return batch * (in() + groups_); }

  void forward(const Run& run, const float* x, float* y, float* kept) override {
    const int64_t width = in() / groups_;
    float* inverse = kept + run.batch * in();
    in_row_blocks(host_, run.batch * groups_, width, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        standardise_exactly(width, eps_, x + p * width, kept + p * width, inverse + p);
        const float factor = weights_ ? run.parameters[0][p % groups_] : 1.0f;
        const float offset = weights_ ? run.parameters[1][p % groups_] : 0.0f;
        for (int64_t i = p * width; i < (p + 1) * width; ++i) y[i] = weights_ ? kept[i] * factor + offset : kept[i];
      }
    });
  }
  void backward(const Run& run, const float*, const float* dy, float* dx, const float* kept) override {
    const int64_t parts = run.batch * groups_, width = in() / groups_;
    const float* g = dy;
    if (weights_) {
      float* inner = inner_.at_least(host_, run.batch * in());
      for (int64_t p = 0; p < parts; ++p) {
        const float* from = dy + p * width;
        run.gradients[0][p % groups_] += loops_.dot(width, from, kept + p * width);
        for (int64_t i = 0; i < width; ++i) run.gradients[1][p % groups_] += from[i];
        loops_.scale(width, run.parameters[0][p % groups_], from, inner + p * width);
      }
      g = inner;
    }
    if (!dx) return;
    const float* inverse = kept + run.batch * in();
    in_row_blocks(host_, parts, width, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        standardise_back_exactly(width, kept + p * width, inverse[p], g + p * width, dx + p * width);
    });
  }

 private:
  tessera::sdk::Host host_;
  const RowLoops& loops_;
  int64_t groups_;
  double eps_;
  bool weights_;
  Floats inner_;
};

// y = x / max(|x|, eps)
class L2NormPiece : public Piece {
 public:
  L2NormPiece(tessera::sdk::Host host, int64_t width, double eps)
      : Piece(width, width), host_(host), loops_(*choose_loops().of_rows), eps_(eps) {}
  // Keeps the divisor of each row, negated if it is eps.
  int64_t kept(int64_t batch) const override { return batch; }

  void forward(const Run& run, const float* x, float* y, float* kept) override {
    in_row_blocks(host_, run.batch, in(), [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        double sum = 0;
        for (int64_t i = s * in(); i < (s + 1) * in(); ++i) sum += double{x[i]} * double{x[i]};
        const double norm = std::sqrt(sum);
        kept[s] = static_cast<float>(norm < eps_ ? -eps_ : norm);
        loops_.scale(in(), 1 / std::fabs(kept[s]), x + s * in(), y + s * in());
      }
    });
  }
  // dx = (dy - y (y . dy)) / |x|, or dy / eps
  void backward(const Run& run, const float* x, const float* dy, float* dx, const float* kept) override {
    if (!dx) return;
    in_row_blocks(host_, run.batch, in(), [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        const int64_t at = s * in();
        const float factor = 1 / std::fabs(kept[s]);
        loops_.scale(in(), factor, dy + at, dx + at);
        if (kept[s] < 0) continue;
        const float along = loops_.dot(in(), x + at, dy + at) * factor * factor * factor;
        loops_.add_scaled(in(), -along, x + at, dx + at);
      }
    });
  }

 private:
  tessera::sdk::Host host_;
  const RowLoops& loops_;
  double eps_;
};

}  // namespace

std::unique_ptr<Piece> make_group_norm(tessera::sdk::Host host, int64_t width, int64_t groups, double eps,
                                       bool weights) {
  return std::make_unique<GroupNormPiece>(host, width, groups, eps, weights);
}
std::unique_ptr<Piece> make_l2_norm(tessera::sdk::Host host, int64_t width, double eps) {
  return std::make_unique<L2NormPiece>(host, width, eps);
}

}  // namespace tessera_dense
