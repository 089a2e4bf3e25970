// Forward of dynamic tables: finds the rows of ids, and sums bags while rows of later bags are being prefetched.
#include "dynamic.h"

namespace extras {
namespace {

// Ids go through several stages. A stage prefetches the data that the next one reads. The next stage follows at a
// distance of kApart ids, about as long as memory takes to answer. Each stage works on a few ids at a time, so that the
// processor overlaps the stages.
constexpr int64_t kTogether = Hashed::kMost;
constexpr int64_t kApart = 48;
constexpr int64_t kRing = 128;  // ids between the first stage and the last, a power of two
static_assert(kRing >= 2 * kApart + kTogether && kApart % kTogether == 0);

}  // namespace

// The results of one stage for the next stages.
struct DynamicTables::Ring {
  Hashed hashed[kRing / kTogether];
  uint32_t guesses[kRing];
};

// The stages for one feature's ids. Positions are relative to the feature.
struct DynamicTables::Way {
  Table& table;
  const WalkTable& walk;
  const Rows memory;
  const size_t lines_index, sighting;
  const bool plain;  // true if the walk's settle() can be used
  const int64_t* const ids;
  uint32_t* const rows;
  const int64_t count;
  const int64_t first;  // position in the batch
  const uint32_t step;
  const bool trains;
  std::vector<Table::Miss>& misses;
  std::vector<uint32_t>& again;
  std::vector<int64_t>& without;  // positions that have no row, ascending
  const uint32_t absent;          // the row of those ids; kNone in training, where they may still get one
  Ring& ring;

  Hashed& hashed_of(int64_t p) const { return ring.hashed[p / kTogether % (kRing / kTogether)]; }
  int64_t some(int64_t p) const { return std::min(kTogether, count - p); }

  // Each stage handles up to kTogether positions from p on, which is a multiple of kTogether.
  void hash(int64_t p) const { walk.hash(table.spread(), memory.lines, ids + p, some(p), hashed_of(p)); }
  void guess(int64_t p) const {
    walk.guess[lines_index](table.index(), memory, hashed_of(p), some(p), ring.guesses + (p & (kRing - 1)));
  }
  void settle(int64_t p) {
    const uint32_t* const guesses = ring.guesses + (p & (kRing - 1));
    const int64_t end = some(p);
    for (int64_t i = 0; i < end; ++i) {
      const int64_t done = plain ? walk.settle[sighting](memory, ids + p + i, guesses + i, end - i, step) : 0;
      std::copy_n(guesses + i, done, rows + p + i);
      i += done;
      if (i < end) settle_one(p + i, guesses[i]);
    }
  }
  void settle_one(int64_t p, uint32_t row) {
    if (row != kNone && table.index().head(row).id != ids[p]) row = table.index().find(table.key(ids[p]));
    const bool there = row != kNone && (trains || !table.index().expired(table.index().head(row).step, step));
    rows[p] = there ? row : absent;
    if (!there) {
      without.push_back(first + p);
      if (trains) misses.push_back({table.key(ids[p]), first + p});
    } else if (trains && table.touch(row, step)) {
      again.push_back(row);
    }
  }
};

void DynamicTables::Places::begin(size_t ids, size_t tables, bool training) {
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
  if (trains) {
    insert(batch, places);
    note_changes(batch, places);  // a sighting changes the row's extra data
  }
  places.settled = true;
  for (const Table& table : tables_) places.evictions.push_back(table.evictions());
  for (const Waiting& w : waiting_) pool(batch, *w.feature, w.bag, places, w.output);
  if (context == nullptr) return;
  free_.pop_back();
  *context = reinterpret_cast<tsr_context*>(&places);
}

void DynamicTables::release(tsr_context* context) noexcept { free_.push_back(reinterpret_cast<Places*>(context)); }

// Finds the rows of a feature's ids and sums its bags. Bags with ids that may get a row in this step wait.
void DynamicTables::look_up(const Batch& batch, const tsr_lookup_feature& feature, Places& places, float* output) {
  const auto t = static_cast<size_t>(feature.table);
  const int64_t first = batch.begin(feature, 0), last = batch.begin(feature, feature.bags);
  const Table& table = tables_[t];
  without_.clear();
  Ring ring;  // deliberately not initialised
  Way way{.table = tables_[t],
          .walk = walk_,
          .memory = table.memory(),
          .lines_index = WalkTable::lines_index(table.memory().row_bytes),
          .sighting = static_cast<size_t>(!places.trains           ? Sighting::kNone
                                          : table.index().counts() ? Sighting::kCounted
                                                                   : Sighting::kNoted),
          .plain = table.index().touches_plainly(),
          .ids = batch.ids.data() + first,
          .rows = places.rows.data() + first,
          .count = last - first,
          .first = first,
          .step = static_cast<uint32_t>(batch.lookup.step),
          .trains = places.trains,
          .misses = misses_[t],
          .again = places.again[t],
          .without = without_,
          .absent = places.trains ? kNone : table.shared_row(),
          .ring = ring};
  const int64_t bags = feature.pooling == TSR_POOLING_NONE ? last - first : feature.bags;
  int64_t bag = 0, end = bags > 0 ? batch.end_of(feature, 0) : 0;
  size_t next_without = 0;
  for (int64_t p = 0; bag < bags; p += kTogether) {
    if (p < way.count) way.hash(p);
    if (p >= kApart && p < way.count + kApart) way.guess(p - kApart);
    if (p >= 2 * kApart && p < way.count + 2 * kApart) way.settle(p - 2 * kApart);
    const int64_t here = first + std::min(p - 2 * kApart + kTogether, way.count);
    for (; bag < bags && end <= here; end = ++bag < bags ? batch.end_of(feature, bag) : 0) {
      const int64_t begin = feature.pooling == TSR_POOLING_NONE ? end - 1 : batch.begin(feature, bag);
      while (next_without < without_.size() && without_[next_without] < begin) ++next_without;
      if (next_without == without_.size() || without_[next_without] >= end) {
        float* const out = output + batch.output(feature, bag);
        walk_.sum(way.memory, places.rows.data() + begin, batch.weights == nullptr ? nullptr : batch.weights + begin,
                  end - begin, table.dim(), out);
        divide(feature, end - begin, table.dim(), out);
      } else if (!pool(batch, feature, bag, places, output)) {
        waiting_.push_back({&feature, output, bag});
      }
    }
  }
  lookups_[t] += static_cast<uint64_t>(last - first);
  hits_[t] += static_cast<uint64_t>(last - first) - without_.size();
}

void DynamicTables::insert(const Batch& batch, Places& places) {
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (misses_[t].empty()) continue;
    uint32_t last = kNone;
    tables_[t].insert(misses_[t], static_cast<uint32_t>(batch.lookup.step), [&](int64_t position, uint32_t row) {
      places.rows[static_cast<size_t>(position)] = row;
      if (std::exchange(last, row) == row) places.again[t].push_back(row);
    });
    share(t, static_cast<uint32_t>(batch.lookup.step), places);
  }
}

