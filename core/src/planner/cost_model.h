// What shards cost: the planner's question, which models answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "planner/torchrec/formulas.h"
#include "planner/workload.h"
#include "tessera/planner.h"

namespace tessera {

struct TableAndConstraints {
  const EmbeddingBagConfig* table = nullptr;
  const ParameterConstraints* constraints = nullptr;
};

// A rectangle of an option.
struct PricedShard {
  const EmbeddingBagConfig& table;
  const ParameterConstraints& constraints;
  const Workload& work;
  const torchrec::LayoutCost& layout;
  const torchrec::KernelCost& kernel;
  int64_t rows = 0, cols = 0;
  int64_t pieces = 1;  // of the whole table
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  virtual Storage storage(const PricedShard& shard) const = 0;
  virtual Perf perf(const PricedShard& shard) const = 0;  // of the rank that holds it, milliseconds
};

// PlannerOptions::cost_model by name: kInvalidArgument lists those that exist. All references outlive the model.
std::unique_ptr<CostModel> make_cost_model(const Runtime& runtime, const PlannerOptions& options,
                                           const std::vector<TableAndConstraints>& tables);

}  // namespace tessera
