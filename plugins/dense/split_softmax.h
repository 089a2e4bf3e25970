// Softmax over candidates that the ranks hold together, each its part: Megatron's vocabulary parallelism.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/sdk/module.h"
#include "tiled_softmax.h"

namespace tessera_dense {

class IdIndex;

template <class T>
void sum_over_ranks(const tessera::sdk::ModuleCall& call, std::vector<T>& values) {
  auto size = static_cast<int64_t>(values.size());
  if (size > 0) call.sum_over_ranks({values.data(), {kDLCPU, 0}, 1, tessera::sdk::dtype_of<T>(), &size, nullptr, 0});
}
// Gathers a few numbers of each rank: those of `own`, the least id of its candidates, and the greatest plus 1 (0 and 0:
// it has none). Fails if ranks hold the same candidates.
void gather_sizes(const tessera::sdk::ModuleCall& call, std::span<const int64_t> candidates,
                  std::span<const double> own, std::vector<double>* all);

// Rows of all ranks, those of rank r after those of rank r - 1. They stay in a context until backward.
struct AllRows {
  int64_t width = 0;
  int64_t first = 0, own = 0;  // this rank's rows are [first, first + own)
  std::vector<float> states;   // [rows, width]
  LeftOut left_out;            // of each row, the candidates here that are its item
  // Each row has the logarithm of the sum of exp(z) over the candidates of all ranks. ItemLoss adds the row's item to
  // the sums of the own rows.
  std::vector<double> log_sums;

  int64_t count() const { return std::ssize(log_sums); }
};

// The candidates that this rank holds, all borrowed.
struct CandidatesHere {
  int64_t count = 0;
  const float* rows = nullptr;     // [count, width]
  const int64_t* ids = nullptr;    // [count]
  const float* log_q = nullptr;    // [count], taken off the logits; NULL: zeros
  const IdIndex* index = nullptr;  // of `ids`: a candidate that is a row's item is left out; NULL: none is
};

// All functions are collective: the ranks of a call with split candidates call them in the same order. Sums are made in
// an order that only counts decide.
class SplitSoftmax {
 public:
  SplitSoftmax(const TiledSoftmax& tiles, float scale) : tiles_(tiles), scale_(scale) {}

  // Gathers the ranks' rows: `states` [ids.size(), all->width]. Fails if ranks hold the same candidates.
  void gather(const tessera::sdk::ModuleCall& call, const float* states, const std::vector<int64_t>& ids,
              const CandidatesHere& here, AllRows* all);
  // Fills all->log_sums.
  void sum_up(const tessera::sdk::ModuleCall& call, const CandidatesHere& here, AllRows* all);
  // With `factors`, the gradients of the own rows' losses, and log_sums of the own rows that include their items:
  // writes [own rows, width] to `grad_states`, and adds [candidates, width] to `grad_candidates` unless it is NULL.
  void backward(const tessera::sdk::ModuleCall& call, const CandidatesHere& here, const std::vector<float>& factors,
                const AllRows& all, float* grad_states, float* grad_candidates);

 private:
  Compared compared(const CandidatesHere& here, const AllRows& all) const;

  TiledSoftmax tiles_;
  float scale_;
  // These are of one call, and kept so that later calls allocate nothing.
  std::vector<double> sizes_;    // of each rank: its rows, its first candidate, the end of its candidates
  std::vector<double> ids_;      // of the rows' items
  std::vector<double> of_rows_;  // of each row: its factor and log_sum
  std::vector<double> parts_;    // of each rank, the log_sums of its candidates
  std::vector<double> log_sums_;
  std::vector<float> factors_;
  std::vector<float> grads_;  // of all states
};

}  // namespace tessera_dense
