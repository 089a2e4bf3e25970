// The ranks of items among all candidates, by the scores that a model's states give them.
#pragma once

#include <vector>

#include "item_loss.h"

namespace tessera_dense {

// "item_ranks": the place, from 1, of an item if all candidates are ordered by their score q . row, highest first.
// Inputs: states q (one row for each sample, or sequences, whose last rows are taken), the rows of all candidates of
// the batch, ids of the items for each sample, the candidates' ids, and, with the option "seen", a sequence of ids to
// leave out. The place is 0 if the item was left out or is no candidate, and -1 if the sample has no item. Options:
// "items": "last" (default), one value for the sample's last id, or "all", one for each id; "ties": an item is placed
// among equal scores by "lower_id", or "last". In training the output is zeros, because nobody reads it. If ranks hold
// different candidates, each counts among its own, and the counts are summed.
class ItemRanks : public tessera::sdk::Module {
 public:
  static constexpr uint32_t kFlags = TSR_MODULE_SUMS_OVER_RANKS;
  static constexpr bool kTakesSplit = true;
  explicit ItemRanks(const tessera::sdk::Setup& setup);

  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context*) override;

 private:
  struct Work;
  struct Gathered;
  // Both write the places of this rank's items, in the order of the items' ids.
  void rank_alone(const Work& work, float* out);
  void rank_together(const tessera::sdk::ModuleCall& call, const Work& own, float* out);
  void gather(const tessera::sdk::ModuleCall& call, const Work& own, Gathered* all);
  // Scores of the samples [first, last): [last - first, work.count].
  void score(const Work& work, int64_t first, int64_t last, float* scores) const;
  // The candidate with this id; -1: there is none.
  int64_t place_of(const Work& work, int64_t id) const;
  // The number of candidates, without those seen, before the item with this id and the score `own`.
  int64_t count_before(const Work& work, const float* scores, int64_t sample, int64_t id, float own) const;

  tessera::sdk::Host host_;
  DrawnInputs drawn_;
  bool all_, ties_last_, seen_;
  std::vector<int64_t> ids_;  // ids of the candidates
  IdIndex index_;
  Floats states_, scratch_;
};

}  // namespace tessera_dense
