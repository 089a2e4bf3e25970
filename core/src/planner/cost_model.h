// The cost of shards: the planner asks, and models answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "planner/compute_kernels.h"
#include "planner/workload.h"
#include "tessera/planner.h"

namespace tessera {

// A table that is planned, with its input.
struct PricedTable {
  EmbeddingBagConfig table;  // of a collection of sequences: pooling kNone
  const ParameterConstraints* constraints = nullptr;
  Workload work;
};

// A rectangle of an option.
struct PricedShard {
  size_t table = 0;  // index into the priced tables
  ParameterSharding::Combine combine = ParameterSharding::Combine::kConcat;
  const ComputeKernel& kernel;
  int64_t rows = 0, cols = 0;
  int64_t pieces = 1;  // of the whole table
};

// The cost on the rank that holds the shard.
struct ShardCost {
  Storage storage;
  Perf perf;
  std::string refusal;  // why the compute kernel does not take such a shard; empty: it does
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  virtual ShardCost cost(const PricedShard& shard) const = 0;
  virtual bool knows(const ComputeKernel& /*kernel*/) const { return true; }
  virtual std::string figures() const = 0;  // PlanResult::figures
};

// PlannerOptions::cost_model by name: kInvalidArgument lists those that exist. All references outlive the model.
std::unique_ptr<CostModel> make_cost_model(const PlannerOptions& options, ComputeKernels& kernels,
                                           const std::vector<PricedTable>& tables);

}  // namespace tessera
