// The ranks of items among all candidates, by a model's states.
#pragma once

#include <vector>

#include "item_loss.h"

namespace tessera_dense {

// "item_ranks": the place, from 1, of items in the order of q . row over all candidates; of equal scores the lower id
// is first. Inputs: states (one row for each sample, or sequences, whose last rows are taken), the rows of all
// candidates of the batch, ids of the items for each sample, the candidates' ids, and, with the option "seen", a
// sequence of ids that do not take part. 0: the item does not take part, because it was seen or is no candidate; -1:
// the sample has no item. Options: "items": "last", one value for the sample's last id (default), or "all", one for
// each id; "ties": "lower_id" or "last", behind all of equal score. While training it gives zeros, because nobody reads
// them. The ranks may hold the candidates together: each counts among its own, and they add up.
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
  // Ranks of the call's samples, in the order of the items' ids.
  void rank_alone(const Work& work, float* out);
  void rank_together(const tessera::sdk::ModuleCall& call, const Work& own, float* out);
  void gather(const tessera::sdk::ModuleCall& call, const Work& own, Gathered* all);
  // Scores of the samples [first, last): [last - first, work.count].
  void score(const Work& work, int64_t first, int64_t last, float* scores) const;
  // The candidate with this id; -1: there is none.
  int64_t place_of(const Work& work, int64_t id) const;
  // How many candidates that take part are before the item with the id, whose score is `own`.
  int64_t count_before(const Work& work, const float* scores, int64_t sample, int64_t id, float own) const;

  tessera::sdk::Host host_;
  bool all_, ties_last_, seen_;
  std::vector<int64_t> ids_;  // of the candidates
  IdIndex index_;
  Floats states_, scratch_;
};

}  // namespace tessera_dense
