// tiered: a compute kernel, "key_value", for tables larger than memory. Rows are in files on a local disk. Rows in use
// are cached in the tables of another kernel, which does all sums and updates.
#include "tiered.h"

#include <tessera/abi/draft/prefetch.h>
#include <tessera/sdk/cost.h>
#include <tessera/sdk/plain_lookup.h>
#include <tessera/sdk/plugin.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace extras {
namespace {

using sdk::data_as;
using sdk::fail;
using sdk::feature_of;
using sdk::integer_at;
using sdk::OptimizerRef;
using sdk::table_of;

constexpr int64_t kRowsAtOnce = 4096;  // rows per block in export and import

OptimizerRef optimizer_of(const tsr_kernel_config& config) {
  return OptimizerRef(config.mode == TSR_MODE_TRAIN ? config.optimizer : nullptr);
}

TierOptions options_of(const tsr_kernel_table& table, TierOptions all) {
  sdk::Options own(table.options == nullptr ? "{}" : table.options);
  all.read(own);
  own.finish();
  return all;
}

tsr_code prefetch(void* instance, const tsr_lookup* lookup, tsr_stream stream, tsr_error* err) noexcept {
  return sdk::guard(err, [&] {
    if (stream != nullptr) sdk::fail(TSR_UNIMPLEMENTED, "rows are prefetched by ids in host memory only");
    static_cast<TieredTables&>(*static_cast<sdk::KernelInstance*>(instance)).prefetch(sdk::read_struct(*lookup));
  });
}

}  // namespace

void TierOptions::read(sdk::Options& options) {
  file.directory = options.string("directory", file.directory);
  file.io = options.string("io", file.io);
  file.depth = options.integer("depth", file.depth);
  shared = options.flag("shared", shared);
  cache_mib = options.number("cache_mib", cache_mib);
  cache_rows = options.integer("cache_rows", options.has("cache_mib") ? 0 : cache_rows);
  if (file.io != "auto" && file.io != "uring" && file.io != "threads")
    fail(TSR_INVALID_ARGUMENT, "io is \"", file.io, "\", but must be \"auto\", \"uring\" or \"threads\"");
  if (file.depth < 1 || file.depth > 4096)
    fail(TSR_INVALID_ARGUMENT, "depth is ", file.depth, ", but 1 to 4096 requests can be under way");
  if (!(cache_mib > 0) || cache_rows < 0)
    fail(TSR_INVALID_ARGUMENT, "a cache of ", cache_mib, " MiB or ", cache_rows, " rows is too small");
}

int64_t TierOptions::slots(int64_t rows, const RecordShape& record) const {
  constexpr double kMost = 4e9;
  const double wanted = cache_rows > 0 ? static_cast<double>(cache_rows)
                                       : std::ceil(cache_mib * (1 << 20) / static_cast<double>(record.bytes()));
  return std::min(rows, static_cast<int64_t>(std::min(wanted, kMost)));
}

TieredTables::TieredTables(const sdk::InnerKernel& inner, const tsr_kernel_config& config,
                           std::span<const TierOptions> options) {
  const OptimizerRef optimizer = optimizer_of(config);
  const sdk::StartValues start(config);
  struct Group {
    uint32_t first;  // index of its first table
    TierOptions options;
    Tier::Options tier;
  };
  std::vector<Group> groups;
  std::vector<size_t> group_of;
  for (uint32_t t = 0; t < config.num_tables; ++t) {
    const tsr_kernel_table& table = table_of(config, t);
    const TierOptions& own = options[t];
    const RecordShape record(table.dim, optimizer);
    const auto joins = [&](const Group& g) {
      return own.shared && g.options.shared && g.tier.record.dim() == table.dim && g.options.file == own.file;
    };
    auto group = std::find_if(groups.begin(), groups.end(), joins);
    if (group == groups.end()) {
      groups.push_back({t, own, {{}, 0, record, own.file}});
      group = groups.end() - 1;
    }
    const int64_t first =
        group->tier.tables.empty() ? 0 : group->tier.tables.back().first + group->tier.tables.back().rows;
    group->tier.tables.push_back({table.name, t, table.rows, first});
    group->tier.slots += own.slots(table.rows, record);
    group_of.push_back(static_cast<size_t>(group - groups.begin()));
  }
  for (Group& group : groups) {
    const sdk::InnerConfig of_cache(config, table_of(config, group.first), group.tier.slots);
    tiers_.push_back(std::make_unique<Tier>(std::move(group.tier), sdk::InnerInstance(inner, of_cache.raw), start));
  }
  std::vector<size_t> seen(tiers_.size());
  for (const size_t g : group_of) tables_.push_back({tiers_[g].get(), seen[g]++});
}

