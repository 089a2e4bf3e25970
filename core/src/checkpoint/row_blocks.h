// Splits tables into blocks of rows of their shards, in a fixed order. Saving, copying aside and loading all go through
// these blocks.
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
  int64_t first, count;  // rows of the shard; on-demand and changed rows are in their kernel's order

  const ShardMetadata& where() const { return table->sharding->shards[shard]; }
  int64_t floats() const;  // size of its values in memory
};

// Blocks that this rank stores in a checkpoint. The first of several copies is stored.
std::vector<RowBlock> blocks_to_store(const std::vector<ModelTable>& tables, int rank);
// Blocks of all rows that this rank holds.
std::vector<RowBlock> blocks_held(std::span<const ModelTable> tables, int rank);
// Adds blocks for `rows` rows of a shard.
void add_blocks(std::vector<RowBlock>& out, const ModelTable& table, size_t shard, int64_t rows);

// A block's values in memory, one array after the other: weights [count, cols], each state [count] or [count, cols],
// the kernel's extra words [count, words], and the ids of on-demand rows.
struct BlockValues {
  float* weights;
  std::vector<float*> states;
  float* extra;  // nullptr: none
  float* keys;   // the rows' int64 ids as bits; nullptr: rows are ranges
};
BlockValues values_at(const RowBlock& block, float* memory);
// Writes the values into the model, on-demand rows by values.keys. If `extra` is null, the kernel's extra words stay.
void write_values(const RowBlock& block, const BlockValues& values);

// Reads blocks from the model, in their order.
class BlockReader {
 public:
  void read(const RowBlock& block, float* memory);

 private:
  void read_by_cursor(const RowBlock& block, const BlockValues& values);
  uint64_t cursor_ = 0;
  std::vector<int64_t> ids_;
};

// Returns the stored rows that a block stands for. `ids` is memory for them and must live as long as the result.
RowSet table_rows(const RowBlock& block, std::vector<int64_t>& ids);

// Calls write(tensor's name, slab, values) for each place in the files where a block's values go. kFailedPrecondition:
// a weight is infinite or no number.
using WriteSlab = std::function<void(const std::string& name, const Slab& slab, const float* values)>;
void for_each_slab(const RowBlock& block, float* memory, const WriteSlab& write);

}  // namespace tessera::checkpoint
