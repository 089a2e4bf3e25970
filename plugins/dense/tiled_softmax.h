// Softmax of rows over many candidates, in tiles of logits that stay in a core's cache.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "loops.h"
#include "support.h"

namespace tessera_dense {

// Returns ln(exp(a) + exp(b)). Both may be -infinity.
inline double log_of_sum(double a, double b) {
  if (a == -INFINITY) return b;
  if (b == -INFINITY) return a;
  const double largest = std::max(a, b);
  return largest + std::log(std::exp(a - largest) + std::exp(b - largest));
}

// For each row, the indices of the candidates that it leaves out.
struct LeftOut {
  std::vector<int64_t> ends;        // row i has the elements [ends[i - 1], ends[i]) of `candidates`
  std::vector<int64_t> candidates;  // ascending for each row

  void clear() {
    ends.clear();
    candidates.clear();
  }
  void end_row() { ends.push_back(std::ssize(candidates)); }
  // Calls body(candidate - first) for each candidate in [first, last) that the row leaves out.
  template <class Body>
  void each(int64_t row, int64_t first, int64_t last, const Body& body) const {
    const auto i = static_cast<size_t>(row);
    for (auto at = i == 0 ? 0 : ends[i - 1]; at < ends[i]; ++at) {
      const int64_t candidate = candidates[static_cast<size_t>(at)];
      if (candidate >= first && candidate < last) body(candidate - first);
    }
  }
};

// Rows and candidates, all borrowed. Logits are z = scale * state . candidate - log_q.
struct Compared {
  int64_t rows = 0, candidates = 0, width = 0;
  float scale = 1;
  const float* states = nullptr;          // [rows, width]
  const float* candidate_rows = nullptr;  // [candidates, width]
  const float* log_q = nullptr;           // [candidates]; NULL: zeros
  const LeftOut* left_out = nullptr;      // has row 0 as its row `first_row`
  int64_t first_row = 0;

  int64_t products() const { return rows * candidates * width; }  // multiply-adds of all logits
};

// The order of all sums depends only on the shapes. Both functions compute each tile of logits themselves, so that
// memory never holds all logits.
class TiledSoftmax {
 public:
  TiledSoftmax(tessera::sdk::Host host, const Loops& loops) : host_(host), loops_(loops) {}

  // Writes ln(sum of exp(z)) over each row's candidates to `log_sums` [rows]; -infinity for a row without any.
  // [any-thread]
  void sum_up(const Compared& c, double* log_sums) const;
  // Let dz = factor * exp(z - log_sum), with `factors` [rows] and `log_sums` [rows]; a log_sum may include further
  // candidates. Writes the sums of dz * candidate to `grad_states` [rows, width], and adds the sums of dz * state to
  // `grad_candidates` [candidates, width] unless it is NULL. [any-thread]
  void backward(const Compared& c, const float* factors, const double* log_sums, float* grad_states,
                float* grad_candidates) const;

 private:
  // A tile: rows [row, row + rows) and candidates [candidate, candidate + candidates).
  struct Tile {
    int64_t row, rows, candidate, candidates;
  };
  void logits(const Compared& c, const Tile& tile, float* z) const;
  void gradients(const Compared& c, const Tile& tile, const float* factors, const double* log_sums, float* z) const;

  tessera::sdk::Host host_;
  const Loops& loops_;
};

}  // namespace tessera_dense