void TieredTables::rows_of(const tsr_lookup& lookup, const sdk::InnerAsk& ask, std::vector<int64_t>& rows) const {
  ask.read_ids(lookup, rows);
  const int64_t first = tables_[ask.table].in_tier().first;
  if (first == 0) return;
  for (int64_t& row : rows) row += first;
}

void TieredTables::forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, tsr_context** context) {
  if (context == nullptr) {
    std::vector<tsr_lookup_feature> features;
    for (uint32_t t = 0; t < tables_.size(); ++t) {
      if (!passing_.take(lookup, t)) continue;
      features.swap(passing_.features);
      for (const tsr_lookup_feature& feature : features) pass(lookup, output, stream, feature);
    }
    return writer_.look();
  }
  auto kept = std::make_unique<Context>();
  try {
    keep(lookup, output, stream, *kept);
    writer_.look();
  } catch (...) {
    end(*kept);
    throw;
  }
  *context = reinterpret_cast<tsr_context*>(kept.release());
}

void TieredTables::keep(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, Context& context) {
  for (uint32_t t = 0; t < tables_.size(); ++t) {
    Kept asked;
    if (!asked.take(lookup, t)) continue;
    Kept& kept = context.tables.emplace_back(std::move(asked));
    rows_of(lookup, kept, asked_);
    kept.rows.resize(asked_.size());
    Tier& tier = *tables_[t].tier;
    tier.take(asked_, true, kept.rows.data(), kept.pinned);
    tier.inner().forward(inner_lookup_.of(lookup, kept), output, stream, &kept.context);
  }
}

// Looks up without a backward, with as many bags at a time as certainly fit into the cache.
void TieredTables::pass(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream,
                        const tsr_lookup_feature& feature) {
  Tier& tier = *tables_[passing_.table].tier;
  const auto offset = [&](int64_t bag) { return integer_at(*lookup.offsets, feature.first_offset + bag); };
  for (int64_t begin = 0; begin < feature.bags;) {
    int64_t end = begin + 1;
    while (end < feature.bags && offset(end + 1) - offset(begin) <= tier.slots()) ++end;
    tsr_lookup_feature part = feature;
    part.bags = end - begin;
    part.first_offset += begin;
    const int64_t rows = feature.pooling == TSR_POOLING_NONE ? offset(begin) - offset(0) : begin;
    if (feature.pooling == TSR_POOLING_NONE || feature.listed == 0) part.output_offset += rows * feature.output_stride;
    passing_.features.assign(1, part);
    rows_of(lookup, passing_, asked_);
    passing_.rows.resize(asked_.size());
    passing_.pinned.clear();
    try {
      tier.take(asked_, (lookup.flags & TSR_LOOKUP_READ_ONLY) == 0, passing_.rows.data(), passing_.pinned);
      tier.inner().forward(inner_lookup_.of(lookup, passing_), output, stream, nullptr);
    } catch (...) {
      tier.release(passing_.pinned);
      throw;
    }
    tier.release(passing_.pinned);
    begin = end;
  }
}

void TieredTables::backward(tsr_context* context, const tsr_backward& args, tsr_stream stream) {
  for (Kept& kept : reinterpret_cast<Context*>(context)->tables) {
    Tier& tier = *tables_[kept.table].tier;
    tier.changed(kept.pinned);
    const tsr_lookup lookup = inner_lookup_.of(*args.lookup, kept);
    tsr_backward inner = sdk::read_struct(args);
    inner.lookup = &lookup;
    tier.inner().backward(kept.context, inner, stream);
  }
}

