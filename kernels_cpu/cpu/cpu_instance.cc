#include "cpu_instance.h"

#include <algorithm>
#include <atomic>

#include "row_block.h"

namespace tessera_cpu {
namespace {

// A call with less work than this uses only its own thread, because waking others would cost more.
constexpr int64_t kBytesWorthThreads = 128 << 10;
constexpr int64_t kIdsWorthThreads = 2048;
constexpr int64_t kEntriesPerRun = 4096;
constexpr int64_t kRowsPerApply = 1024;
constexpr int64_t kIdsPerMarking = 8192;

// The prefetch distance of backward for rows, their states and gradients.
int64_t entries_ahead(const TableStore& table) {
  return std::clamp<int64_t>(8192 / table.row_and_state_bytes(), 8, 64);
}

}  // namespace

CpuInstance::CpuInstance(sdk::Host host, const RowOps& ops, Config config)
    : host_(host),
      ops_(ops),
      config_(std::move(config)),
      memory_(make_tables(host, config_, &tables_)),
      lookups_(config_.tables.size()),
      plan_(host),
      worker_scratch_(host) {
  for (const TableStore& t : tables_) worker_floats_ = std::max(worker_floats_, RowBlock::scratch_floats(t));
  worker_floats_ = (worker_floats_ + 15) / 16 * 16;  // rounded up to whole cache lines
}

template <class Body>
void CpuInstance::share(size_t items, uint32_t workers, Body body) const {
  if (workers <= 1) {
    for (size_t i = 0; i < items; ++i) body(i, 0u);
    return;
  }
  std::atomic<size_t> next{0};
  host_.parallel_for(workers, [&](uint64_t worker) {
    for (size_t i = next.fetch_add(1); i < items; i = next.fetch_add(1)) body(i, static_cast<uint32_t>(worker));
  });
}

float* CpuInstance::worker_scratch(uint32_t worker) const {
  return reinterpret_cast<float*>(worker_scratch_.data()) + worker * worker_floats_;
}
void CpuInstance::reserve_workers(uint32_t workers) { worker_scratch_.take(workers * worker_floats_ * 4); }

Context* CpuInstance::take_context() {
  if (idle_.empty()) {
    contexts_.push_back(std::make_unique<Context>(host_));
    idle_.reserve(contexts_.size());
    return contexts_.back().get();
  }
  Context* context = idle_.back();
  idle_.pop_back();
  return context;
}

void CpuInstance::release(tsr_context* context) noexcept {
  if (context != nullptr) idle_.push_back(&Context::of(context));  // take_context() has reserved the capacity
}

void CpuInstance::place_winners(const Batch& batch, Context* context) const {
  context->first_winner.assign(batch.num_features(), -1);
  int64_t count = 0;
  for (uint32_t f = 0; f < batch.num_features(); ++f) {
    const tsr_lookup_feature& feature = batch.feature(f);
    if (feature.pooling != TSR_POOLING_MAX) continue;
    context->first_winner[f] = count;
    count += feature.bags * tables_[static_cast<size_t>(feature.table)].dim();
  }
  context->winners.take(count * static_cast<int64_t>(sizeof(int32_t)));
}

void CpuInstance::look_up(const Batch& batch, const ForwardItem& item, Context* context) const {
  const tsr_lookup_feature& feature = batch.feature(item.feature);
  const TableStore& table = tables_[static_cast<size_t>(feature.table)];
  const bool sequence = feature.pooling == TSR_POOLING_NONE;
  const int64_t first = feature.first_offset + item.begin;
  const int64_t begin = batch.offsets[first];
  const int64_t output_row = sequence ? begin - batch.begin(feature) : item.begin;
  Pool pool;
  pool.table = table.row(0);
  pool.row_bytes = table.row_bytes();
  pool.dim = table.dim();
  pool.ids = batch.ids.data<void>();
  pool.wide_offsets = batch.offsets.wide();
  pool.offsets = sequence ? nullptr : batch.offsets.data<char>() + first * (pool.wide_offsets ? 8 : 4);
  pool.mean = feature.pooling == TSR_POOLING_MEAN;
  pool.begin = begin;
  pool.ids_end = batch.offsets[feature.first_offset + item.end];
  pool.bags = sequence ? pool.ids_end - begin : item.end - item.begin;
  pool.ahead = rows_ahead(pool.row_bytes);
  pool.to_l2 = to_l2_;
  pool.weights = batch.weights;
  pool.storage = config_.output;
  pool.output_bytes = feature.output_stride * bytes_of(config_.output);
  pool.rows = batch.rows(feature);
  pool.output = batch.values(feature) + (pool.rows == nullptr ? output_row * pool.output_bytes : 0);
  if (pool.rows != nullptr) pool.rows += item.begin;
  if (feature.pooling == TSR_POOLING_MAX) {
    int32_t* winners = nullptr;
    if (context != nullptr) winners = context->winners_of(item.feature) + item.begin * table.dim();
    ops_.pool_max(pool, config_.weights, batch.ids.wide(), winners);
  } else {
    ops_.pool(config_.weights, batch.ids.wide(), batch.weights != nullptr, pool.dim)(pool);
  }
}

void CpuInstance::forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context** context) {
  const Batch batch(lookup, config_, output);
  Context* kept = nullptr;
  if (context != nullptr) {
    if (!config_.train) sdk::fail(TSR_FAILED_PRECONDITION, "an instance opened to infer keeps no context for backward");
    kept = take_context();
    *context = kept->raw();
    place_winners(batch, kept);
  }
  for (uint32_t f = 0; f < batch.num_features(); ++f) {
    const tsr_lookup_feature& feature = batch.feature(f);
    if (feature.bags == 0) continue;
    lookups_[static_cast<size_t>(feature.table)] += static_cast<uint64_t>(batch.end(feature) - batch.begin(feature));
  }
  const auto row_bytes = [&](size_t table) { return tables_[table].row_bytes(); };
  if (cut_forward(batch, host_.num_threads(), kBytesWorthThreads, row_bytes, items_)) {
    share(items_.size(), static_cast<uint32_t>(std::min<size_t>(host_.num_threads(), items_.size())),
          [&](size_t i, uint32_t) { look_up(batch, items_[i], kept); });
    return;
  }
  for (uint32_t f = 0; f < batch.num_features(); ++f) {
    if (batch.feature(f).bags > 0) look_up(batch, {f, 0, batch.feature(f).bags}, kept);
  }
}

