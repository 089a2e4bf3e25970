#include "quant_instance.h"

#include <algorithm>
#include <atomic>

namespace tessera_cpu {
namespace {

// A call with less work than this uses only its own thread, because waking others would cost more.
constexpr int64_t kBytesWorthThreads = 64 << 10;
// The number of ids of the next feature that are prefetched during the current one. Features of single requests often
// have no more.
constexpr int64_t kFirstRows = 16;

}  // namespace

QuantInstance::QuantInstance(sdk::Host host, const QuantOps& ops, Config config, sdk::RowFormat format)
    : host_(host), ops_(ops), config_(std::move(config)), format_(format), lookups_(config_.tables.size()) {
  tables_.reserve(config_.tables.size());
  for (const TableSpec& t : config_.tables) tables_.emplace_back(host, t, format);
}

void QuantInstance::look_up(const Batch& batch, const ForwardItem& item) {
  const tsr_lookup_feature& feature = batch.feature(item.feature);
  StoredTable& table = tables_[static_cast<size_t>(feature.table)];
  const bool sequence = feature.pooling == TSR_POOLING_NONE;
  const int64_t first = feature.first_offset + item.begin;
  const int64_t begin = batch.offsets[first];
  const int64_t output_row = sequence ? begin - batch.begin(feature) : item.begin;
  StoredPool pool{};
  pool.table = table.rows();
  pool.row_bytes = table.stride();
  pool.data_bytes = table.data_bytes();
  pool.dim = table.dim();
  pool.ids = batch.ids.data<void>();
  pool.wide_offsets = batch.offsets.wide();
  pool.offsets = sequence ? nullptr : batch.offsets.data<char>() + first * (pool.wide_offsets ? 8 : 4);
  pool.mean = feature.pooling == TSR_POOLING_MEAN;
  pool.begin = begin;
  pool.ids_end = batch.offsets[feature.first_offset + item.end];
  pool.bags = sequence ? pool.ids_end - begin : item.end - item.begin;
  pool.ahead = rows_ahead(pool.data_bytes);
  pool.weights = batch.weights;
  pool.storage = config_.output;
  pool.output_bytes = feature.output_stride * bytes_of(config_.output);
  pool.rows = batch.rows(feature);
  pool.output = batch.values(feature) + (pool.rows == nullptr ? output_row * pool.output_bytes : 0);
  if (pool.rows != nullptr) pool.rows += item.begin;
  ops_.pool(format_, batch.ids.wide(), pool.dim)(pool);
}

// Inlining is forced, because GCC 12 drops calls of functions that only prefetch.
[[gnu::always_inline]] inline void QuantInstance::prefetch_first(const Batch& batch,
                                                                 const tsr_lookup_feature& feature) {
  if (feature.bags == 0) return;
  StoredTable& table = tables_[static_cast<size_t>(feature.table)];
  const char* rows = table.rows();
  const int64_t begin = batch.begin(feature), end = std::min(batch.end(feature), begin + kFirstRows);
  for (int64_t p = begin; p < end; ++p) {
    const char* row = rows + batch.ids[p] * table.stride();
    for (int64_t at = 0; at + 8 < table.data_bytes(); at += 64) __builtin_prefetch(row + at, 0, 3);
    __builtin_prefetch(row + table.data_bytes() - 1, 0, 3);
  }
}

void QuantInstance::forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context** context) {
  if (context != nullptr) sdk::fail(TSR_FAILED_PRECONDITION, "the kernel quant only infers: no backward can follow");
  const Batch batch(lookup, config_, output);
  for (uint32_t f = 0; f < batch.num_features(); ++f) {
    const tsr_lookup_feature& feature = batch.feature(f);
    if (feature.pooling == TSR_POOLING_MAX) {
      sdk::fail(TSR_UNIMPLEMENTED, "lookup feature ", f, ": the kernel quant pools by SUM or MEAN, not by MAX");
    }
    if (feature.bags == 0) continue;
    lookups_[static_cast<size_t>(feature.table)] += static_cast<uint64_t>(batch.end(feature) - batch.begin(feature));
    (void)tables_[static_cast<size_t>(feature.table)].rows();  // allocates them before several threads need them
  }
  const auto row_bytes = [&](size_t table) { return tables_[table].stride(); };
  if (cut_forward(batch, host_.num_threads(), kBytesWorthThreads, row_bytes, items_)) {
    std::atomic<size_t> next{0};
    host_.parallel_for(std::min<size_t>(host_.num_threads(), items_.size()), [&](uint64_t) {
      for (size_t i = next.fetch_add(1); i < items_.size(); i = next.fetch_add(1)) look_up(batch, items_[i]);
    });
    return;
  }
  for (uint32_t f = 0; f < batch.num_features(); ++f) {
    if (f + 1 < batch.num_features()) prefetch_first(batch, batch.feature(f + 1));
    if (batch.feature(f).bags > 0) look_up(batch, {f, 0, batch.feature(f).bags});
  }
}

tsr_kernel_stats QuantInstance::stats(uint32_t table) {
  tsr_kernel_stats out{};
  out.weight_bytes = tables_.at(table).weight_bytes();
  out.rows_in_use = static_cast<uint64_t>(tables_.at(table).num_rows());
  out.lookups = out.hits = lookups_.at(table);
  return out;
}

}  // namespace tessera_cpu
