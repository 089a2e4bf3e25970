// Forward of dynamic tables: ids become rows, and bags are summed while rows of later ones are on their way.
#include "dynamic.h"

namespace flagships {
namespace {

// Ids go through stages, each as many ids behind the one before it as it takes memory to answer: what a stage has asked
// for is there when the next one needs it. A few ids at a time, so that the processor works at all stages at once.
constexpr int64_t kTogether = 8;
constexpr int64_t kApart = 64;
constexpr int64_t kRing = 256;  // ids between the first stage and the third, a power of two
static_assert(kRing >= 2 * kApart + kTogether);

}  // namespace

// A feature's ids on their way to their rows. Positions are those of the batch.
struct DynamicTables::Way {
  Table& table;
  const int64_t* const ids;
  uint32_t* const slots;
  uint32_t* const rows;
  const uint32_t step;
  const bool trains;
  std::vector<Table::Miss>& misses;
  std::vector<uint32_t>& again;
  uint64_t hits = 0;
  Key keys[kRing];
  uint32_t guesses[kRing];

  [[gnu::always_inline]] void hash(int64_t p) {
    const Key key = table.key(ids[p]);
    table.index().prefetch(key);
    keys[p & (kRing - 1)] = key;
  }
  [[gnu::always_inline]] void guess(int64_t p) {
    guesses[p & (kRing - 1)] = table.index().guess(keys[p & (kRing - 1)]);
  }
  [[gnu::always_inline]] void settle(int64_t p) {
    const Key& key = keys[p & (kRing - 1)];
    uint32_t slot = guesses[p & (kRing - 1)];
    if (slot == kNone || table.index().slot(slot).id != key.id) slot = table.index().find(key);
    const bool there = slot != kNone && (trains || !table.index().expired(table.index().slot(slot).step, step));
    slots[p] = there ? slot : kNone;
    rows[p] = there ? table.index().slot(slot).row : kNone;
    if (there) {
      ++hits;
      table.prefetch_row(rows[p]);
      if (trains && table.touch(slot, step)) again.push_back(rows[p]);
    } else if (trains) {
      misses.push_back({key, p});
    }
  }
};

void DynamicTables::Places::begin(size_t ids, size_t tables, bool training) {
  slots.resize(ids);
  rows.resize(ids);
  evictions.clear();
  again.resize(tables);
  for (auto& some : again) some.clear();
  trains = training;
  settled = false;
}

void DynamicTables::forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context** context) {
  const Batch batch = read(lookup);
  const bool trains = (lookup.flags & TSR_LOOKUP_READ_ONLY) == 0;
  if (context != nullptr && free_.empty()) free_.push_back(&places_.emplace_back());
  Places& places = context == nullptr ? without_context_ : *free_.back();
  places.begin(batch.ids.size(), tables_.size(), trains);
  for (auto& misses : misses_) misses.clear();
  waiting_.clear();
  if (trains) {
    for (Table& table : tables_) table.begin_step(static_cast<uint32_t>(lookup.step), lookup.time);
  }
  for (uint32_t f = 0; f < lookup.num_features; ++f) {
    const tsr_lookup_feature& feature = feature_of(lookup, f);
    if (feature.pooling == TSR_POOLING_MAX) fail(TSR_UNIMPLEMENTED, "dynamic tables have no MAX pooling");
    if (feature.bags > 0) look_up(batch, feature, places, data_as<float>(output_of(lookup, feature, output)));
  }
  if (trains) insert(batch, places);
  places.settled = true;
  for (const Table& table : tables_) places.evictions.push_back(table.evictions());
  for (const Waiting& w : waiting_) pool(batch, *w.feature, w.bag, places, w.output);
  if (context == nullptr) return;
  free_.pop_back();
  *context = reinterpret_cast<tsr_context*>(&places);
}

void DynamicTables::release(tsr_context* context) noexcept { free_.push_back(reinterpret_cast<Places*>(context)); }

