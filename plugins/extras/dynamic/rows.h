// The rows of a table and their optimizer states, and the ids that have them.
#pragma once

#include <tessera/sdk/draft/changes.h>
#include <tessera/sdk/draft/on_demand.h>

#include <span>

#include "changed_rows.h"
#include "sketch.h"
#include "step_times.h"
#include "walk.h"

namespace extras {

constexpr int64_t kMostRows = 4'000'000'000;  // the most rows of a shard, because slots have 32 bits

// The description of a table, from its config and its options. A table of 0 columns only knows which ids have rows.
struct TableShape {
  // Reads its options out of the table's options.
  TableShape(const tsr_kernel_table& table, const OptimizerRef& optimizer, Options& options)
      : name(table.name), rows(table.rows), ids(table.rows), dim(table.dim), policy(options, table.name) {
    int64_t floats = dim;
    for (uint32_t k = 0; k < optimizer.num_states(); ++k) floats += optimizer.state_width(k, dim);
    row_bytes = static_cast<uint64_t>(floats) * sizeof(float);
    if ((table.flags & TSR_TABLE_ANY_ID) != 0) ids = INT64_MAX;
    capacity = policy.capacity > 0 ? std::min(policy.capacity, ids) : rows;
    if (policy.max_bytes > 0) capacity = std::min(capacity, static_cast<int64_t>(policy.max_bytes / row_bytes));
    if (capacity > kMostRows)
      fail(TSR_UNIMPLEMENTED, "table \"", name, "\" has room for ", capacity, " rows, but a shard holds at most ",
           kMostRows, ": set a capacity, or divide it among more shards");
    if (rows > 0 && capacity < 1)
      fail(TSR_INVALID_ARGUMENT, "table \"", name, "\": max_bytes is ", policy.max_bytes, ", but a row takes ",
           row_bytes);
  }
  // True if every id has its own slot, so that none is ever evicted.
  bool has_room_for_all() const { return capacity >= ids; }

  std::string name;
  int64_t rows;  // rows in the config, which also limits ids unless there is another bound
  int64_t ids;   // ids are below this
  int64_t dim;
  Policy policy;
  uint64_t row_bytes;  // including its states
  int64_t capacity;
};

class Table {
 public:
  // The content of tsr_rows::extra. If sightings are not counted, it is only the step.
  struct Extra {
    uint32_t step, count_bits;
  };
  uint32_t extra_bytes() const { return shape_.policy.evict == Evict::kLru ? sizeof(uint32_t) : sizeof(Extra); }

  Table(TableShape shape, uint32_t number, const OptimizerRef& optimizer, StartValues start)
      : shape_(std::move(shape)), number_(number), optimizer_(optimizer), start_(start) {
    spread_ = spread_of(shape_);
    clear();
  }

  const TableShape& shape() const { return shape_; }
  int64_t dim() const { return shape_.dim; }
  const Index& index() const { return index_; }
  // The row of an id, or the shared row for its id; kNone if there is none.
  uint32_t find(int64_t id) const { return id == TSR_SHARED_ROW_ID ? shared_row_ : index_.find(key(id)); }
  // The row that ids without a row share; kNone if there is none.
  uint32_t shared_row() const { return shared_row_; }
  // Call when ids without a row use the shared row in a step that trains.
  void use_shared(uint32_t step) {
    if (!std::exchange(shared_used_, true)) shared_changed_ = kAllFollowers;
    index_.head(shared_row_).step = step;
  }
  bool has_shared() const { return shared_used_; }
  float* row(uint32_t r) const { return weights_.data() + static_cast<int64_t>(r) * shape_.dim; }
  [[gnu::always_inline]] float* state(uint32_t k, uint32_t r) const {
    return reinterpret_cast<float*>(state_places_[k].first + r * state_places_[k].stride);
  }
  int64_t width(uint32_t k) const { return optimizer_.state_width(k, shape_.dim); }
  Key key(int64_t id) const { return spread_.key(id); }
  const Spread& spread() const { return spread_; }

  // An id that was looked up and has no row, with its position in the batch.
  struct Miss {
    Key key;
    int64_t position;
  };
  // Gives rows to ids that are admitted, and calls found(position, row) for each. The result does not depend on the
  // order of `misses`: a bucket first takes the new ids that the batch has most often, then goes by hash.
  template <class Found>
  void insert(std::vector<Miss>& misses, uint32_t step, const Found& found);