Walk CpuInstance::walk_of(const Batch& batch, const tsr_backward& args, const TableEntries& entries) const {
  const TableStore& table = tables_[entries.table];
  const tsr_lookup_feature& feature = batch.feature(entries.features.front());
  Walk walk{};
  walk.gradient = batch.values(feature);
  walk.output_row_bytes = feature.output_stride * bytes_of(config_.output);
  walk.storage = config_.output;
  walk.grad_scale = static_cast<float>(args.grad_scale);
  walk.max_gradient = config_.max_gradient;
  walk.dim = table.dim();
  walk.table = table.row(0);
  walk.row_bytes = table.row_bytes();
  walk.row_storage = table.storage();
  walk.ahead = entries_ahead(table);
  if (args.grad_weights != nullptr) {
    const std::span<float> out = sdk::elements<float>(*args.grad_weights, "grad_weights");
    if (static_cast<int64_t>(out.size()) != batch.ids.size()) {
      sdk::fail(TSR_INVALID_ARGUMENT, "grad_weights has ", out.size(), " elements for ", batch.ids.size(), " ids");
    }
    walk.grad_weights = out.data();
  }
  return walk;
}

uint32_t CpuInstance::workers_for(const Batch& batch) const {
  return batch.ids.size() < kIdsWorthThreads ? 1 : host_.num_threads();
}

