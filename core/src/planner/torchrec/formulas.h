// TorchRec's cost model as two tables of data: one has a row per compute kernel, the other a row per way to combine
// shards (tests/conformance/SHARDING.md sections 4 and 5).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "planner/workload.h"
#include "tessera/planner.h"
#include "tessera/sharding.h"

namespace tessera::torchrec {

// The place of a compute kernel's rows and the speed of reading them: (hbm * hbm_mem_bw + uvm * hbm_to_ddr_mem_bw +
// ddr * ddr_mem_bw) / divisor.
struct KernelCost {
  const char* compute_kernel;
  bool accelerator;     // true: for accelerators; false: for the CPU
  bool in_host_memory;  // rows are in ddr although the device is an accelerator
  double cache_ratio;   // share of the rows that are also in hbm
  double hbm, uvm, ddr, divisor;
  bool infers = false;  // only for quantized tables; it has no backward
};

// The compute kernels in TorchRec's order.
std::span<const KernelCost> kernel_costs();
// Returns null if TorchRec has no such compute kernel there.
const KernelCost* kernel_cost(std::string_view compute_kernel, bool accelerator);

// The share of the global batch's ids that reach one shard.
enum class IdShare { kAll, kOneOfWorld, kOneOfHost };

// The bytes that a forward or backward pass sends.
enum class Exchange { kNone, kAcrossWorld, kInHostThenAcross };

struct LayoutCost {
  ParameterSharding::Combine combine;
  IdShare ids;
  bool global_batch;      // true: ids of all ranks arrive; false: only this rank's own
  int64_t least_width;    // a lookup reads at least this many columns
  bool narrow_penalty;    // narrow shards use memory bandwidth badly
  Exchange exchange;      // exchange of pooled rows, in both directions
  bool copies_gradient;   // the gathered gradient is copied once more
  bool reduces_gradient;  // no exchange; instead, the whole table's gradient is all-reduced
};

const LayoutCost& layout_cost(ParameterSharding::Combine combine);

// The costs of a shard of rows x cols.
Storage shard_storage(const LayoutCost& layout, const KernelCost& kernel, const Workload& work,
                      const Topology& topology, int64_t rows, int64_t cols);
Perf shard_perf(const LayoutCost& layout, const KernelCost& kernel, const Workload& work, const Topology& topology,
                int64_t cols);

// Bytes per millisecond at which a compute kernel reads its rows.
double kernel_bandwidth(const KernelCost& kernel, const Topology& topology);

}  // namespace tessera::torchrec
