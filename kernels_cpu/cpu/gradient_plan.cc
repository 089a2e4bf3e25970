#include "gradient_plan.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "once_pass.h"
#include "sum_pass.h"

namespace tessera_cpu {
namespace {

// A table is divided into buckets if other threads would wait for the one that has it: it has at least kCutWithThreads
// entries, and a larger share of all entries than a thread should have. It is also divided if its entries would fill
// the caches.
constexpr int64_t kCutWithThreads = 4096;
constexpr int64_t kTablesPerThread = 4;
constexpr int64_t kCutForCache = 1 << 17;        // entries, 1 MiB
constexpr int64_t kWorthMap = 64;                // fewer entries are sorted without a OnceMap
constexpr int64_t kWorthMapOfOutputRows = 1024;  // the same, if a gradient's address has to be looked up
// After a batch whose rows mostly occurred again, this many batches are sorted without a OnceMap.
constexpr uint32_t kSortedInARow = 15;
constexpr int64_t kEntriesPerBucket = 16384;
constexpr int kMaxBucketBits = 8;
constexpr size_t kMaxBuckets = size_t{1} << kMaxBucketBits;
constexpr int64_t kEntriesPerChunk = 16384;

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The number of output rows of a feature: one per bag, or one per position of a sequence.
int64_t output_rows_of(const Batch& batch, const tsr_lookup_feature& f) {
  return f.pooling == TSR_POOLING_NONE ? batch.end(f) - batch.begin(f) : f.bags;
}

PlainEntry entry_of(const Batch&, int64_t row, int64_t output_row, int64_t, PlainEntry*) {
  return {static_cast<uint32_t>(row), static_cast<uint32_t>(output_row)};
}
FullEntry entry_of(const Batch& batch, int64_t row, int64_t output_row, int64_t position, FullEntry*) {
  return {static_cast<uint32_t>(row), static_cast<uint32_t>(output_row), static_cast<uint32_t>(position),
          batch.weights == nullptr ? 1.0f : batch.weights[position]};
}

// Calls body(entry) for bags [begin, end) of a feature, in order.
template <class Entry, class Id, class Body>
void each_entry(const Batch& batch, const tsr_lookup_feature& f, int64_t begin, int64_t end, int64_t output_row,
                Body body) {
  const Id* ids = batch.ids.data<Id>();
  const bool sequence = f.pooling == TSR_POOLING_NONE;
  int64_t p = batch.offsets[f.first_offset + begin];
  for (int64_t b = begin; b < end; ++b) {
    const int64_t bag_end = batch.offsets[f.first_offset + b + 1];
    for (; p < bag_end; ++p) {
      body(entry_of(batch, ids[p], output_row, p, static_cast<Entry*>(nullptr)));
      output_row += sequence ? 1 : 0;
    }
    output_row += sequence ? 0 : 1;
  }
}
template <class Entry, class Body>
void each_entry_of(const Batch& batch, const tsr_lookup_feature& f, int64_t begin, int64_t end, int64_t output_row,
                   Body body) {
  if (batch.ids.wide()) {
    each_entry<Entry, int64_t>(batch, f, begin, end, output_row, body);
  } else {
    each_entry<Entry, int32_t>(batch, f, begin, end, output_row, body);
  }
}

// Fills in the output rows of bags [begin, end) of a feature, from `to` on.
void fill_output_rows(const GradientInput& input, uint32_t f, int64_t begin, int64_t end, OutputRow* to) {
  const Batch& batch = input.batch;
  const tsr_lookup_feature& feature = batch.feature(f);
  const int64_t step = feature.output_stride * batch.value_bytes;
  const char* gradient = batch.values(feature);
  if (feature.pooling == TSR_POOLING_NONE) {
    const int64_t first = batch.begin(feature);
    const int64_t last = batch.offsets[feature.first_offset + end] - first;
    for (int64_t i = batch.offsets[feature.first_offset + begin] - first; i < last; ++i) {
      *to++ = {gradient + i * step, nullptr, 1, 0};
    }
    return;
  }
  const int64_t dim = input.config.tables[static_cast<size_t>(feature.table)].dim;
  const int32_t* winners = feature.pooling == TSR_POOLING_MAX ? input.context.winners_of(f) : nullptr;
  const int32_t* rows = batch.rows(feature);
  for (int64_t b = begin; b < end; ++b) {
    const int64_t first = batch.offsets[feature.first_offset + b];
    const int64_t length = batch.offsets[feature.first_offset + b + 1] - first;
    const bool divided = feature.pooling == TSR_POOLING_MEAN && length > 0;
    *to++ = {gradient + (rows == nullptr ? b : rows[b]) * step, winners == nullptr ? nullptr : winners + b * dim,
             divided ? 1.0f / static_cast<float>(length) : 1.0f, static_cast<uint32_t>(first)};
  }
}

// Calls body(feature, first output row) for each feature of a table that is not divided. If the table needs output
// rows, it fills in the feature's before that.
template <class Body>
void each_feature(const TableEntries& t, const GradientInput& input, Body body) {
  int64_t output_row = 0;
  for (uint32_t f : t.features) {
    const tsr_lookup_feature& feature = input.batch.feature(f);
    if (t.output_rows != nullptr) fill_output_rows(input, f, 0, feature.bags, t.output_rows + output_row);
    body(feature, output_row);
    output_row += output_rows_of(input.batch, feature);
  }
}

template <class Entry>
Entry* gather_and_sort(const TableEntries& t, const Piece& piece, const GradientInput& input) {
  Entry* const entries = reinterpret_cast<Entry*>(t.entries) + piece.begin;
  Entry* const other = reinterpret_cast<Entry*>(t.other) + piece.begin;
  if (t.bucket_bits == 0) {
    each_feature(t, input, [&, to = entries](const tsr_lookup_feature& feature, int64_t output_row) mutable {
      each_entry_of<Entry>(input.batch, feature, 0, feature.bags, output_row, [&to](const Entry& e) { *to++ = e; });
    });
  }
  return sort_by_row(entries, other, piece.end - piece.begin, t.bucket_bits, t.row_bits);
}

IdRun id_run(const Batch& batch, const tsr_lookup_feature& f, int64_t output_row) {
  IdRun run{};
  run.ids = batch.ids.data<void>();
  run.wide_ids = batch.ids.wide();
  run.wide_offsets = batch.offsets.wide();
  const bool sequence = f.pooling == TSR_POOLING_NONE;
  run.offsets = sequence ? nullptr : batch.offsets.data<char>() + f.first_offset * (run.wide_offsets ? 8 : 4);
  run.begin = batch.begin(f);
  run.end = batch.end(f);
  run.bags = sequence ? run.end - run.begin : f.bags;
  run.first_output_row = output_row;
  run.scaled = f.pooling == TSR_POOLING_MEAN;
  return run;
}

template <class Id>
void mark_ids(const Batch& batch, const tsr_lookup_feature& f, OnceMap* once) {
  const Id* const ids = batch.ids.data<Id>();
  for (int64_t p = batch.begin(f), end = batch.end(f); p < end; ++p) once->mark(static_cast<uint32_t>(ids[p]));
}

void mark(const TableEntries& t, const Piece& piece, const Batch& batch, OnceMap* once) {
  if (t.bucket_bits > 0) {
    const PlainEntry* const entries = reinterpret_cast<const PlainEntry*>(t.entries);
    for (int64_t i = piece.begin; i < piece.end; ++i) once->mark(entries[i].row);
    return;
  }
  for (uint32_t f : t.features) {
    batch.ids.wide() ? mark_ids<int64_t>(batch, batch.feature(f), once)
                     : mark_ids<int32_t>(batch, batch.feature(f), once);
  }
}

int64_t rows_of_piece(const TableEntries& t) { return ((t.rows - 1) >> t.bucket_bits) + 1; }

int64_t entry_bytes(const TableEntries& t) {
  if (t.summed && t.bucket_bits == 0) return 0;  // SumPass reads the ids themselves
  return t.count * static_cast<int64_t>(t.full ? sizeof(FullEntry) : sizeof(PlainEntry));
}
int64_t output_row_bytes(const TableEntries& t) {
  return t.formula ? 0 : t.num_output_rows * static_cast<int64_t>(sizeof(OutputRow));
}
int64_t table_bytes(const TableEntries& t) { return 2 * aligned(entry_bytes(t)) + aligned(output_row_bytes(t)); }

// Gives a table its entries and output rows at `at`, which has space for table_bytes().
void place(char* at, TableEntries* t) {
  t->entries = at;
  t->other = at + aligned(entry_bytes(*t));
  if (!t->formula) t->output_rows = reinterpret_cast<OutputRow*>(t->other + aligned(entry_bytes(*t)));
}

}  // namespace

void GradientPlan::group_features(const Batch& batch, const Config& config) {
  first_of_.assign(config.tables.size() + 1, 0);
  const auto used = [&](uint32_t f) { return batch.feature(f).bags > 0; };
  for (uint32_t f = 0; f < batch.num_features(); ++f) {
    if (used(f)) ++first_of_[static_cast<size_t>(batch.feature(f).table) + 1];
  }
  for (size_t t = 0; t < config.tables.size(); ++t) first_of_[t + 1] += first_of_[t];
  features_.resize(first_of_.back());
  for (uint32_t f = 0; f < batch.num_features(); ++f) {
    if (used(f)) features_[first_of_[static_cast<size_t>(batch.feature(f).table)]++] = f;
  }
  for (size_t t = config.tables.size(); t > 0; --t) first_of_[t] = first_of_[t - 1];
  first_of_[0] = 0;
}

void GradientPlan::add_chunks(const Batch& batch, uint32_t plan) {
  int64_t output_row = 0;
  for (uint32_t f : tables_[plan].features) {
    const tsr_lookup_feature& feature = batch.feature(f);
    for (int64_t b = 0; b < feature.bags;) {
      const int64_t first = batch.offsets[feature.first_offset + b];
      int64_t end = b + 1;  // end of the chunk: the first bag at which it is large enough, found by bisection
      for (int64_t high = feature.bags; end < high;) {
        const int64_t middle = end + (high - end) / 2;
        if (batch.offsets[feature.first_offset + middle] - first < kEntriesPerChunk) {
          end = middle + 1;
        } else {
          high = middle;
        }
      }
      const int64_t before = feature.pooling == TSR_POOLING_NONE ? first - batch.begin(feature) : b;
      chunks_.push_back({plan, f, b, end, output_row + before});
      b = end;
    }
    output_row += output_rows_of(batch, feature);
  }
}

TableEntries GradientPlan::describe(const GradientInput& input, uint32_t table, bool want_positions) const {
  TableEntries t{};
  t.table = table;
  t.features = {features_.data() + first_of_[table], features_.data() + first_of_[table + 1]};
  t.full = input.batch.weights != nullptr || want_positions;
  bool simple = t.features.size() == 1;
  for (uint32_t f : t.features) {
    const tsr_lookup_feature& feature = input.batch.feature(f);
    t.count += input.batch.end(feature) - input.batch.begin(feature);
    t.num_output_rows += output_rows_of(input.batch, feature);
    t.full |= feature.pooling == TSR_POOLING_MAX;
    simple &= feature.pooling == TSR_POOLING_NONE || feature.pooling == TSR_POOLING_SUM;
    simple &= input.batch.rows(feature) == nullptr;
  }
  t.formula = simple && !t.full;
  t.rows = std::max<int64_t>(input.config.tables[table].rows, 1);
  t.row_bits = std::bit_width(static_cast<uint64_t>(t.rows - 1));
  return t;
}

int GradientPlan::bucket_bits(const TableEntries& t, const GradientOptions& options) const {
  if (options.rows_in_order) return 0;
  const bool for_threads =
      options.threads > 1 && t.count >= std::max(kCutWithThreads, total_ / (kTablesPerThread * options.threads));
  if (!for_threads && (t.count < kCutForCache || t.summed)) return 0;
  // Uses as few buckets as necessary, because then each has more rows of a bag.
  const int for_cache = std::bit_width(static_cast<uint64_t>(t.count / kEntriesPerBucket));
  const int for_balance = std::bit_width(2 * options.threads - 1);
  return std::min({std::max(for_cache, for_balance), kMaxBucketBits, t.row_bits});
}

void GradientPlan::lay_out(const GradientInput& input, const GradientOptions& options) {
  tables_.clear();
  total_ = 0;
  rows_in_order_ = options.rows_in_order;
  to_sort_.resize(input.config.tables.size());
  for (uint32_t table = 0; table < input.config.tables.size(); ++table) {
    if (first_of_[table] == first_of_[table + 1]) continue;
    tables_.push_back(describe(input, table, options.want_positions));
    total_ += tables_.back().count;
    if (tables_.back().count == 0) tables_.pop_back();
  }
  int64_t own_bytes = 0;
  int64_t shared_bytes = 0;
  map_bytes_ = 0;
  zero_bytes_ = 0;
  for (TableEntries& t : tables_) {
    const int64_t dim = input.config.tables[t.table].dim;
    t.summed =
        !rows_in_order_ && !t.full && input.config.output == Storage::kFloat32 && SumPass::serves(t.count, t.rows, dim);
    t.bucket_bits = bucket_bits(t, options);
    if (t.summed) zero_bytes_ = std::max(zero_bytes_, SumPass::bytes(t.count, rows_of_piece(t), dim));
    t.sorted = to_sort_[t.table] > 0;
    if (t.sorted && !rows_in_order_) --to_sort_[t.table];
    int64_t& bytes = keeps_entries(t) ? own_bytes : shared_bytes;
    bytes = keeps_entries(t) ? bytes + table_bytes(t) : std::max(bytes, table_bytes(t));
    if (!rows_in_order_) map_bytes_ = std::max(map_bytes_, aligned(OnceMap::bytes(t.count, t.bucket_bits, t.row_bits)));
  }
  const int64_t zeros = options.threads * zero_bytes_;
  if (zeros > static_cast<int64_t>(zeros_.bytes())) {
    char* const grown = zeros_.take(zeros);
    std::memset(grown, 0, zeros_.bytes());
  }
  room_bytes_ = map_bytes_ + shared_bytes;
  char* at = scratch_.take(own_bytes + options.threads * room_bytes_);
  for (TableEntries& t : tables_) {
    if (!keeps_entries(t)) continue;
    place(at, &t);
    at += table_bytes(t);
  }
  worker_rooms_ = at;
}

// Turns the counts per chunk and bucket into the positions at which each chunk's entries begin, and makes the pieces.
void GradientPlan::start_buckets() {
  for (size_t first = 0; first < chunks_.size();) {
    const uint32_t plan = chunks_[first].plan;
    size_t last = first;
    while (last < chunks_.size() && chunks_[last].plan == plan) ++last;
    int64_t at = 0;
    for (size_t bucket = 0; bucket < size_t{1} << tables_[plan].bucket_bits; ++bucket) {
      const int64_t begin = at;
      for (size_t c = first; c < last; ++c) at += std::exchange(bucket_starts_[c * kMaxBuckets + bucket], at);
      if (at > begin) pieces_.push_back({plan, begin, at});
    }
    first = last;
  }
}

// Counts each chunk's entries per bucket; then every chunk writes its entries to their positions. The order is stable
// for any number of threads.
void GradientPlan::partition(const GradientInput& input, uint32_t threads) {
  bucket_starts_.assign(chunks_.size() * kMaxBuckets, 0);
  const auto for_chunks = [&](auto body) {
    if (threads > 1 && chunks_.size() > 1) {
      host_.parallel_for(chunks_.size(), body);
    } else {
      for (uint64_t c = 0; c < chunks_.size(); ++c) body(c);
    }
  };
  for_chunks([&](uint64_t c) {
    const Chunk& chunk = chunks_[c];
    const TableEntries& t = tables_[chunk.plan];
    int64_t* counts = bucket_starts_.data() + c * kMaxBuckets;
    const uint32_t mask = (1u << t.bucket_bits) - 1;
    if (t.output_rows != nullptr)
      fill_output_rows(input, chunk.feature, chunk.begin, chunk.end, t.output_rows + chunk.first_output_row);
    each_entry_of<PlainEntry>(input.batch, input.batch.feature(chunk.feature), chunk.begin, chunk.end, 0,
                              [&](const PlainEntry& e) { ++counts[e.row & mask]; });
  });
  start_buckets();
  for_chunks([&](uint64_t c) {
    const Chunk& chunk = chunks_[c];
    const TableEntries& t = tables_[chunk.plan];
    int64_t* next = bucket_starts_.data() + c * kMaxBuckets;
    const uint32_t mask = (1u << t.bucket_bits) - 1;
    const auto scatter = [&]<class Entry>(Entry* entries) {
      each_entry_of<Entry>(input.batch, input.batch.feature(chunk.feature), chunk.begin, chunk.end,
                           chunk.first_output_row, [&](const Entry& e) { entries[next[e.row & mask]++] = e; });
    };
    if (t.full) {
      scatter(reinterpret_cast<FullEntry*>(t.entries));
    } else {
      scatter(reinterpret_cast<PlainEntry*>(t.entries));
    }
  });
}

void GradientPlan::build(const GradientInput& input, const GradientOptions& options) {
  if (input.batch.ids.size() > UINT32_MAX) {
    sdk::fail(TSR_UNIMPLEMENTED, "a batch of ", input.batch.ids.size(),
              " ids is more than backward takes: ", UINT32_MAX);
  }
  group_features(input.batch, input.config);
  lay_out(input, options);
  pieces_.clear();
  chunks_.clear();
  for (uint32_t plan = 0; plan < tables_.size(); ++plan) {
    if (tables_[plan].bucket_bits > 0) add_chunks(input.batch, plan);
  }
  if (!chunks_.empty()) partition(input, options.threads);
  for (uint32_t plan = 0; plan < tables_.size(); ++plan) {
    if (tables_[plan].bucket_bits == 0) pieces_.push_back({plan, 0, tables_[plan].count});
  }
}

void GradientPlan::update_summed(const TableEntries& t, const Piece& piece, const GradientInput& input, char* zeros,
                                 Walk* walk) const {
  SumPass pass(zeros, rows_of_piece(t), walk->dim, t.bucket_bits);
  uint32_t bucket = 0;
  if (t.bucket_bits > 0) {
    walk->plain = reinterpret_cast<const PlainEntry*>(t.entries) + piece.begin;
    walk->count = piece.end - piece.begin;
    bucket = walk->plain->row & ((1u << t.bucket_bits) - 1);
    input.ops.add_gradients(*walk, nullptr, pass.sums());
  } else {
    each_feature(t, input, [&](const tsr_lookup_feature& feature, int64_t output_row) {
      const IdRun run = id_run(input.batch, feature, output_row);
      input.ops.add_gradients(*walk, &run, pass.sums());
    });
  }
  walk->count = 0;
  pass.finish(*walk, bucket);
}

// Updates the rows that occur once if there are enough of them, and leaves the others in `walk`. Returns false if it
// did nothing.
bool GradientPlan::update_once(const TableEntries& t, const Piece& piece, const GradientInput& input, char* map,
                               Walk* walk) const {
  const int64_t n = piece.end - piece.begin;
  if (walk->block == nullptr || t.full || t.sorted || n < (t.formula ? kWorthMap : kWorthMapOfOutputRows)) return false;
  OnceMap once(map, n, t.bucket_bits, t.row_bits);
  mark(t, piece, input.batch, &once);
  if (once.places_taken() < n / 4 * 3) {
    std::atomic_ref(to_sort_[t.table]).store(kSortedInARow, std::memory_order_relaxed);
    return false;
  }
  const OncePass pass(*walk, once, input.ops);
  PlainEntry* const entries = reinterpret_cast<PlainEntry*>(t.entries) + piece.begin;
  PlainEntry* again = entries;
  if (t.bucket_bits > 0) {
    again = pass.run(entries, n, again);
  } else {
    each_feature(t, input, [&](const tsr_lookup_feature& feature, int64_t output_row) {
      again = pass.run(id_run(input.batch, feature, output_row), again);
    });
  }
  walk->count = again - entries;
  walk->plain = sort_by_row(entries, reinterpret_cast<PlainEntry*>(t.other) + piece.begin, walk->count, t.bucket_bits,
                            t.row_bits);
  return true;
}

void GradientPlan::prepare(const Piece& piece, const GradientInput& input, uint32_t worker, Walk* walk) const {
  TableEntries t = tables_[piece.plan];
  char* const room = worker_rooms_ + worker * room_bytes_;
  if (!keeps_entries(t)) place(room + map_bytes_, &t);
  walk->output_rows = t.output_rows;
  if (t.summed) return update_summed(t, piece, input, zeros_.data() + worker * zero_bytes_, walk);
  if (update_once(t, piece, input, room, walk)) return;
  walk->count = piece.end - piece.begin;
  if (t.full) {
    walk->full = gather_and_sort<FullEntry>(t, piece, input);
  } else {
    walk->plain = gather_and_sort<PlainEntry>(t, piece, input);
  }
}

}  // namespace tessera_cpu