void CpuInstance::check_updates() const {
  if (!config_.optimizer.updates()) {
    sdk::fail(TSR_FAILED_PRECONDITION, "the kernel was opened without an optimizer that updates rows");
  }
}

void CpuInstance::mark(uint32_t follower) {
  for (TableStore& table : tables_) table.mark(follower);
}

// Marks all rows of a batch as changed, because all have a gradient and are written.
void CpuInstance::mark_ids(const Batch& batch) {
  marking_.clear();
  for (uint32_t f = 0; f < batch.num_features(); ++f) {
    const tsr_lookup_feature& feature = batch.feature(f);
    if (feature.bags == 0) continue;
    for (int64_t at = batch.begin(feature), end = batch.end(feature); at < end; at += kIdsPerMarking)
      marking_.push_back({static_cast<uint32_t>(feature.table), at, std::min(at + kIdsPerMarking, end)});
  }
  const uint32_t workers = static_cast<uint32_t>(std::min<size_t>(workers_for(batch), marking_.size()));
  share(marking_.size(), workers, [&](size_t i, uint32_t) {
    const auto [table, begin, end] = marking_[i];
    sdk::RowMarks& marks = tables_[table].marks();
    if (batch.ids.wide()) {
      marks.add(batch.ids.data<int64_t>() + begin, end - begin);
    } else {
      marks.add(batch.ids.data<int32_t>() + begin, end - begin);
    }
  });
}

void CpuInstance::backward(tsr_context* context, const tsr_backward& args, tsr_stream) {
  check_updates();
  const Batch batch(*args.lookup, config_, *args.grad_output);
  if (marks()) mark_ids(batch);
  const GradientInput input{batch, config_, Context::of(context), ops_};
  const uint32_t workers = workers_for(batch);
  plan_.build(input, {workers, false, args.grad_weights != nullptr});
  const std::span<const Piece> pieces = plan_.pieces();
  reserve_workers(workers);
  const uint32_t used = static_cast<uint32_t>(std::min<size_t>(workers, pieces.size()));
  share(pieces.size(), used, [&](size_t i, uint32_t worker) {
    const TableEntries& entries = plan_.table_of(pieces[i]);
    RowBlock block(tables_[entries.table], config_.optimizer, *args.update, ops_, worker_scratch(worker));
    Walk walk = walk_of(batch, args, entries);
    walk.block = &block;
    plan_.prepare(pieces[i], input, worker, &walk);
    ops_.walk(walk);
  });
}

// Sorts every table's entries and divides them into runs_ of whole rows; counts the rows of each in unique_.
void CpuInstance::cut_rows(const GradientInput& input, const tsr_backward& args) {
  const std::span<const Piece> pieces = plan_.pieces();
  sorted_.resize(pieces.size());
  share(pieces.size(), static_cast<uint32_t>(std::min<size_t>(workers_for(input.batch), pieces.size())),
        [&](size_t i, uint32_t worker) {
          sorted_[i] = walk_of(input.batch, args, plan_.table_of(pieces[i]));
          plan_.prepare(pieces[i], input, worker, &sorted_[i]);
        });
  runs_.clear();
  unique_.assign(tables_.size(), 0);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const uint32_t table = plan_.table_of(pieces[i]).table;
    const Walk& walk = sorted_[i];
    const auto row = [&walk](int64_t k) { return walk.full != nullptr ? walk.full[k].row : walk.plain[k].row; };
    int64_t& rows = unique_[table];
    RowRun run{&walk, table, 0, 0, 0};
    for (int64_t k = 0; k < walk.count; ++k) {
      if (k > 0 && row(k) == row(k - 1)) continue;
      if (k - run.begin >= kEntriesPerRun) {
        run.end = k;
        runs_.push_back(run);
        run.begin = k;
        run.first_row = rows;
      }
      ++rows;
    }
    run.end = walk.count;
    runs_.push_back(run);
  }
}

