// virtual_table: lookups whose ids are mapped to row numbers. The rows may be on a disk.
#include "virtual_table.h"

#include <tessera/abi/draft/prefetch.h>
#include <tessera/sdk/cost.h>

#include <algorithm>

namespace extras {
namespace {

OptimizerRef optimizer_of(const tsr_kernel_config& config) {
  return OptimizerRef(config.mode == TSR_MODE_TRAIN ? config.optimizer : nullptr);
}

// The shape of a table, from its config and its options.
struct Shapes {
  Shapes(const tsr_kernel_table& table, const OptimizerRef& optimizer, Options options)
      : ids(table, optimizer, options) {
    disk.read(options);
    options.finish();
  }
  TableShape ids;
  TierOptions disk;
};
Shapes shapes_of(const tsr_kernel_table& table, const OptimizerRef& optimizer) {
  return {table, optimizer, Options(table.options == nullptr ? "{}" : table.options)};
}

tsr_code prefetch(void* instance, const tsr_lookup* lookup, tsr_stream stream, tsr_error* err) noexcept {
  return guard(err, [&] {
    if (stream != nullptr) fail(TSR_UNIMPLEMENTED, "rows are prefetched by ids in host memory only");
    static_cast<VirtualTables&>(*static_cast<KernelInstance*>(instance)).prefetch(read_struct(*lookup));
  });
}

}  // namespace

VirtualTables::VirtualTables(const InnerKernel& inner, const tsr_kernel_config& config)
    : optimizer_(optimizer_of(config)), start_(config), lookups_(config.num_tables), hits_(config.num_tables) {
  std::vector<tsr_kernel_table> of_rows;
  std::vector<TierOptions> disks;
  for (uint32_t t = 0; t < config.num_tables; ++t) {
    const tsr_kernel_table& asked = table_of(config, t);
    Shapes shapes = shapes_of(asked, optimizer_);
    shapes.ids.dim = 0;
    shapes.ids.row_bytes = 0;
    Table ids(std::move(shapes.ids), t, OptimizerRef(), start_);
    const int64_t most = Index::most_rows(ids.spread());
    tables_.push_back({std::move(ids), t, asked.dim, most});
    of_rows.push_back(inner_table(asked, most + 1));
    disks.push_back(shapes.disk);
  }
  tsr_kernel_config asked = read_struct(config);
  asked.tables = of_rows.data();
  asked.table_stride = sizeof(tsr_kernel_table);
  asked.start_values = nullptr;  // begin() writes them
  rows_ = std::make_unique<TieredTables>(inner, asked, disks);
}

// Finds the row numbers of ids. In a step that trains, ids are sighted, and new ones get rows, which are initialised.
void VirtualTables::find(VirtualTable& table, const tsr_lookup& lookup, Kept& kept) {
  constexpr size_t kHomesAhead = 16, kHeadsAhead = 8;
  const bool trains = (lookup.flags & TSR_LOOKUP_READ_ONLY) == 0;
  const auto step = static_cast<uint32_t>(lookup.step);
  const Index& index = table.ids.index();
  kept.rows.resize(kept.ids.size());
  misses_.clear();
  found_.clear();
  begun_.clear();
  keys_.clear();
  for (const int64_t id : kept.ids) keys_.push_back(table.ids.key(id));
  const std::lock_guard lock(mutex_);
  for (size_t p = 0; p < keys_.size(); ++p) {
    if (p + kHomesAhead < keys_.size()) index.prefetch_home(keys_[p + kHomesAhead]);
    if (p + kHeadsAhead < keys_.size()) index.prefetch_head(keys_[p + kHeadsAhead]);
    const Key& key = keys_[p];
    const uint32_t row = index.find(key);
    const bool gone = row != kNone && index.expired(index.head(row).step, step);
    if (row == kNone || (gone && !trains)) {
      kept.rows[p] = table.absent_row;
      if (trains) misses_.push_back({key, static_cast<int64_t>(p)});
      continue;
    }
    kept.rows[p] = row;
    found_.push_back(row);
    if (gone) begun_.push_back(row);
    if (trains) table.ids.touch(row, step);
  }
  lookups_[table.number] += kept.ids.size();
  // Only found rows count. The tier's own count would include the row that ids without one read, and rows of new ids.
  hits_[table.number] += rows_->in_memory(table.number, found_);
  if (trains && !misses_.empty()) {
    table.ids.insert(misses_, step, [&](int64_t position, uint32_t row) {
      kept.rows[static_cast<size_t>(position)] = row;
      if (begun_.empty() || begun_.back() != row) begun_.push_back(row);
    });
  }
  if (trains && table.shared() && std::find(kept.rows.begin(), kept.rows.end(), table.absent_row) != kept.rows.end())
    table.ids.use_shared(step);
  begin(table, begun_);
  kept.evictions = table.ids.evictions();
}

// Writes start values of the ids that have these rows, and start states.
void VirtualTables::begin(const VirtualTable& table, std::span<const int64_t> rows) {
  constexpr size_t kAtOnce = 4096;
  const RecordShape& record = rows_->record(table.number);
  const auto floats = static_cast<size_t>(record.floats()), dim = static_cast<size_t>(table.dim);
  std::vector<float> values;
  for (; !rows.empty(); rows = rows.subspan(std::min(rows.size(), kAtOnce))) {
    const auto some = rows.first(std::min(rows.size(), kAtOnce));
    begun_ids_.clear();
    for (const int64_t row : some) begun_ids_.push_back(table.ids.index().head(static_cast<uint32_t>(row)).id);
    values.resize(some.size() * dim);
    start_.fill(table.number, begun_ids_, table.dim, values.data());
    records_.resize(some.size() * floats);
    for (size_t i = 0; i < some.size(); ++i) {
      std::copy_n(values.data() + i * dim, dim, records_.data() + i * floats);
      record.start_states(records_.data() + i * floats);
    }
    rows_->write_records(table.number, some, records_.data());
  }
}

// Asks the inner tables about each table. All ids of a table are sighted together, whichever features read it.
void VirtualTables::ask(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, bool keeps,
                        Context& context) {
  const bool trains = (lookup.flags & TSR_LOOKUP_READ_ONLY) == 0;
  for (VirtualTable& table : tables_) {
    if (trains) table.ids.begin_step(static_cast<uint32_t>(lookup.step), lookup.time);
    Kept kept;
    if (!kept.take(lookup, table.number, static_cast<int32_t>(table.number))) continue;
    for (const tsr_lookup_feature& feature : kept.features) {
      if (feature.pooling == TSR_POOLING_MAX) fail(TSR_UNIMPLEMENTED, "tables of any ids have no MAX pooling");
    }
    kept.read_ids(lookup, kept.ids);
    find(table, lookup, kept);
    if (trains) note_changes(kept);  // a sighting changes a row's extra data
    context.tables.push_back(std::move(kept));
    Kept& own = context.tables.back();
    rows_->forward(inner_lookup_.of(lookup, own), output, stream, keeps ? &own.context : nullptr);
  }
}

void VirtualTables::forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream,
                            tsr_context** context) {
  if (context == nullptr) {
    passing_.tables.clear();
    return ask(lookup, output, stream, false, passing_);
  }
  auto kept = std::make_unique<Context>();
  try {
    ask(lookup, output, stream, true, *kept);
  } catch (...) {
    end(*kept);
    throw;
  }
  *context = reinterpret_cast<tsr_context*>(kept.release());
}