void TieredTables::end(Context& context) noexcept {
  for (Kept& kept : context.tables) {
    Tier& tier = *tables_[kept.table].tier;
    if (kept.context != nullptr) tier.inner().release(kept.context);
    tier.release(kept.pinned);
  }
}

void TieredTables::release(tsr_context* context) noexcept {
  const std::unique_ptr<Context> spent(reinterpret_cast<Context*>(context));
  end(*spent);
}

void TieredTables::prefetch(const tsr_lookup& lookup) {
  for (uint32_t t = 0; t < tables_.size(); ++t) {
    if (!early_ask_.take(lookup, t)) continue;
    rows_of(lookup, early_ask_, early_);
    tables_[t].tier->prefetch(early_);
  }
}

void TieredTables::read_records(uint32_t t, std::span<const int64_t> rows, float* records) {
  moved_.assign(rows.begin(), rows.end());
  for (int64_t& row : moved_) row += tables_.at(t).in_tier().first;
  tables_[t].tier->read(moved_, records);
}

void TieredTables::write_records(uint32_t t, std::span<const int64_t> rows, const float* records) {
  moved_.assign(rows.begin(), rows.end());
  for (int64_t& row : moved_) row += tables_.at(t).in_tier().first;
  tables_[t].tier->write(moved_, records);
}

uint64_t TieredTables::in_memory(uint32_t t, std::span<const int64_t> rows) {
  moved_.assign(rows.begin(), rows.end());
  for (int64_t& row : moved_) row += tables_.at(t).in_tier().first;
  return tables_[t].tier->in_memory(moved_);
}

void TieredTables::prefetch_rows(uint32_t t, std::span<const int64_t> rows) {
  early_.assign(rows.begin(), rows.end());
  for (int64_t& row : early_) row += tables_.at(t).in_tier().first;
  tables_[t].tier->prefetch(early_);
}

void TieredTables::check(const Table& table, const tsr_rows& rows) const {
  if (rows.num_states != 0 && rows.num_states != table.record().states())
    fail(TSR_INVALID_ARGUMENT, "table \"", table.in_tier().name, "\" has ", table.record().states(),
         " optimizer states, not ", rows.num_states);
}

// Reads the records of rows [first, first + count).
void TieredTables::read(const Table& table, int64_t first, int64_t count) {
  read_.resize(static_cast<size_t>(count));
  std::iota(read_.begin(), read_.end(), table.in_tier().first + first);
  records_.resize(static_cast<size_t>(count * table.record().floats()));
  table.tier->read(read_, records_.data());
}

void TieredTables::export_rows(uint32_t t, uint64_t& cursor, tsr_rows& rows) {
  const Table& table = tables_.at(t);
  const int64_t all = table.in_tier().rows;
  check(table, rows);
  const auto first = static_cast<int64_t>(std::min<uint64_t>(cursor, static_cast<uint64_t>(all)));
  read(table, first, std::min({sdk::numel(*rows.ids), all - first, kRowsAtOnce}));
  hand_out(table, rows);
  cursor += static_cast<uint64_t>(rows.count);
}

void TieredTables::mark(uint32_t follower) {
  for (const auto& tier : tiers_) tier->start_marks(follower);
}

sdk::RowChanges TieredTables::changes(uint32_t follower, uint32_t t) {
  const TierTable& own = tables_.at(t).in_tier();
  const sdk::RowMarks& marks = tables_[t].tier->marks();
  sdk::RowChanges out;
  const int64_t end = own.first + own.rows;
  for (int64_t row = own.first; (row = marks.next(follower, row)) >= 0 && row < end; ++row) ++out.changed;
  return out;
}

