// The interface of cost models, which the planner asks for the cost of shards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "planner/compute_kernels.h"
#include "planner/workload.h"
#include "tessera/planner.h"

namespace tessera {

// A table to plan, with its input.
struct PricedTable {
  EmbeddingBagConfig table;  // in a collection of sequences, its pooling is kNone
  const ParameterConstraints* constraints = nullptr;
  Workload work;
};

// A rectangle of an option.
struct PricedShard {
  size_t table = 0;  // index into the priced tables
  ParameterSharding::Combine combine = ParameterSharding::Combine::kConcat;
  const ComputeKernel& kernel;
  int64_t rows = 0, cols = 0;
  int64_t pieces = 1;  // number of rectangles of the table, without replicated ones
};

// The cost of a shard on the rank that holds it.
struct ShardCost {
  Storage storage;
  Perf perf;
  std::string refusal;  // why the compute kernel refuses the shard; empty if it does not
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  virtual ShardCost cost(const PricedShard& shard) const = 0;
  virtual bool knows(const ComputeKernel& /*kernel*/) const { return true; }
  virtual std::string figures() const = 0;  // PlanResult::figures
};

// Makes the model that PlannerOptions::cost_model names. Throws kInvalidArgument, which lists the names, for any other.
// All references must outlive the model.
std::unique_ptr<CostModel> make_cost_model(const PlannerOptions& options, ComputeKernels& kernels,
                                           const std::vector<PricedTable>& tables);

}  // namespace tessera