  // Call before a step's first lookup that trains; time 0 means unknown.
  void begin_step(uint32_t step, double time) {
    if (shape_.policy.ttl_seconds > 0 && time > 0) index_.expire_below(times_.first_young(step, time));
  }
  // Notes a sighting of a row that find() returned. An expired row begins anew. Returns true if the step had already
  // sighted it.
  [[gnu::always_inline]] bool touch(uint32_t row, uint32_t step) {
    const bool again = index_.head(row).step == step;
    if (index_.touch(row, step)) {
      ++evictions_;
      begin(row, index_.head(row).id);
    }
    return again;
  }
  Rows memory() const {
    return {index_.lines(), index_.heads(), index_.head_stride(), reinterpret_cast<char*>(weights_.data()),
            static_cast<uint64_t>(shape_.dim) * sizeof(float)};
  }
  // It is always inlined, because GCC 12 drops calls of functions that only prefetch.
  [[gnu::always_inline]] void prefetch_row(uint32_t r) const {
    __builtin_prefetch(&index_.head(r), 1);
    const auto* at = reinterpret_cast<const char*>(row(r));
    for (int64_t i = 0; i < shape_.dim * static_cast<int64_t>(sizeof(float)); i += 64) __builtin_prefetch(at + i);
  }

  void start_values(std::span<const int64_t> ids, float* out) const { start_.fill(number_, ids, shape_.dim, out); }
  uint64_t evictions() const { return evictions_; }

  // These implement abi/draft/changes.h.
  void mark(uint32_t follower);
  bool marked() const { return static_cast<bool>(changed_); }
  bool has_changed(uint32_t follower, uint32_t row) const {
    return row == shared_row_ ? shared_has_changed(follower) : changed_.has(follower, row);
  }
  void note_change(uint32_t row) {
    if (row == shared_row_)
      shared_changed_ = kAllFollowers;
    else
      changed_.add(row);
  }
  RowChanges changes(uint32_t follower) const;
  void export_changed(uint32_t follower, uint64_t& cursor, tsr_rows& rows) const;
  void export_removed(uint32_t follower, uint64_t& cursor, tsr_rows& rows) const;

  void export_rows(uint64_t& cursor, tsr_rows& rows) const;
  void import_rows(const tsr_rows& rows);
  // Save and add the table's state other than its rows (abi/draft/on_demand.h).
  void save_extra(const ExtraBytes& to) const;
  void add_extra(const ExtraBytes& from);
  tsr_kernel_stats stats() const;
  tsr_table_ages ages() const;

 private:
  static Spread spread_of(const TableShape& shape) {
    Spread out;
    out.all_ids = shape.has_room_for_all();
    if (out.all_ids) {
      out.buckets.slots = std::clamp<int64_t>(shape.ids, 1, int64_t{1} << Spread::kIdsShift);
      out.buckets.count = std::max<int64_t>(1, (shape.ids + out.buckets.slots - 1) / out.buckets.slots);
      out.buckets.full = out.buckets.count;
    } else {
      out.buckets = Buckets(shape.capacity, Cells::count(shape.rows));
    }
    out.lines = Index::lines_for(out.buckets.slots);
    return out;
  }
  // Removes all rows.
  void clear();
  // Prepares memory for the existing rows and for the next ones.
  void use_memory(bool soon) {
    const int64_t rows = index_.rows_taken() + (soon ? Line::kTogether : 0);
    if (rows == memory_for_) return;
    memory_for_ = rows;
    index_.use(rows, soon);
    weights_.use(static_cast<uint64_t>(rows * shape_.dim), soon);
    for (Pages<float>& state : states_) state.use(static_cast<uint64_t>(rows * shape_.dim), soon);
  }
  void begin_shared();
  void begin(uint32_t row, int64_t id) { begin_all(std::span(&id, 1), &row); }
  // Initialises rows of new ids with start values and start states.
  void begin_all(std::span<const int64_t> ids, const uint32_t* rows) {
    new_values_.resize(ids.size() * static_cast<size_t>(shape_.dim));
    if (shape_.dim > 0) start_values(ids, new_values_.data());
    for (size_t i = 0; i < ids.size(); ++i) {
      changed_.add(rows[i]);
      std::copy_n(new_values_.data() + static_cast<int64_t>(i) * shape_.dim, shape_.dim, row(rows[i]));
      for (uint32_t k = 0; k < optimizer_.num_states(); ++k)
        std::fill_n(state(k, rows[i]), width(k), static_cast<float>(optimizer_.state(k).start));
    }
  }
  // The number of sightings with which an id without a row enters; 0 if it is not admitted.
  uint32_t admitted(const Key& key, uint32_t sightings, uint32_t step) {
    if (index_.pinned(key.id)) return sightings;
    if (shape_.policy.admit_probability < 1) {  // a random draw per id and step
      const uint64_t drawn = scrambled(static_cast<int64_t>(key.hash ^ uint64_t{step} << 20));
      if (std::ldexp(static_cast<double>(drawn >> 11), -53) >= shape_.policy.admit_probability) return 0;
    }
    if (sketch_.empty()) return sightings;
    const uint32_t seen = sketch_.add(key, sightings);
    if (seen < shape_.policy.admit_after) return 0;
    return shape_.policy.tinylfu ? seen : sightings;
  }
  uint32_t row_for(int64_t id, const Extra* given);
  template <class Visit>
  void each_row(const Visit& visit) const;  // calls visit(slot, row)
  template <class Wanted>
  void export_some(uint64_t& cursor, tsr_rows& rows, const Wanted& wanted) const;
  bool shared_has_changed(uint32_t follower) const { return (shared_changed_ >> follower & 1) != 0; }
  bool is_gone(int64_t id) const { return id == TSR_SHARED_ROW_ID ? !shared_used_ : find(id) == kNone; }
  template <class Move>
  void move_row(const tsr_rows& rows, int64_t i, uint32_t own, const Move& move) const;