void TieredTables::export_changed(uint32_t follower, uint32_t t, uint64_t& cursor, tsr_rows& rows) {
  const Table& table = tables_.at(t);
  const TierTable& own = table.in_tier();
  const sdk::RowMarks& marks = table.tier->marks();
  check(table, rows);
  const int64_t most = std::min(sdk::numel(*rows.ids), kRowsAtOnce), end = own.first + own.rows;
  int64_t next = own.first + static_cast<int64_t>(std::min<uint64_t>(cursor, static_cast<uint64_t>(own.rows)));
  read_.clear();
  while (std::ssize(read_) < most && (next = marks.next(follower, next)) >= 0 && next < end) read_.push_back(next++);
  records_.resize(read_.size() * static_cast<size_t>(table.record().floats()));
  table.tier->read(read_, records_.data());
  hand_out(table, rows);
  cursor = static_cast<uint64_t>(next < 0 ? own.rows : next - own.first);
}

// Hands out the rows that were read.
void TieredTables::hand_out(const Table& table, tsr_rows& rows) {
  rows.count = std::ssize(read_);
  for (int64_t i = 0; i < rows.count; ++i) {
    const float* record = records_.data() + i * table.record().floats();
    data_as<int64_t>(*rows.ids)[i] = read_[static_cast<size_t>(i)] - table.in_tier().first;
    std::copy_n(record, table.record().dim(), data_as<float>(*rows.weights) + i * table.record().dim());
    record += table.record().dim();
    for (uint32_t k = 0; k < rows.num_states; record += table.record().width(k++))
      std::copy_n(record, table.record().width(k), data_as<float>(*rows.states[k]) + i * table.record().width(k));
  }
}

void TieredTables::import_rows(uint32_t t, const tsr_rows& rows) {
  const Table& table = tables_.at(t);
  const auto [all, start] = std::pair(table.in_tier().rows, table.in_tier().first);
  check(table, rows);
  const int64_t dim = table.record().dim(), floats = table.record().floats();
  const int64_t* const ids = data_as<int64_t>(*rows.ids);
  for (int64_t i = 0; i < rows.count; ++i) {
    if (ids[i] < 0 || ids[i] >= all)
      fail(TSR_OUT_OF_RANGE, "table \"", table.in_tier().name, "\" has no row ", ids[i], ": it has ", all, " rows");
  }
  for (int64_t first = 0; first < rows.count; first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, rows.count - first);
    records_.resize(static_cast<size_t>(count * floats));
    for (int64_t i = 0; i < count; ++i) {
      float* record = records_.data() + i * floats;
      const int64_t from = first + i;
      const int64_t row = start + ids[from];
      if (rows.num_states < table.record().states()) table.tier->read({&row, 1}, record);  // the row keeps its states
      std::copy_n(data_as<float>(*rows.weights) + from * dim, dim, record);
      record += dim;
      for (uint32_t k = 0; k < rows.num_states; record += table.record().width(k++))
        std::copy_n(data_as<float>(*rows.states[k]) + from * table.record().width(k), table.record().width(k), record);
    }
    asked_.assign(ids + first, ids + first + count);
    for (int64_t& row : asked_) row += start;
    table.tier->write(asked_, records_.data());
  }
}

Tiered::Tiered(const sdk::Setup& setup) : inner_(setup.inner) {
  if (!inner_) fail(TSR_INVALID_ARGUMENT, "tiered wraps another kernel: name it, as in tiered(cpu)");
  check_inner("tiered", inner_);
  options_.read(setup.options);
}

void check_inner(const char* kernel, const sdk::InnerKernel& inner) {
  const tsr_kernel& api = inner.api();
  if ((api.flags & TSR_KERNEL_PLACES_ROWS) == 0 || !TSR_HAS(tsr_kernel, &api, backward) ||
      !TSR_HAS(tsr_kernel, &api, read_rows) || !TSR_HAS(tsr_kernel, &api, import_rows) ||
      (api.flags & TSR_KERNEL_ROWS_ON_DEMAND) != 0) {
    fail(TSR_INVALID_ARGUMENT, kernel, " cannot wrap ", inner.id(),
         ", which must train, read named rows, import rows, and place them");
  }
}

const void* Tiered::extension(std::string_view id) const {
  static constexpr tsr_prefetch kPrefetch{sizeof(tsr_prefetch), 0, &extras::prefetch};
  return id == TSR_PREFETCH ? &kPrefetch : sdk::changes_extension<Instance>(id);
}