// The rows of a feature's ids, and the sums of its bags; those with ids that may get a row in this step wait.
void DynamicTables::look_up(const Batch& batch, const tsr_lookup_feature& feature, Places& places, float* output) {
  const auto t = static_cast<size_t>(feature.table);
  Way way{.table = tables_[t],
          .ids = batch.ids.data(),
          .slots = places.slots.data(),
          .rows = places.rows.data(),
          .step = static_cast<uint32_t>(batch.lookup.step),
          .trains = places.trains,
          .misses = misses_[t],
          .again = places.again[t]};
  const int64_t first = batch.begin(feature, 0), last = batch.begin(feature, feature.bags);
  const int64_t bags = feature.pooling == TSR_POOLING_NONE ? last - first : feature.bags;
  const auto each = [&](int64_t from, const auto& stage) {
    for (int64_t p = std::max(from, first), end = std::min(from + kTogether, last); p < end; ++p) stage(p);
  };
  int64_t bag = 0;
  for (int64_t at = first; at < last + 3 * kApart; at += kTogether) {
    each(at, [&](int64_t p) { way.hash(p); });
    each(at - kApart, [&](int64_t p) { way.guess(p); });
    each(at - 2 * kApart, [&](int64_t p) { way.settle(p); });
    const int64_t here = std::min(at - 3 * kApart + kTogether, last);
    for (; bag < bags && batch.end_of(feature, bag) <= here; ++bag) {
      if (!pool(batch, feature, bag, places, output)) waiting_.push_back({&feature, output, bag});
    }
  }
  lookups_[t] += static_cast<uint64_t>(last - first);
  hits_[t] += way.hits;
}

void DynamicTables::insert(const Batch& batch, Places& places) {
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (misses_[t].empty()) continue;
    uint32_t last = kNone;
    tables_[t].insert(misses_[t], static_cast<uint32_t>(batch.lookup.step), [&](int64_t position, uint32_t slot) {
      const uint32_t row = tables_[t].index().slot(slot).row;
      places.slots[static_cast<size_t>(position)] = slot;
      places.rows[static_cast<size_t>(position)] = row;
      if (std::exchange(last, slot) == slot) places.again[t].push_back(row);
    });
  }
}

// Of an id without a row: zeros, or its start values in a place of absent_, which has room for them.
const float* DynamicTables::absent(const Batch& batch, const Table& table, int64_t position, size_t taken) {
  if (!table.shape().policy.start_values || (batch.lookup.flags & TSR_LOOKUP_READ_ONLY) != 0) return zeros_.data();
  float* const out = absent_.data() + taken;
  table.start_values(batch.ids.subspan(static_cast<size_t>(position), 1), out);
  return out;
}

// False: nothing was done, as some of the bag's ids have no row yet. Without pooling, a bag is one position.
bool DynamicTables::pool(const Batch& batch, const tsr_lookup_feature& feature, int64_t bag, const Places& places,
                         float* output) {
  const Table& table = tables_[static_cast<size_t>(feature.table)];
  const int64_t dim = table.dim(), end = batch.end_of(feature, bag);
  const int64_t begin = feature.pooling == TSR_POOLING_NONE ? end - 1 : batch.begin(feature, bag);
  const auto length = static_cast<size_t>(end - begin);
  const uint32_t* const rows = places.rows.data() + begin;
  if (addresses_.size() < length) addresses_.resize(length);
  for (size_t i = 0; i < length; ++i) {
    if (rows[i] != kNone) {
      addresses_[i] = table.row(rows[i]);
      continue;
    }
    if (places.trains && !places.settled) return false;
    if (table.shape().policy.start_values) absent_.resize(length * static_cast<size_t>(dim));
    addresses_[i] = absent(batch, table, begin + static_cast<int64_t>(i), i * static_cast<size_t>(dim));
  }
  float* const out = output + batch.output(feature, bag);
  sum_(addresses_.data(), batch.weights == nullptr ? nullptr : batch.weights + begin, end - begin, dim, out);
  if (feature.pooling != TSR_POOLING_MEAN || length < 2) return true;
  for (int64_t d = 0; d < dim; ++d) out[d] /= static_cast<float>(length);
  return true;
}

}  // namespace flagships
