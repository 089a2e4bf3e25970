// Softmax over candidates that are divided among the ranks: Megatron's vocabulary parallelism.
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
// Gathers a few numbers from each rank: `own`, its smallest candidate's id, and its largest candidate's id plus 1 (0
// and 0 if it has none). Throws Failure if ranks hold the same candidates.
void gather_sizes(const tessera::sdk::ModuleCall& call, std::span<const int64_t> candidates,
                  std::span<const double> own, std::vector<double>* all);

// The rows of all ranks, in the order of the ranks. A context keeps them until backward.
struct AllRows {
  int64_t width = 0;
  int64_t first = 0, own = 0;  // this rank's rows are [first, first + own)
  std::vector<float> states;   // [rows, width]
  LeftOut left_out;            // for each row, this rank's candidates that are the row's item
  // For each row, the logarithm of the sum of exp(z) over the candidates of all ranks. ItemLoss adds the row's item to
  // the sums of this rank's rows.
  std::vector<double> log_sums;

  int64_t count() const { return std::ssize(log_sums); }
};

// The candidates that this rank holds, all borrowed.
struct CandidatesHere {
  int64_t count = 0;
  const float* rows = nullptr;     // [count, width]
  const int64_t* ids = nullptr;    // [count]
  const float* log_q = nullptr;    // [count], subtracted from the logits; NULL: zeros
  const IdIndex* index = nullptr;  // index of `ids`, to leave out candidates that are a row's item; NULL: keeps them
};

// All functions are collective: all ranks of a step call them in the same order. The order of sums depends only on the
// shapes and the number of ranks.
class SplitSoftmax {
 public:
  SplitSoftmax(const TiledSoftmax& tiles, float scale) : tiles_(tiles), scale_(scale) {}

  // Gathers the rows of all ranks. `states` [ids.size(), all->width] has this rank's. Throws Failure if ranks hold the
  // same candidates.
  void gather(const tessera::sdk::ModuleCall& call, const float* states, const std::vector<int64_t>& ids,
              const CandidatesHere& here, AllRows* all);
  // Fills all->log_sums.
  void sum_up(const tessera::sdk::ModuleCall& call, const CandidatesHere& here, AllRows* all);
  // Writes the gradient of this rank's states, [all.own, width], to `grad_states`, and adds that of its candidates,
  // [here.count, width], to `grad_candidates` unless it is NULL. `factors` has the gradients of this rank's losses, and
  // log_sums of its rows must include their items.
  void backward(const tessera::sdk::ModuleCall& call, const CandidatesHere& here, const std::vector<float>& factors,
                const AllRows& all, float* grad_states, float* grad_candidates);

 private:
  Compared compared(const CandidatesHere& here, const AllRows& all) const;

  TiledSoftmax tiles_;
  float scale_;
  // Scratch of a call, kept so that later calls allocate nothing.
  std::vector<double> sizes_;    // for each rank: its number of rows, first candidate, and end of its candidates
  std::vector<double> ids_;      // for each row, the id of its item
  std::vector<double> of_rows_;  // for each row, its factor and its log_sum
  std::vector<double> parts_;    // for each rank, the log_sums over its candidates
  std::vector<double> log_sums_;
  std::vector<float> factors_;
  std::vector<float> grads_;  // gradients of all states
};

}  // namespace tessera_dense