void Tiered::supports(const tsr_kernel_config& config) const {
  if (std::string_view(config.compute_kernel) != kComputeKernels[0])
    fail(TSR_UNIMPLEMENTED, "tiered serves only ", kComputeKernels[0], ", not ", config.compute_kernel);
  const OptimizerRef optimizer = optimizer_of(config);
  if (config.mode == TSR_MODE_TRAIN && !optimizer.updates())
    fail(TSR_UNIMPLEMENTED, kComputeKernels[0], " tables are updated in backward: choose an optimizer that does");
  optimizer.check_states();
  for (uint32_t t = 0; t < config.num_tables; ++t) {
    const tsr_kernel_table& asked = table_of(config, t);
    options_of(asked, options_);
    check_tier(inner_, config, asked);
  }
}

void check_tier(const sdk::InnerKernel& inner, const tsr_kernel_config& config, const tsr_kernel_table& table) {
  if (table.rows > LogShape::kMostRows)
    fail(TSR_UNIMPLEMENTED, "at most ", LogShape::kMostRows, " rows of a table lie on the disk of a rank, not ",
         table.rows, ": divide it among more ranks");
  inner.supports(sdk::InnerConfig(config, table, 0).raw);
}

std::unique_ptr<sdk::KernelInstance> Tiered::open(const tsr_kernel_config& config) const {
  supports(config);
  std::vector<TierOptions> options;
  for (uint32_t t = 0; t < config.num_tables; ++t) options.push_back(options_of(table_of(config, t), options_));
  return std::make_unique<TieredTables>(inner_, config, options);
}

// Computes the cache's misses from the bytes touched between two visits of a row, if `work` has them. If rows are
// looked up uniformly, the hit rate is the fraction of rows in the cache.
tsr_estimate estimate_tier(const sdk::InnerKernel& inner, const TierOptions& options, const tsr_kernel_config& config,
                           const tsr_kernel_table& shard, const tsr_workload& work, double part) {
  constexpr double kSlotBytes = 32;       // per slot, in addition to its row
  constexpr double kRowBytes = 5;         // per row of the table: its place and use count
  constexpr double kReadSeconds = 5e-6;   // per row, while others are in flight
  constexpr double kTakeSeconds = 20e-9;  // per id, to find its slot
  // Share of a table that is touched between two visits of a row if rows are looked up uniformly: 1 - 1/e.
  constexpr double kReuse = 0.632;
  const RecordShape record(shard.dim, optimizer_of(config));
  const int64_t slots = options.slots(shard.rows, record);
  tsr_estimate out = inner.estimate(sdk::InnerConfig(config, shard, slots).raw, work);
  const auto rows = static_cast<double>(std::max<int64_t>(shard.rows, 1));
  const double row_bytes = static_cast<double>(shard.dim) * sizeof(float);
  const double own_reuse = kReuse * rows * row_bytes;
  const double reuse = work.reuse_bytes > 0 ? std::min(work.reuse_bytes, own_reuse) : own_reuse;
  const double hit = std::min(1.0, static_cast<double>(slots) * row_bytes * kReuse / std::max(reuse, 1.0));
  out.storage_reads = (work.distinct > 0 ? work.distinct : work.ids) * (1 - hit);
  out.forward_seconds += out.storage_reads * kReadSeconds + work.ids * kTakeSeconds;
  const double in_memory =
      static_cast<double>(slots) * (static_cast<double>(record.bytes()) + kSlotBytes) + rows * kRowBytes;
  const double file_bytes = static_cast<double>(LogShape(shard.rows, record.bytes()).file_bytes());
  out.storage_bytes = slots < shard.rows ? static_cast<uint64_t>(part * file_bytes) : 0;
  out.bytes = out.storage_bytes + static_cast<uint64_t>(part * in_memory);
  out.host_bytes = 0;  // the device is the host, so nothing is beside it
  return out;
}

tsr_estimate Tiered::estimate(const tsr_kernel_config& config, const tsr_workload& work) const {
  const tsr_kernel_table& shard = table_of(config, 0);
  return estimate_tier(inner_, options_of(shard, options_), config, shard, work, sdk::part_of_shard(shard, work));
}

}  // namespace extras
