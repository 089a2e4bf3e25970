#include "checkpoint/row_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "sparse/finite.h"

namespace tessera::checkpoint {
namespace {

constexpr int64_t kBlockFloats = int64_t{4} << 20;  // 16 MiB
constexpr int64_t kKeyFloats = sizeof(int64_t) / sizeof(float);

// Number of floats that a row of a shard takes in memory.
int64_t floats_per_row(const TableEntry& entry, const ShardMetadata& where) {
  int64_t floats = where.cols + entry.extra_words + (entry.keys ? kKeyFloats : 0);
  for (const Lookup::State& s : entry.states) floats += s.per_row ? 1 : where.cols;
  return floats;
}

// A model with infinities or NaN must not replace a good checkpoint.
void check_finite(const RowBlock& block, const RowSet& rows, const BlockValues& values) {
  const int64_t at = first_not_finite({values.weights, static_cast<size_t>(block.count * block.where().cols)});
  if (at < 0) return;
  int64_t row = rows.row(at / block.where().cols);
  if (values.keys) std::memcpy(&row, values.keys + at / block.where().cols * kKeyFloats, sizeof(row));
  fail(Code::kFailedPrecondition, "table \"", block.table->stored.name, "\" holds ", std::abs(values.weights[at]),
       " in row ", row, ": nothing was saved, and earlier checkpoints are unchanged");
}

// The column cuts that a shard covers.
Slab cuts_of(const TableEntry& entry, const ShardMetadata& where) {
  Slab slab{{}, static_cast<int64_t>(entry.cuts.size()), 0, 0};
  int64_t begin = 0;
  for (const int64_t width : entry.cuts) {
    if (begin < where.col) ++slab.col;
    if (begin >= where.col && begin < where.col + where.cols) ++slab.cols;
    begin += width;
  }
  return slab;
}

// Repeats each of `count` groups of values `times` times.
std::vector<float> repeated(const float* values, int64_t count, int64_t group, int64_t times) {
  std::vector<float> out(static_cast<size_t>(count * group * times));
  float* to = out.data();
  for (int64_t i = 0; i < count * times; ++i) to = std::copy_n(values + i / times * group, group, to);
  return out;
}

}  // namespace

int64_t RowBlock::floats() const { return count * floats_per_row(table->stored, where()); }

void add_blocks(std::vector<RowBlock>& out, const ModelTable& table, size_t shard, int64_t rows) {
  const int64_t step = std::max<int64_t>(1, kBlockFloats / floats_per_row(table.stored, table.sharding->shards[shard]));
  for (int64_t first = 0; first < rows; first += step)
    out.push_back({&table, shard, first, std::min(step, rows - first)});
}

std::vector<RowBlock> blocks_to_store(const std::vector<ModelTable>& tables, int rank) {
  std::vector<RowBlock> out;
  for (const ModelTable& t : tables) {
    for (const size_t s : t.sharding->distinct()) {
      const ShardMetadata& where = t.sharding->shards[s];
      if (where.rank == rank) add_blocks(out, t, s, t.stored.keys ? t.rows_in_use[s] : where.rows);
    }
  }
  return out;
}

std::vector<RowBlock> blocks_held(std::span<const ModelTable> tables, int rank) {
  std::vector<RowBlock> out;
  for (const ModelTable& t : tables) {
    for (size_t s = 0; s < t.sharding->shards.size(); ++s) {
      const ShardMetadata& where = t.sharding->shards[s];
      if (where.rank == rank) add_blocks(out, t, s, t.stored.keys ? t.rows_in_use[s] : where.rows);
    }
  }
  return out;
}

BlockValues values_at(const RowBlock& block, float* memory) {
  const TableEntry& entry = block.table->stored;
  const int64_t cols = block.where().cols;
  BlockValues out{memory, {}, nullptr, nullptr};
  memory += block.count * cols;
  for (const Lookup::State& s : entry.states) {
    out.states.push_back(memory);
    memory += block.count * (s.per_row ? 1 : cols);
  }
  if (entry.extra_words > 0) out.extra = memory;
  if (entry.keys) out.keys = memory + block.count * entry.extra_words;
  return out;
}

void BlockReader::read(const RowBlock& block, float* memory) {
  const BlockValues v = values_at(block, memory);
  if (v.keys) return read_by_cursor(block, v);
  block.table->collection->read_rows(block.table->held(block.shard), block.first, block.count, v.weights, v.states,
                                     v.extra);
}

void BlockReader::read_by_cursor(const RowBlock& block, const BlockValues& v) {
  const TableEntry& entry = block.table->stored;
  const HeldShard held = block.table->held(block.shard);
  if (block.first == 0) cursor_ = 0;
  ids_.resize(static_cast<size_t>(block.count));
  for (int64_t done = 0, count = 0; done < block.count; done += count) {
    std::vector<float*> states;
    for (size_t k = 0; k < v.states.size(); ++k)
      states.push_back(v.states[k] + done * (entry.states[k].per_row ? 1 : block.where().cols));
    const std::span<int64_t> ids = std::span(ids_).subspan(static_cast<size_t>(done));
    float* const weights = v.weights + done * block.where().cols;
    float* const extra = v.extra ? v.extra + done * entry.extra_words : nullptr;
    count = entry.changes ? block.table->collection->export_changed(ModelTable::kFollower, held, cursor_, ids, weights,
                                                                    states, extra)
                          : block.table->collection->export_rows(held, cursor_, ids, weights, states, extra);
    if (count == 0)
      fail(Code::kInternal, "table \"", entry.name, "\" gives fewer rows than its kernel says that it has");
  }
  std::memcpy(v.keys, ids_.data(), ids_.size() * sizeof(int64_t));
}

void write_values(const RowBlock& block, const BlockValues& values) {
  const std::vector<const float*> states(values.states.begin(), values.states.end());
  const HeldShard held = block.table->held(block.shard);
  ShardedEmbeddings& to = *block.table->collection;
  if (!values.keys) return to.write_rows(held, block.first, block.count, values.weights, states, values.extra);
  std::vector<int64_t> ids(static_cast<size_t>(block.count));
  std::memcpy(ids.data(), values.keys, ids.size() * sizeof(int64_t));
  to.import_rows(held, ids, values.weights, states, values.extra);
}

RowSet table_rows(const RowBlock& block, std::vector<int64_t>& ids) {
  if (block.table->stored.keys) return {block.table->first_stored(block.shard) + block.first, block.count};
  if (!block.table->sharding->routed) return {block.where().row + block.first, block.count};
  const TableEntry& entry = block.table->stored;
  ids = block.table->collection->table_rows(block.table->held(block.shard), block.first, block.count);
  for (const int64_t id : ids) {
    if (id < 0 || id >= entry.rows)
      fail(Code::kInternal, "the sharder of table \"", entry.name, "\" names row ", id, " of ", entry.rows);
  }
  return {0, block.count, ids.data()};
}

void for_each_slab(const RowBlock& block, float* memory, const WriteSlab& write) {
  const TableEntry& entry = block.table->stored;
  const ShardMetadata& where = block.where();
  const BlockValues values = values_at(block, memory);
  std::vector<int64_t> ids;
  const RowSet rows = table_rows(block, ids);
  check_finite(block, rows, values);
  const Slab columns{rows, entry.dim, where.col, where.cols};
  Slab cuts = cuts_of(entry, where);
  cuts.rows = rows;
  const auto write_cuts = [&](const std::string& name, const float* from, int64_t words) {
    const Slab slab{rows, cuts.width * words, cuts.col * words, cuts.cols * words};
    if (cuts.cols == 1) return write(name, slab, from);
    write(name, slab, repeated(from, block.count, words, cuts.cols).data());
  };
  write(entry.parameter, columns, values.weights);
  for (size_t k = 0; k < entry.states.size(); ++k) {
    if (entry.states[k].per_row)
      write_cuts(entry.state_name(k), values.states[k], 1);
    else
      write(entry.state_name(k), columns, values.states[k]);
  }
  if (values.extra) write_cuts(entry.extra_name(), values.extra, entry.extra_words);
  if (values.keys && where.col == 0) write(entry.keys_name(), {rows, 1, 0, 1}, values.keys);
}

}  // namespace tessera::checkpoint