// Allocates memory for the counted rows, and fills in views of it.
void CpuInstance::place_gradients(Context& context, std::span<tsr_row_gradient> out) {
  int64_t rows = 0;
  int64_t values = 0;
  for (size_t t = 0; t < tables_.size(); ++t) {
    rows += unique_[t];
    values += unique_[t] * tables_[t].dim();
  }
  int64_t* row = reinterpret_cast<int64_t*>(context.gradients.take(rows * 8 + values * 4));
  float* value = reinterpret_cast<float*>(row + rows);
  context.shapes.resize(2 * tables_.size());
  const DLDevice cpu{kDLCPU, 0};
  for (size_t t = 0; t < tables_.size(); ++t) {
    int64_t* shape = context.shapes.data() + 2 * t;
    shape[0] = unique_[t];
    shape[1] = tables_[t].dim();
    out[t].rows = {row, cpu, 1, sdk::dtype_of<int64_t>(), shape, nullptr, 0};
    out[t].values = {value, cpu, 2, sdk::dtype_of<float>(), shape, nullptr, 0};
    row += shape[0];
    value += shape[0] * shape[1];
  }
}

void CpuInstance::backward_rows(tsr_context* context, const tsr_backward& args, std::span<tsr_row_gradient> out,
                                tsr_stream) {
  const Batch batch(*args.lookup, config_, *args.grad_output);
  const GradientInput input{batch, config_, Context::of(context), ops_};
  const uint32_t workers = workers_for(batch);
  plan_.build(input, {workers, true, args.grad_weights != nullptr});
  cut_rows(input, args);
  place_gradients(Context::of(context), out);
  share(runs_.size(), static_cast<uint32_t>(std::min<size_t>(workers, runs_.size())), [&](size_t i, uint32_t) {
    const RowRun& run = runs_[i];
    Walk walk = *run.walk;
    if (walk.full != nullptr) {
      walk.full += run.begin;
    } else {
      walk.plain += run.begin;
    }
    walk.count = run.end - run.begin;
    walk.out_rows = sdk::data_as<int64_t>(out[run.table].rows) + run.first_row;
    walk.out_values = sdk::data_as<float>(out[run.table].values) + run.first_row * walk.dim;
    ops_.walk(walk);
  });
}

void CpuInstance::apply(uint32_t table, const DLTensor& rows, const DLTensor& values, const tsr_update& update,
                        tsr_stream) {
  check_updates();
  TableStore& t = tables_.at(table);
  const RowGradients gradients(t, rows, values);
  if (t.marks()) t.marks().add(gradients.rows, gradients.count);
  const uint32_t workers = gradients.count < kIdsWorthThreads ? 1 : host_.num_threads();
  reserve_workers(workers);
  const size_t items = static_cast<size_t>((gradients.count + kRowsPerApply - 1) / kRowsPerApply);
  share(items, static_cast<uint32_t>(std::min<size_t>(workers, items)), [&](size_t item, uint32_t worker) {
    RowBlock block(t, config_.optimizer, update, ops_, worker_scratch(worker));
    const int64_t begin = static_cast<int64_t>(item) * kRowsPerApply;
    const int64_t end = std::min(begin + kRowsPerApply, gradients.count);
    constexpr int64_t kAhead = 16;
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) block.prefetch<0>(gradients.rows[i + kAhead]);
      block.add(gradients.rows[i], gradients.values + i * t.dim());
    }
    block.flush();
  });
}

tsr_kernel_stats CpuInstance::stats(uint32_t table) {
  const TableStore& t = tables_.at(table);
  uint64_t scratch = plan_.bytes() + worker_scratch_.bytes();
  for (const auto& context : contexts_) scratch += context->winners.bytes() + context->gradients.bytes();
  return t.stats(scratch / tables_.size() + t.marks().bytes(), lookups_.at(table));
}

}  // namespace tessera_cpu
