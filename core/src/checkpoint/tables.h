// The model's tables as a checkpoint sees them: whole, whatever the plan. What is here is known on every rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "tessera/distributed_model_parallel.h"

namespace tessera::checkpoint {

struct ModelTable {
  static constexpr auto kFollower = Lookup::Follower::kCheckpoints;  // of its changes

  ShardedEmbeddings* collection = nullptr;
  const ParameterSharding* sharding = nullptr;
  TableEntry stored;     // as this model would store it
  int64_t id_bound = 0;  // ids of its rows are below
  // Of rows that come on demand, or that have changed: how many each shard has now, and what this rank's have besides.
  std::vector<int64_t> rows_in_use;
  std::vector<std::string> table_extras;
  // Of changed rows that come on demand: how many ids of each shard have lost theirs, and which of this rank's.
  std::vector<int64_t> num_removed;
  std::vector<std::vector<int64_t>> removed;

  HeldShard held(size_t shard) const { return {stored.name, sharding->shards[shard], static_cast<int>(shard)}; }
  // The shard's rows, or removed ids, in the stored tensors: those of row sets before it are first. Of no shard
  // (sharding->shards.size()): all.
  int64_t first_stored(size_t shard) const { return before(shard, rows_in_use); }
  int64_t before(size_t shard, const std::vector<int64_t>& counts) const;
};

// Of all collections. What only the ranks that hold the tables know is asked of them: optimizer states, and of rows on
// demand how many there are now. kFailedPrecondition: shards of the same rows and other columns have different ones.
// kChanged: of tables whose kernels all know which of their rows have changed since the mark of checkpoints, and know
// the same of the same rows, those alone. Collective.
enum class Rows { kAll, kChanged };
std::vector<ModelTable> model_tables(DistributedModelParallel& model, Rows rows = Rows::kAll);

// Widths of the columns between all boundaries of a table's shards: one width where columns are not cut.
std::vector<int64_t> column_cuts(const ParameterSharding& sharding, int64_t dim);

// The state of columns [col, col + cols) from one value per cut: the mean, weighted by width; a copy within one cut.
float merged_state(std::span<const int64_t> cuts, const float* values, int64_t col, int64_t cols);

// Rows of a stored tensor that are written or read together: [first, first + count), or scattered.
struct RowSet {
  int64_t first = 0;
  int64_t count = 0;
  const int64_t* ids = nullptr;  // set: the rows, instead of first, first + 1, ...
  int64_t row(int64_t i) const { return ids ? ids[i] : first + i; }
  // The end of the run of consecutive rows that begins at index i.
  int64_t run_end(int64_t i) const;
};

// A part of a stored tensor [rows, width]: columns [col, col + cols) of some rows.
struct Slab {
  RowSet rows;
  int64_t width = 0;
  int64_t col = 0, cols = 0;
};

// values [count, cols], rounded to the tensor's type; of integers the bits.
void write_slab(OutputFile& file, const StoredTensor& tensor, const Slab& slab, const float* values);
// Whole rows into [count, width]; of integers the bits.
void read_rows(const InputFile& file, const StoredTensor& tensor, const RowSet& rows, int64_t width, float* into);

}  // namespace tessera::checkpoint
