// dynamic: rows that come into being when they are first asked for, in buckets that evict when they are full.
#include "dynamic.h"

#include <tessera/abi/draft/table_extra.h>
#include <tessera/sdk/cost.h>

#include "hash.h"

namespace flagships {

namespace {

DynamicTables& tables_of(void* instance) {
  return static_cast<DynamicTables&>(*static_cast<KernelInstance*>(instance));
}
tsr_code save_extra(void* instance, uint32_t table, const tsr_stream_io* io, tsr_error* err) noexcept {
  return guard(err, [&] { tables_of(instance).save_extra(table, *io); });
}
tsr_code add_extra(void* instance, uint32_t table, const tsr_stream_io* io, tsr_error* err) noexcept {
  return guard(err, [&] { tables_of(instance).add_extra(table, *io); });
}

}  // namespace

const void* Dynamic::extension(std::string_view id) const {
  static constexpr tsr_table_extra kExtra{sizeof(tsr_table_extra), 0, &flagships::save_extra, &flagships::add_extra};
  return id == TSR_TABLE_EXTRA ? &kExtra : nullptr;
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
    const TableShape shape(shard, optimizer);
  }
}

tsr_estimate Dynamic::estimate(const tsr_kernel_config& config, const tsr_workload& work) const {
  const OptimizerRef optimizer(config.mode == TSR_MODE_TRAIN ? config.optimizer : nullptr);
  const TableShape shape(table_of(config, 0), optimizer);
  const double row = static_cast<double>(work.dim) * sizeof(float);
  const double states = static_cast<double>(shape.row_bytes) - row;
  tsr_workload held = work;
  held.rows = std::min(work.rows, shape.capacity);
  tsr_estimate out{};
  if (work.machine != nullptr) {
    out = estimate_by_figures(*work.machine, held, row, states);
  } else {  // typical figures, of a core with AVX-512 and tables that no cache holds
    const double distinct = work.distinct > 0 ? std::min(work.distinct, work.ids) : work.ids;
    const double bags = work.bags * 10e-9 + work.runs * 300e-9;
    out.forward_seconds = work.ids * (18e-9 + row * 0.06e-9) + bags;
    out.backward_seconds = distinct * (15e-9 + row * 0.06e-9) + (work.ids - distinct) * 15e-9 + bags;
  }
  out.struct_size = sizeof(out);
  out.bytes = static_cast<uint64_t>(static_cast<double>(held.rows) * (row + states + double{Index::kBytes}));
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
      lookups_(config.num_tables),
      hits_(config.num_tables),
      misses_(config.num_tables) {
  int64_t widest = 0;
  for (uint32_t t = 0; t < config.num_tables; ++t) {
    tables_.emplace_back(TableShape(table_of(config, t), optimizer_), t, optimizer_, StartValues(config));
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

void DynamicTables::forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context** context) {
  const Batch batch = read(lookup);
  const bool trains = (lookup.flags & TSR_LOOKUP_READ_ONLY) == 0;
  if (context != nullptr && free_.empty()) free_.push_back(&places_.emplace_back());
  Places& places = context == nullptr ? without_context_ : *free_.back();
  places.slots.resize(batch.ids.size());
  places.rows.resize(batch.ids.size());
  for (auto& misses : misses_) misses.clear();
  if (trains) {
    for (Table& table : tables_) table.begin_step(static_cast<uint32_t>(lookup.step), lookup.time);
  }
  for (uint32_t f = 0; f < lookup.num_features; ++f) find(batch, feature_of(lookup, f), trains, places);
  if (trains) insert(batch, places);
  places.evictions.clear();
  for (const Table& table : tables_) places.evictions.push_back(table.evictions());
  for (uint32_t f = 0; f < lookup.num_features; ++f) {
    const tsr_lookup_feature& feature = feature_of(lookup, f);
    if (feature.bags > 0) pool(batch, feature, places, data_as<float>(output_of(lookup, feature, output)));
  }
  if (context == nullptr) return;
  free_.pop_back();
  *context = reinterpret_cast<tsr_context*>(&places);
}

void DynamicTables::release(tsr_context* context) noexcept { free_.push_back(reinterpret_cast<Places*>(context)); }

// Slots of a feature's ids, by pieces whose slots are on their way while others are looked at.
void DynamicTables::find(const Batch& batch, const tsr_lookup_feature& feature, bool trains, Places& places) {
  if (feature.pooling == TSR_POOLING_MAX) fail(TSR_UNIMPLEMENTED, "dynamic tables have no MAX pooling");
  if (feature.bags == 0) return;
  constexpr int64_t kPiece = 128;
  const auto t = static_cast<size_t>(feature.table);
  Table& table = tables_[t];
  const auto step = static_cast<uint32_t>(batch.lookup.step);
  Key keys[kPiece];
  uint32_t guesses[kPiece];
  const int64_t last = batch.begin(feature, feature.bags);
  lookups_[t] += static_cast<uint64_t>(last - batch.begin(feature, 0));
  for (int64_t first = batch.begin(feature, 0); first < last; first += kPiece) {
    const int64_t count = std::min(kPiece, last - first);
    for (int64_t i = 0; i < count; ++i) {
      keys[i] = table.key(batch.ids[static_cast<size_t>(first + i)]);
      table.index().prefetch(keys[i]);
    }
    for (int64_t i = 0; i < count; ++i) guesses[i] = table.index().guess(keys[i]);
    for (int64_t i = 0; i < count; ++i) {
      uint32_t slot = guesses[i];
      if (slot == kNone || table.index().slot(slot).id != keys[i].id) slot = table.index().find(keys[i]);
      const bool there = slot != kNone && (trains || !table.index().expired(table.index().slot(slot).step, step));
      places.slots[static_cast<size_t>(first + i)] = there ? slot : kNone;
      places.rows[static_cast<size_t>(first + i)] = there ? table.index().slot(slot).row : kNone;
      hits_[t] += there ? 1 : 0;
      if (!trains) continue;
      if (there)
        table.touch(slot, step);
      else
        misses_[t].push_back({keys[i], first + i});
    }
  }
}

void DynamicTables::insert(const Batch& batch, Places& places) {
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (misses_[t].empty()) continue;
    tables_[t].insert(misses_[t], static_cast<uint32_t>(batch.lookup.step), [&](int64_t position, uint32_t slot) {
      places.slots[static_cast<size_t>(position)] = slot;
      places.rows[static_cast<size_t>(position)] = tables_[t].index().slot(slot).row;
    });
  }
}

// A row, or what an id without one has instead: a place in absent_, which has room for it.
const float* DynamicTables::row_or_absent(const Batch& batch, Table& table, const Places& places, int64_t position,
                                          size_t taken) {
  const auto p = static_cast<size_t>(position);
  if (places.rows[p] != kNone) return table.row(places.rows[p]);
  if (!table.shape().policy.start_values || (batch.lookup.flags & TSR_LOOKUP_READ_ONLY) != 0) return zeros_.data();
  float* const out = absent_.data() + taken;
  table.start_values(batch.ids.subspan(p, 1), out);
  return out;
}

void DynamicTables::pool(const Batch& batch, const tsr_lookup_feature& feature, const Places& places, float* output) {
  Table& table = tables_[static_cast<size_t>(feature.table)];
  const int64_t first = batch.begin(feature, 0), count = batch.begin(feature, feature.bags) - first;
  const int64_t dim = table.dim();
  if (table.shape().policy.start_values) absent_.resize(static_cast<size_t>(count * dim));
  addresses_.resize(static_cast<size_t>(count + kRowsAhead));
  for (int64_t i = 0; i < count; ++i) {
    addresses_[static_cast<size_t>(i)] = row_or_absent(batch, table, places, first + i, static_cast<size_t>(i * dim));
  }
  std::fill_n(addresses_.begin() + count, kRowsAhead, zeros_.data());
  const float* weights = batch.weights == nullptr ? nullptr : batch.weights + first;
  if (feature.pooling == TSR_POOLING_NONE) {
    for (int64_t i = 0; i < count; ++i) {
      sum_(addresses_.data() + i, weights == nullptr ? nullptr : weights + i, 1, dim,
           output + feature.output_offset + i * feature.output_stride);
    }
    return;
  }
  for (int64_t b = 0; b < feature.bags; ++b) {
    const int64_t begin = batch.begin(feature, b) - first, length = batch.begin(feature, b + 1) - first - begin;
    float* const out = output + batch.output(feature, b);
    sum_(addresses_.data() + begin, weights == nullptr ? nullptr : weights + begin, length, dim, out);
    if (feature.pooling != TSR_POOLING_MEAN || length < 2) continue;
    for (int64_t d = 0; d < dim; ++d) out[d] /= static_cast<float>(length);
  }
}

}  // namespace flagships

TESSERA_PLUGIN("dynamic", "1.0.0",
               tessera::sdk::component<flagships::Dynamic>(
                   {.id = "dynamic", .version = "1.0.0", .about = "rows on demand, evicted where there is no room"}),
               tessera::sdk::component<flagships::Hash>(
                   {.id = "hash", .version = "1.0.0", .about = "whole buckets of ids on each rank"}));
