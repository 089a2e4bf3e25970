// A table as a tensor train (Oseledets, 2011; for embeddings: TT-Rec, Yin et al., MLSys 2021): three small tensors
// whose product is each row.
//
//   row(i)[a, b, c] = sum over p, q of G1[i1][a, p] G2[i2][p, b, q] G3[i3][q, c],    i = (i1 n2 + i2) n3 + i3
//
// with rows <= n1 n2 n3 and dim = d1 d2 d3. The sizes are chosen so that the cores have the fewest values.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace extras {

struct TrainShape {
  int64_t rows, dim, rank;
  std::array<int64_t, 3> n{1, 1, 1}, d{1, 1, 1};

  TrainShape(int64_t rows_, int64_t dim_, int64_t rank_) : rows(rows_), dim(dim_), rank(rank_) {
    int64_t best = INT64_MAX;
    for (int64_t d1 = 1; d1 <= dim; ++d1) {
      for (int64_t d2 = 1; dim % d1 == 0 && d2 <= dim / d1; ++d2) {
        if (dim / d1 % d2 != 0) continue;
        for (int64_t n2 = 1; n2 == 1 || n2 * n2 * n2 <= rows; ++n2) {
          const int64_t d3 = dim / d1 / d2, rest = ceil_of(rows, n2);
          // n1 d1 + n3 d3 is smallest if both terms are about equal.
          const auto even = static_cast<int64_t>(std::sqrt(static_cast<double>(rest * d1) / static_cast<double>(d3)));
          const int64_t n3 = std::max<int64_t>(1, even), n1 = ceil_of(rest, n3);
          const TrainShape tried(rows, dim, rank, {n1, n2, n3}, {d1, d2, d3});
          if (tried.values() >= best) continue;
          best = tried.values();
          n = tried.n;
          d = tried.d;
        }
      }
    }
  }

  // The number of values of a slice of core k, which an index i_k selects.
  int64_t width(int k) const { return d[static_cast<size_t>(k)] * (k == 1 ? rank * rank : rank); }
  int64_t values() const { return n[0] * width(0) + n[1] * width(1) + n[2] * width(2); }
  std::array<int64_t, 3> slices_of(int64_t row) const { return {row / n[2] / n[1], row / n[2] % n[1], row % n[2]}; }
  // Multiplications per row.
  int64_t work() const { return d[0] * d[1] * rank * rank + dim * rank; }

 private:
  TrainShape(int64_t rows_, int64_t dim_, int64_t rank_, std::array<int64_t, 3> n_, std::array<int64_t, 3> d_)
      : rows(rows_), dim(dim_), rank(rank_), n(n_), d(d_) {}
  static int64_t ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }
};

// Computes one row from its slices, and keeps intermediate results.
class TrainRow {
 public:
  explicit TrainRow(const TrainShape& shape)
      : s_(shape), left_(static_cast<size_t>(shape.d[0] * shape.d[1] * shape.rank)), grad_left_(left_.size()) {}

  // Writes the row to out [dim]. Keeps `left` for gradients().
  void values(const std::array<const float*, 3>& slices, float* out) {
    const int64_t r = s_.rank, d2 = s_.d[1], d3 = s_.d[2];
    multiply(slices[0], slices[1], left_.data(), {s_.d[0], r, d2 * r});
    multiply(left_.data(), slices[2], out, {s_.d[0] * d2, r, d3});
  }

  // Adds the gradients of the slices, from the row's gradient [dim]. Call it after values() of the same slices.
  void gradients(const std::array<const float*, 3>& slices, const float* grad, const std::array<float*, 3>& out) {
    const int64_t r = s_.rank, d1 = s_.d[0], d2 = s_.d[1], d3 = s_.d[2];
    add_left_gradient(left_.data(), grad, out[2], {d1 * d2, r, d3});
    std::fill(grad_left_.begin(), grad_left_.end(), 0.0f);
    add_right_gradient(slices[2], grad, grad_left_.data(), {d1 * d2, r, d3});
    add_left_gradient(slices[0], grad_left_.data(), out[1], {d1, r, d2 * r});
    add_right_gradient(slices[1], grad_left_.data(), out[0], {d1, r, d2 * r});
  }

 private:
  struct Sizes {  // sizes of C [m, n] = A [m, k] B [k, n]
    int64_t m, k, n;
  };
  static void multiply(const float* a, const float* b, float* c, Sizes s) {
    std::fill_n(c, s.m * s.n, 0.0f);
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t p = 0; p < s.k; ++p) {
        for (int64_t j = 0; j < s.n; ++j) c[i * s.n + j] += a[i * s.k + p] * b[p * s.n + j];
      }
    }
  }
  static void add_left_gradient(const float* a, const float* dc, float* db, Sizes s) {  // dB += A' dC
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t p = 0; p < s.k; ++p) {
        for (int64_t j = 0; j < s.n; ++j) db[p * s.n + j] += a[i * s.k + p] * dc[i * s.n + j];
      }
    }
  }
  static void add_right_gradient(const float* b, const float* dc, float* da, Sizes s) {  // dA += dC B'
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t p = 0; p < s.k; ++p) {
        float sum = 0;
        for (int64_t j = 0; j < s.n; ++j) sum += dc[i * s.n + j] * b[p * s.n + j];
        da[i * s.k + p] += sum;
      }
    }
  }

  const TrainShape& s_;
  std::vector<float> left_, grad_left_;  // G1 G2, [d1 d2, rank]
};

}  // namespace extras
