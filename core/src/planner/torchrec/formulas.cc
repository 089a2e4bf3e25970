#include "planner/torchrec/formulas.h"

#include <algorithm>
#include <cmath>

namespace tessera::torchrec {

namespace {

using Combine = ParameterSharding::Combine;
__extension__ using Wide = __int128;

constexpr double kIndexBytes = 8;
constexpr double kCacheRatio = 0.2;
constexpr double kCacheBytesPerRow = 4;  // for fused_uvm_caching's bookkeeping
constexpr double kCacheBytesPerCachedRow = 16;
constexpr double kHalfBlockPenalty = 1.15;     // for at least 64 columns
constexpr double kQuarterBlockPenalty = 1.75;  // for fewer
constexpr double kWeightedKernelFactor = 1.1;
constexpr double kBatchedCopyFactor = 2.455;
constexpr double kElementwiseFactor = 9.22;  // for data-parallel gradients

// compute_kernel, accelerator, in_host_memory, cache_ratio, hbm, uvm, ddr, divisor, infers
constexpr KernelCost kKernels[] = {
    {"dense", false, false, 0, 0, 0, 0.5, 1},
    {"fused", false, false, 0, 0, 0, 1, 1},
    {"quant", false, false, 0, 0, 0, 1, 1, true},
    {"dense", true, false, 0, 0.5, 0, 0, 1},
    {"fused", true, false, 0, 1, 0, 0, 1},
    {"fused_uvm", true, true, 0, 0, 1, 0, 10},
    {"fused_uvm_caching", true, true, kCacheRatio, kCacheRatio, 1 - kCacheRatio, 0, 10},
};

// combine, ids, global_batch, least_width, narrow_penalty, exchange, copies_gradient, reduces_gradient
constexpr LayoutCost kLayouts[] = {
    {Combine::kConcat, IdShare::kAll, true, 32, true, Exchange::kAcrossWorld, false, false},
    {Combine::kSum, IdShare::kOneOfWorld, true, 0, false, Exchange::kAcrossWorld, true, false},
    {Combine::kHostSum, IdShare::kOneOfHost, true, 0, false, Exchange::kInHostThenAcross, true, false},
    {Combine::kDataParallel, IdShare::kAll, false, 0, false, Exchange::kNone, false, true},
};

// Returns ceil(x * part / whole). The quotient is rounded to double first, as in Python's true division.
int64_t share_of(int64_t x, int64_t part, int64_t whole) {
  const Wide product = static_cast<Wide>(x) * part;
  const auto quotient = static_cast<double>(static_cast<int64_t>(product / whole));
  const auto rest = static_cast<double>(static_cast<int64_t>(product % whole));
  return to_bytes(std::ceil(quotient + rest / static_cast<double>(whole)));
}

double divisor_of(IdShare share, const Topology& topology) {
  switch (share) {
    case IdShare::kOneOfWorld:
      return topology.world_size;
    case IdShare::kOneOfHost:
      return topology.local_world_size;
    case IdShare::kAll:
      break;
  }
  return 1;
}

// The bandwidth of an exchange other than all-reduce among `world` ranks, `local` of them per host.
double link_bandwidth(int world, int local, const Topology& topology) {
  return world <= local ? topology.intra_host_bw : topology.inter_host_bw;
}

double narrow_penalty(int64_t cols) {
  return cols >= 128 ? 1.0 : cols >= 64 ? kHalfBlockPenalty : kQuarterBlockPenalty;
}

// The time to average a data-parallel table's gradient.
double gradient_exchange(const Workload& work, const Topology& topology, double bandwidth) {
  const auto table = static_cast<double>(work.rows * work.cols * work.element_bytes);
  const double hosts =
      std::min(static_cast<double>(topology.world_size) / static_cast<double>(topology.local_world_size), 2.0);
  double all_reduce = table * (2 * hosts - 1) / hosts / (topology.inter_host_bw * topology.local_world_size);
  if (topology.world_size > 2 * topology.local_world_size) all_reduce *= 2;
  return all_reduce + table * kElementwiseFactor / bandwidth;
}

}  // namespace

double kernel_bandwidth(const KernelCost& kernel, const Topology& t) {
  return (kernel.hbm * t.hbm_mem_bw + kernel.uvm * t.hbm_to_ddr_mem_bw + kernel.ddr * t.ddr_mem_bw) / kernel.divisor;
}

std::span<const KernelCost> kernel_costs() { return kKernels; }

const KernelCost* kernel_cost(std::string_view compute_kernel, bool accelerator) {
  for (const KernelCost& k : kKernels) {
    if (k.accelerator == accelerator && k.compute_kernel == compute_kernel) return &k;
  }
  return nullptr;
}

const LayoutCost& layout_cost(Combine combine) {
  const auto* found = std::find_if(std::begin(kLayouts), std::end(kLayouts),
                                   [&](const LayoutCost& row) { return row.combine == combine; });
  TESSERA_CHECK(found != std::end(kLayouts), "no cost for combine ", static_cast<int>(combine));
  return *found;
}

Storage shard_storage(const LayoutCost& layout, const KernelCost& kernel, const Workload& work,
                      const Topology& topology, int64_t rows, int64_t cols) {
  const int64_t cells = work.rows * work.cols;
  const int64_t table = cells * work.element_bytes;
  Storage out;
  int64_t& rows_at = topology.accelerator() && !kernel.in_host_memory ? out.hbm : out.ddr;
  rows_at = layout.combine == Combine::kDataParallel ? table : share_of(table, rows * cols, cells);
  if (work.row_format) rows_at = rows * sdk::row_bytes(*work.row_format, cols);  // every shard has scales and biases
  if (kernel.cache_ratio > 0) {
    const int64_t cache = to_bytes(std::nearbyint(kernel.cache_ratio * static_cast<double>(table)));
    out.hbm += share_of(cache, rows * cols, cells);
    out.hbm += to_bytes(
        std::ceil(static_cast<double>(rows) * (kCacheBytesPerRow + kernel.cache_ratio * kCacheBytesPerCachedRow)));
  }
  if (rows == 0) return out;

  const double batches = layout.global_batch ? topology.world_size : 1;
  const double ids = work.ids / divisor_of(layout.ids, topology);
  const double outputs = work.pooled ? work.outputs : ids;
  const int64_t input = to_bytes(std::ceil(ids * batches * kIndexBytes));
  const int64_t output =
      to_bytes(std::ceil(outputs * batches * static_cast<double>(cols) * static_cast<double>(work.element_bytes)));
  const Storage exchanged = topology.accelerator() ? Storage{input, 0, 0} : Storage{0, input, 0};
  const Storage pooled = topology.accelerator() ? Storage{output, 0, 0} : Storage{0, output, 0};
  return (out += exchanged) += pooled;
}

Perf shard_perf(const LayoutCost& layout, const KernelCost& kernel, const Workload& work, const Topology& topology,
                int64_t cols) {
  const double bandwidth = kernel_bandwidth(kernel, topology);
  const double batches = layout.global_batch ? topology.world_size : 1;
  const double share = divisor_of(layout.ids, topology);
  const auto width = static_cast<double>(cols);
  const auto element = static_cast<double>(work.element_bytes);

  double in = std::ceil(work.ids / share * batches * kIndexBytes);
  if (work.weighted) in *= 2;
  const auto read_width = static_cast<double>(std::max(cols, layout.least_width));
  const double stored = work.row_format ? sdk::info_of(*work.row_format).bits / 8.0 : element;
  const double look = work.ids / share * batches * read_width * stored;
  const double out = (work.pooled ? work.outputs : work.outputs / share) * batches * width * element;

  Perf perf;
  const double penalty = layout.narrow_penalty ? narrow_penalty(cols) : 1.0;
  perf.fwd_compute = (in + look + out) * penalty / bandwidth;
  perf.bwd_compute = perf.fwd_compute * topology.bwd_compute_multiplier;
  if (work.weighted) {
    perf.bwd_compute =
        perf.bwd_compute * topology.weighted_feature_bwd_compute_multiplier + perf.fwd_compute * kWeightedKernelFactor;
  }

  const int world = topology.world_size;
  const int local = topology.local_world_size;
  const double across_world = link_bandwidth(world, local, topology);
  if (layout.exchange == Exchange::kAcrossWorld) {
    perf.fwd_comms = perf.bwd_comms = out / across_world;
  } else if (layout.exchange == Exchange::kInHostThenAcross) {
    const int hosts = topology.hosts();
    const double intra = out / link_bandwidth(local, local, topology);
    const double inter = hosts > 1 ? work.outputs * hosts * width * element / link_bandwidth(hosts, 1, topology) : 0.0;
    perf.fwd_comms = intra + inter;
    perf.bwd_comms = inter + intra;
  }
  if (layout.copies_gradient) perf.bwd_comms += out * kBatchedCopyFactor / bandwidth;
  if (layout.reduces_gradient) perf.bwd_comms = gradient_exchange(work, topology, bandwidth);
  if (layout.exchange != Exchange::kNone) {
    perf.input_dist_comms = std::ceil(work.ids * world * kIndexBytes) / across_world;
  }
  if (kernel.infers) perf.bwd_compute = perf.bwd_comms = 0;
  return perf;
}

}  // namespace tessera::torchrec