void VirtualTables::note_changes(const Kept& kept) {
  VirtualTable& table = tables_[kept.table];
  for (const int64_t row : kept.rows) {
    if (row != table.absent_row || table.shared()) table.ids.note_change(static_cast<uint32_t>(row));
  }
}

// The rows that were given to other ids after the forward, ascending.
std::vector<int64_t> VirtualTables::lost_rows(const Kept& kept) const {
  const VirtualTable& table = tables_[kept.table];
  std::vector<int64_t> out;
  if (kept.evictions == table.ids.evictions()) return out;
  for (size_t p = 0; p < kept.rows.size(); ++p) {
    if (kept.rows[p] == table.absent_row) continue;
    if (table.ids.index().head(static_cast<uint32_t>(kept.rows[p])).id != kept.ids[p]) out.push_back(kept.rows[p]);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// After the inner backward, undoes the updates for ids without a row (unless they share one) and for ids that have lost
// their rows.
void VirtualTables::backward(tsr_context* context, const tsr_backward& args, tsr_stream stream) {
  for (const Kept& kept : reinterpret_cast<Context*>(context)->tables) {
    const VirtualTable& table = tables_[kept.table];
    const RecordShape& record = rows_->record(kept.table);
    const auto floats = static_cast<size_t>(record.floats());
    note_changes(kept);
    const std::vector<int64_t> lost = lost_rows(kept);
    std::vector<float> before(lost.size() * floats);
    if (!lost.empty()) rows_->read_records(kept.table, lost, before.data());
    const tsr_lookup lookup = inner_lookup_.of(*args.lookup, kept);
    tsr_backward inner = read_struct(args);
    inner.lookup = &lookup;
    rows_->backward(kept.context, inner, stream);
    if (!lost.empty()) rows_->write_records(kept.table, lost, before.data());
    if (table.shared() || std::find(kept.rows.begin(), kept.rows.end(), table.absent_row) == kept.rows.end()) continue;
    clear_absent(table);
  }
}

void VirtualTables::clear_absent(const VirtualTable& table) {
  const RecordShape& record = rows_->record(table.number);
  records_.assign(static_cast<size_t>(record.floats()), 0);
  record.start_states(records_.data());
  rows_->write_records(table.number, {&table.absent_row, 1}, records_.data());
}

void VirtualTables::end(Context& context) noexcept {
  for (const Kept& kept : context.tables) {
    if (kept.context != nullptr) rows_->release(kept.context);
  }
}

void VirtualTables::release(tsr_context* context) noexcept {
  const std::unique_ptr<Context> spent(reinterpret_cast<Context*>(context));
  end(*spent);
}

// Prefetches the rows that ids have; ids without a row need nothing from the disk.
void VirtualTables::prefetch(const tsr_lookup& lookup) {
  for (VirtualTable& table : tables_) {
    early_.clear();
    if (!early_ask_.take(lookup, table.number)) continue;
    early_ask_.read_ids(lookup, early_ids_);
    {
      const std::lock_guard lock(mutex_);
      for (const int64_t id : early_ids_) {
        const uint32_t row = table.ids.index().find(table.ids.key(id));
        if (row != kNone) early_.push_back(row);
      }
    }
    if (!early_.empty()) rows_->prefetch_rows(table.number, early_);
  }
}

VirtualTableKernel::VirtualTableKernel(const Setup& setup) : inner_(setup.inner) {
  if (!inner_) fail(TSR_INVALID_ARGUMENT, "virtual_table wraps another kernel: name it, as in virtual_table(cpu)");
  check_inner("virtual_table", inner_);
  setup.options.finish();
}

const void* VirtualTableKernel::extension(std::string_view id) const {
  static constexpr tsr_prefetch kPrefetch{sizeof(tsr_prefetch), 0, &extras::prefetch};
  if (id == TSR_PREFETCH) return &kPrefetch;
  const void* draft = on_demand_extension<Instance>(id);
  return draft != nullptr ? draft : changes_extension<Instance>(id);
}

void VirtualTableKernel::supports(const tsr_kernel_config& config) const {
  if (std::string_view(config.compute_kernel) != kComputeKernels[0])
    fail(TSR_UNIMPLEMENTED, "virtual_table serves only ", kComputeKernels[0], ", not ", config.compute_kernel);
  const OptimizerRef optimizer = optimizer_of(config);
  if (config.mode == TSR_MODE_TRAIN && !optimizer.updates())
    fail(TSR_UNIMPLEMENTED, kComputeKernels[0], " tables are updated in backward: choose an optimizer that does");
  optimizer.check_states();
  for (uint32_t t = 0; t < config.num_tables; ++t) {
    const tsr_kernel_table& asked = table_of(config, t);
    if ((asked.poolings & 1u << TSR_POOLING_MAX) != 0)
      fail(TSR_UNIMPLEMENTED, "table \"", asked.name, "\" is pooled by MAX, which tables of any ids do not serve");
    const Shapes shapes = shapes_of(asked, optimizer);
    if (shapes.ids.policy.absent == Absent::kStart)
      fail(TSR_UNIMPLEMENTED, "table \"", asked.name, "\": ids without a row read zeros in ", kComputeKernels[0],
           " tables, or share a row: absent = \"start\" is for dynamic ones");
    check_tier(inner_, config, inner_table(asked, shapes.ids.capacity));
  }
}

std::unique_ptr<KernelInstance> VirtualTableKernel::open(const tsr_kernel_config& config) const {
  supports(config);
  return std::make_unique<VirtualTables>(inner_, config);
}

tsr_estimate VirtualTableKernel::estimate(const tsr_kernel_config& config, const tsr_workload& work) const {
  constexpr double kFindSeconds = 60e-9;  // per id
  const tsr_kernel_table& shard = table_of(config, 0);
  const Shapes shapes = shapes_of(shard, optimizer_of(config));
  const double part = part_of_shard(shard, work), rows = part * static_cast<double>(shapes.ids.capacity);
  tsr_workload held = work;
  held.rows = static_cast<int64_t>(rows);
  tsr_estimate out = estimate_tier(inner_, shapes.disk, config, inner_table(shard, shapes.ids.capacity), held, part);
  out.forward_seconds += work.ids * kFindSeconds;
  out.bytes += static_cast<uint64_t>(rows * Index::kBytes);
  return out;
}

}  // namespace extras