  TableShape shape_;
  uint32_t number_;
  OptimizerRef optimizer_;
  StartValues start_;
  Spread spread_;
  Index index_;
  StepTimes times_;
  Sketch sketch_;
  ChangedRows changed_;
  Pages<float> weights_;
  std::vector<Pages<float>> states_;  // states per element; states per row are in the index
  struct StatePlace {
    char* first;
    uint64_t stride;  // bytes from row to row
  };
  StatePlace state_places_[OptimizerRef::kMaxStates] = {};
  uint32_t shared_row_ = kNone;  // its number is above all other rows
  static constexpr uint32_t kAllFollowers = (1u << kFollowers) - 1;
  bool shared_used_ = false;
  uint32_t shared_changed_ = 0;            // bit 1 << follower is set if it changed since the follower's mark
  uint64_t evictions_ = 0, given_up_ = 0;  // given_up_: evictions by imported rows
  int64_t memory_for_ = 0;                 // number of rows that memory was prepared for

  static constexpr size_t kLinesAhead = 7, kHeadsAhead = 3;  // prefetch distances, in newcomers
  struct Newcomer {
    Key key;
    size_t first_miss;
    uint32_t sightings;
  };
  std::vector<Newcomer> newcomers_;  // scratch, like the members below
  std::vector<int64_t> new_ids_;
  std::vector<uint32_t> new_rows_;
  std::vector<float> new_values_;
};

template <class Found>
void Table::insert(std::vector<Miss>& misses, uint32_t step, const Found& found) {
  std::sort(misses.begin(), misses.end(), [](const Miss& a, const Miss& b) { return a.key.hash < b.key.hash; });
  newcomers_.clear();
  for (size_t i = 0; i < misses.size(); ++i) {
    if (i == 0 || misses[i].key.hash != misses[i - 1].key.hash) newcomers_.push_back({misses[i].key, i, 0});
    ++newcomers_.back().sightings;
  }
  std::sort(newcomers_.begin(), newcomers_.end(), [](const Newcomer& a, const Newcomer& b) {
    if (a.key.bucket != b.key.bucket) return a.key.bucket < b.key.bucket;
    return a.sightings != b.sightings ? a.sightings > b.sightings : a.key.hash < b.key.hash;
  });
  new_ids_.clear();
  new_rows_.clear();
  for (size_t next = 0; next < newcomers_.size();) {
    const Newcomer& n = newcomers_[next++];
    if (next + kLinesAhead < newcomers_.size()) index_.prefetch_lines(newcomers_[next + kLinesAhead].key);
    if (next + kHeadsAhead < newcomers_.size()) index_.prefetch_heads(newcomers_[next + kHeadsAhead].key);
    const uint32_t count = admitted(n.key, n.sightings, step);
    if (count == 0) continue;
    bool evicted = false;
    const uint32_t row = index_.take(n.key, step, count, evicted);
    if (row == kNone) continue;  // the bucket is full of ids of this step, or of ids that were seen more often
    evictions_ += evicted ? 1 : 0;
    new_ids_.push_back(n.key.id);
    new_rows_.push_back(row);
    for (size_t i = n.first_miss; i < n.first_miss + n.sightings; ++i) found(misses[i].position, row);
  }
  begin_all(new_ids_, new_rows_.data());
  use_memory(false);
}

}  // namespace extras
