// dynamic: rows are created when they are first looked up, in buckets that evict when they are full.
#include "dynamic.h"

#include <tessera/sdk/cost.h>

namespace extras {

namespace {

TableShape shape_of(const tsr_kernel_table& table, const OptimizerRef& optimizer) {
  Options options(table.options == nullptr ? "{}" : table.options);
  TableShape out(table, optimizer, options);
  options.finish();
  return out;
}

}  // namespace

const void* Dynamic::extension(std::string_view id) const {
  const void* draft = on_demand_extension<DynamicTables>(id);
  return draft != nullptr ? draft : changes_extension<DynamicTables>(id);
}

void Dynamic::supports(const tsr_kernel_config& config) const {
  if (std::string_view(config.compute_kernel) != kComputeKernels[0])
    fail(TSR_UNIMPLEMENTED, "compute kernel \"", config.compute_kernel, "\" is not served, only dynamic");
  if (config.device.device_type != kDLCPU)
    fail(TSR_UNIMPLEMENTED, "device type ", int{config.device.device_type}, " is not served, only the CPU");
  if (!same_dtype(config.weight_dtype, dtype_of<float>()) || !same_dtype(config.output_dtype, dtype_of<float>()))
    fail(TSR_UNIMPLEMENTED, "rows and outputs are float32 in dynamic tables");
  const OptimizerRef optimizer(config.mode == TSR_MODE_TRAIN ? config.optimizer : nullptr);
  if (config.mode == TSR_MODE_TRAIN && !optimizer.updates())
    fail(TSR_UNIMPLEMENTED, "dynamic tables update rows in backward: choose an optimizer that does");
  optimizer.check_states();
  if (!(config.max_gradient >= 0 && std::isfinite(config.max_gradient)))
    fail(TSR_INVALID_ARGUMENT, "max_gradient is ", config.max_gradient, " but must be 0 (off) or positive");
  for (uint32_t t = 0; t < config.num_tables; ++t) {
    const tsr_kernel_table& shard = table_of(config, t);
    if (shard.dim <= 0 || shard.rows < 0)
      fail(TSR_INVALID_ARGUMENT, "table \"", shard.name, "\" has ", shard.rows, " rows of ", shard.dim,
           " columns, but needs at least 0 rows and 1 column");
    if ((shard.poolings & 1u << TSR_POOLING_MAX) != 0)
      fail(TSR_UNIMPLEMENTED, "table \"", shard.name, "\" is pooled by MAX, which dynamic tables do not serve");
    shape_of(shard, optimizer);
  }
}

tsr_estimate Dynamic::estimate(const tsr_kernel_config& config, const tsr_workload& work) const {
  const OptimizerRef optimizer(config.mode == TSR_MODE_TRAIN ? config.optimizer : nullptr);
  const tsr_kernel_table& shard = table_of(config, 0);
  const TableShape shape = shape_of(shard, optimizer);
  const double row = static_cast<double>(work.dim) * sizeof(float);
  const double states = static_cast<double>(shape.row_bytes) - row;
  tsr_workload held = work;
  held.rows = std::min(work.rows, shape.capacity);
  tsr_estimate out{};
  if (work.machine != nullptr) {
    out = estimate_by_figures(*work.machine, held, row, states);
  } else {  // typical figures for a core with AVX-512, and tables larger than the caches
    const double distinct = work.distinct > 0 ? std::min(work.distinct, work.ids) : work.ids;
    const double bags = work.bags * 10e-9 + work.runs * 300e-9;
    out.forward_seconds = work.ids * (18e-9 + row * 0.06e-9) + bags;
    out.backward_seconds = distinct * (15e-9 + row * 0.06e-9) + (work.ids - distinct) * 15e-9 + bags;
  }
  out.struct_size = sizeof(out);
  out.bytes = static_cast<uint64_t>(part_of_shard(shard, work) * static_cast<double>(shape.capacity) *
                                    (row + states + double{Index::kBytes}));
  return out;
}

namespace {

const int32_t* listed_of(const tsr_lookup* lookup) {
  if (!TSR_HAS(tsr_lookup, lookup, output_rows)) return nullptr;
  return elements<const int32_t>(*lookup->output_rows, "output_rows").data();
}

}  // namespace

DynamicTables::DynamicTables(const tsr_kernel_config& config)
    : optimizer_(config.mode == TSR_MODE_TRAIN ? config.optimizer : nullptr),
      max_gradient_(static_cast<float>(config.max_gradient)),
      sum_(choose_sums()),
      walk_(choose_walk()),
      lookups_(config.num_tables),
      hits_(config.num_tables),
      misses_(config.num_tables) {
  int64_t widest = 0;
  for (uint32_t t = 0; t < config.num_tables; ++t) {
    tables_.emplace_back(shape_of(table_of(config, t), optimizer_), t, optimizer_, StartValues(config));
    widest = std::max(widest, tables_.back().dim());
  }
  zeros_.resize(static_cast<size_t>(widest));
}

tsr_kernel_stats DynamicTables::stats(uint32_t table) {
  tsr_kernel_stats out = tables_.at(table).stats();
  out.lookups = lookups_[table];
  out.hits = hits_[table];
  return out;
}

DynamicTables::Batch DynamicTables::read(const tsr_lookup& lookup) {
  const auto wide = [](const DLTensor& tensor, const char* what, std::vector<int64_t>& copy) {
    if (!holds<int32_t>(tensor)) return std::span<const int64_t>(elements<const int64_t>(tensor, what));
    const auto narrow = elements<const int32_t>(tensor, what);
    copy.assign(narrow.begin(), narrow.end());
    return std::span<const int64_t>(copy);
  };
  return {lookup, wide(*lookup.ids, "ids", ids_), wide(*lookup.offsets, "offsets", offsets_),
          lookup.weights == nullptr ? nullptr : elements<const float>(*lookup.weights, "weights").data(),
          listed_of(&lookup)};
}

}  // namespace extras
