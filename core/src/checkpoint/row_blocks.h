// The stream of rows: tables as blocks of rows of their shards, in an order that stays. What saves rows, copies them
// aside or loads them goes through these blocks, and does something else with each.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/tables.h"

namespace tessera::checkpoint {

struct RowBlock {
  const ModelTable* table;
  size_t shard;
  int64_t first, count;  // rows of the shard; of those on demand, or changed, in the order of their kernel

  const ShardMetadata& where() const { return table->sharding->shards[shard]; }
  int64_t floats() const;  // its values in memory take
};

// What this rank stores in a checkpoint: its rows, and of copies the first.
std::vector<RowBlock> blocks_to_store(const std::vector<ModelTable>& tables, int rank);
// All that this rank holds.
std::vector<RowBlock> blocks_held(std::span<const ModelTable> tables, int rank);
// So many rows of a shard.
void add_blocks(std::vector<RowBlock>& out, const ModelTable& table, size_t shard, int64_t rows);

// A block's values in memory, one behind the other: weights [count, cols], each state [count] or [count, cols], and
// the extra_words [count, words] of the kernel, the ids of rows on demand.
struct BlockValues {
  float* weights;
  std::vector<float*> states;
  float* extra;  // nullptr: none
  float* keys;   // the bits of the rows' ids, int64; nullptr: rows are ranges
};
BlockValues values_at(const RowBlock& block, float* memory);
// Into the model, rows on demand by values.keys; what is there stays where `extra` is null.
void write_values(const RowBlock& block, const BlockValues& values);

// Blocks out of the model, in their order.
class BlockReader {
 public:
  void read(const RowBlock& block, float* memory);

 private:
  void read_by_cursor(const RowBlock& block, const BlockValues& values);
  uint64_t cursor_ = 0;
  std::vector<int64_t> ids_;
};

// The table's rows behind a block as they are stored; `ids` is memory for them, and kept as long as the result.
RowSet table_rows(const RowBlock& block, std::vector<int64_t>& ids);

// Calls write(tensor's name, slab, values) for all that a block's values are in files. kFailedPrecondition: a weight is
// infinite or no number.
using WriteSlab = std::function<void(const std::string& name, const Slab& slab, const float* values)>;
void for_each_slab(const RowBlock& block, float* memory, const WriteSlab& write);

}  // namespace tessera::checkpoint