// Gives the shared row to ids that got none. Two features may have read the same positions.
void DynamicTables::share(size_t t, uint32_t step, Places& places) {
  const uint32_t shared = tables_[t].shared_row();
  if (shared == kNone) return;
  int64_t readers = 0;
  for (const Table::Miss& miss : misses_[t]) {
    uint32_t& row = places.rows[static_cast<size_t>(miss.position)];
    if (row != kNone && row != shared) continue;
    row = shared;
    ++readers;
  }
  if (readers > 0) tables_[t].use_shared(step);
  if (readers > 1) places.again[t].push_back(shared);
}

// The values of an id without a row: zeros, or its start values in absent_, which has space for them.
const float* DynamicTables::absent(const Batch& batch, const Table& table, int64_t position, size_t taken) {
  if (table.shape().policy.absent != Absent::kStart || (batch.lookup.flags & TSR_LOOKUP_READ_ONLY) != 0)
    return zeros_.data();
  float* const out = absent_.data() + taken;
  table.start_values(batch.ids.subspan(static_cast<size_t>(position), 1), out);
  return out;
}

// Divides a bag's sum by its length, if the feature has MEAN pooling.
void DynamicTables::divide(const tsr_lookup_feature& feature, int64_t length, int64_t dim, float* out) {
  if (feature.pooling != TSR_POOLING_MEAN || length < 2) return;
  for (int64_t d = 0; d < dim; ++d) out[d] /= static_cast<float>(length);
}

// Returns false, without effect, if some of the bag's ids have no row yet. Without pooling, a bag is one position.
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
    if (table.shape().policy.absent == Absent::kStart) absent_.resize(length * static_cast<size_t>(dim));
    addresses_[i] = absent(batch, table, begin + static_cast<int64_t>(i), i * static_cast<size_t>(dim));
  }
  float* const out = output + batch.output(feature, bag);
  sum_(addresses_.data(), batch.weights == nullptr ? nullptr : batch.weights + begin, end - begin, dim, out);
  divide(feature, end - begin, dim, out);
  return true;
}

}  // namespace extras
