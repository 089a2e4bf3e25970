// What shards cost. CostModel is the planner's question; TorchRec's answer is kept as tables of data: one row per
// compute kernel, one per way to combine pieces (tests/conformance/SHARDING.md sections 4 and 5).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/planner.h"

namespace tessera {

// Where a compute kernel keeps its rows and how fast it reads them: (hbm * hbm_mem_bw + uvm * hbm_to_ddr_mem_bw +
// ddr * ddr_mem_bw) / divisor.
struct KernelCost {
  const char* compute_kernel;
  bool accelerator;     // on accelerators, or on the CPU
  bool replicas;        // for layouts whose pieces are replicas, or for all others
  bool in_host_memory;  // rows live in ddr although the device is an accelerator
  double cache_ratio;   // of the rows, additionally in hbm
  double hbm, uvm, ddr, divisor;
  bool infers = false;  // for quantized tables, and for no others; nothing comes back
};

// All kernels for a device and a kind of layout, in TorchRec's order.
std::span<const KernelCost> kernel_costs();

// By what the ids of the global batch are divided before they reach one shard.
enum class IdShare { kAll, kOneOfWorld, kOneOfHost };

// What a forward or backward pass sends.
enum class Exchange { kNone, kAcrossWorld, kInHostThenAcross };

struct LayoutCost {
  ParameterSharding::Combine combine;
  IdShare ids;
  bool global_batch;      // ids of all ranks arrive, or only this rank's own
  int64_t least_width;    // columns that a lookup reads at least
  bool narrow_penalty;    // narrow shards use the memory badly
  Exchange exchange;      // of pooled rows, in both directions
  bool copies_gradient;   // the gathered gradient is copied once more
  bool reduces_gradient;  // instead: all-reduce of the whole table's gradient
};

const LayoutCost& layout_cost(ParameterSharding::Combine combine);

struct TableAndConstraints {
  const EmbeddingBagConfig* table = nullptr;
  const ParameterConstraints* constraints = nullptr;
};

// One table's input.
struct Workload {
  double ids = 0;      // of one rank's batch
  double outputs = 0;  // rows handed out for it: bags, or ids where nothing is pooled
  bool pooled = true;
  bool weighted = false;
  int64_t rows = 0, cols = 0;  // of the table
  int64_t element_bytes = 4;
  std::optional<RowFormat> row_format;  // of quantized tables: outputs have element_bytes all the same
};
Workload workload_of(const EmbeddingBagConfig& table, const ParameterConstraints& constraints, double batch_size);

// Costs of a shard of rows x cols.
Storage shard_storage(const LayoutCost& layout, const KernelCost& kernel, const Workload& work,
                      const Topology& topology, int64_t rows, int64_t cols);
Perf shard_perf(const LayoutCost& layout, const KernelCost& kernel, const Workload& work, const Topology& topology,
                int64_t cols);

// Bytes per millisecond at which a compute kernel reads its rows.
double kernel_bandwidth(const KernelCost& kernel, const Topology& topology);

// A rectangle of an option.
struct PricedShard {
  const EmbeddingBagConfig& table;
  const ParameterConstraints& constraints;
  const Workload& work;
  const LayoutCost& layout;
  const KernelCost& kernel;
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

// `value` as an integer; the largest int64 stands for everything above it.
int64_t to_bytes(double value);

}  // namespace tessera
