#include "checkpoint/row_blocks.h"

#include <algorithm>
#include <cmath>

#include "sparse/finite.h"

namespace tessera::checkpoint {
namespace {

constexpr int64_t kBlockFloats = int64_t{4} << 20;  // 16 MiB

// Values of a row of a shard in memory.
int64_t floats_per_row(const TableEntry& entry, const ShardMetadata& where) {
  int64_t floats = where.cols + entry.extra_words;
  for (const Lookup::State& s : entry.states) floats += s.per_row ? 1 : where.cols;
  return floats;
}

void add_blocks(std::vector<RowBlock>& out, const ModelTable& table, size_t shard) {
  const ShardMetadata& where = table.sharding->shards[shard];
  const int64_t step = std::max<int64_t>(1, kBlockFloats / floats_per_row(table.stored, where));
  for (int64_t first = 0; first < where.rows; first += step)
    out.push_back({&table, shard, first, std::min(step, where.rows - first)});
}

// A model that has come apart must not take the place of one that has not.
void check_finite(const RowBlock& block, const RowSet& rows, std::span<const float> weights) {
  const int64_t at = first_not_finite(weights);
  if (at < 0) return;
  fail(Code::kFailedPrecondition, "table \"", block.table->stored.name, "\" holds ",
       std::abs(weights[static_cast<size_t>(at)]), " in row ", rows.row(at / block.where().cols),
       ": nothing was saved, and the checkpoints before are as they were");
}

// Which column cuts a shard covers.
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

// Each of `count` groups of values so many times.
std::vector<float> repeated(const float* values, int64_t count, int64_t group, int64_t times) {
  std::vector<float> out(static_cast<size_t>(count * group * times));
  float* to = out.data();
  for (int64_t i = 0; i < count * times; ++i) to = std::copy_n(values + i / times * group, group, to);
  return out;
}

}  // namespace

int64_t RowBlock::floats() const { return count * floats_per_row(table->stored, where()); }

std::vector<RowBlock> blocks_to_store(const std::vector<ModelTable>& tables, int rank) {
  std::vector<RowBlock> out;
  for (const ModelTable& t : tables) {
    for (const size_t s : t.sharding->distinct()) {
      if (t.sharding->shards[s].rank == rank) add_blocks(out, t, s);
    }
  }
  return out;
}

std::vector<RowBlock> blocks_held(std::span<const ModelTable> tables, int rank) {
  std::vector<RowBlock> out;
  for (const ModelTable& t : tables) {
    for (size_t s = 0; s < t.sharding->shards.size(); ++s) {
      if (t.sharding->shards[s].rank == rank) add_blocks(out, t, s);
    }
  }
  return out;
}

BlockValues values_at(const RowBlock& block, float* memory) {
  const TableEntry& entry = block.table->stored;
  const int64_t cols = block.where().cols;
  BlockValues out{memory, {}, nullptr};
  memory += block.count * cols;
  for (const Lookup::State& s : entry.states) {
    out.states.push_back(memory);
    memory += block.count * (s.per_row ? 1 : cols);
  }
  if (entry.extra_words > 0) out.extra = memory;
  return out;
}

void read_values(const RowBlock& block, float* memory) {
  const BlockValues v = values_at(block, memory);
  block.table->collection->read_rows(block.table->held(block.shard), block.first, block.count, v.weights, v.states,
                                     v.extra);
}

void write_values(const RowBlock& block, const BlockValues& values) {
  const std::vector<const float*> states(values.states.begin(), values.states.end());
  block.table->collection->write_rows(block.table->held(block.shard), block.first, block.count, values.weights, states,
                                      values.extra);
}

RowSet table_rows(const RowBlock& block, std::vector<int64_t>& ids) {
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
  check_finite(block, rows, {values.weights, static_cast<size_t>(block.count * where.cols)});
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
}

}  // namespace tessera::checkpoint
