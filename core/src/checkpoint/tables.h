// The model's tables as a checkpoint sees them: whole, whatever the plan. Every rank knows all of this.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "tessera/distributed_model_parallel.h"

namespace tessera::checkpoint {

struct ModelTable {
  static constexpr auto kFollower = Lookup::Follower::kCheckpoints;  // whose changes are stored

  ShardedEmbeddings* collection = nullptr;
  const ParameterSharding* sharding = nullptr;
  TableEntry stored;     // as this model would store it
  int64_t id_bound = 0;  // ids are below this
  // Set for on-demand and changed rows: the current number of rows of each shard, and this rank's extra bytes.
  std::vector<int64_t> rows_in_use;
  std::vector<std::string> table_extras;
  // Set for changed on-demand rows: the number of removed ids of each shard, and this rank's removed ids.
  std::vector<int64_t> num_removed;
  std::vector<std::vector<int64_t>> removed;

  HeldShard held(size_t shard) const { return {stored.name, sharding->shards[shard], static_cast<int>(shard)}; }
  // Index of the shard's first row, or removed id, in the stored tensors; rows of earlier row sets come first. The
  // shard number sharding->shards.size() gives the total.
  int64_t first_stored(size_t shard) const { return before(shard, rows_in_use); }
  int64_t before(size_t shard, const std::vector<int64_t>& counts) const;
};

// Describes the tables of all collections. Ranks that hold a table tell the others its optimizer states and its number
// of on-demand rows. kChanged: tables whose kernels all know the rows that changed since the checkpoint's mark, and
// agree on them, list only those rows. kFailedPrecondition: shards of the same rows but other columns hold different
// rows. Collective.
enum class Rows { kAll, kChanged };
std::vector<ModelTable> model_tables(DistributedModelParallel& model, Rows rows = Rows::kAll);

// Widths of the columns between all boundaries of a table's shards: one width if columns are not cut.
std::vector<int64_t> column_cuts(const ParameterSharding& sharding, int64_t dim);

// Merges one value per cut into the state of columns [col, col + cols): a mean weighted by width, or a copy within one
// cut.
float merged_state(std::span<const int64_t> cuts, const float* values, int64_t col, int64_t cols);

// Rows of a stored tensor that are written or read together: [first, first + count), or scattered.
struct RowSet {
  int64_t first = 0;
  int64_t count = 0;
  const int64_t* ids = nullptr;  // if set, these rows instead of first, first + 1, ...
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

// Writes values [count, cols], rounded to the tensor's type. Integers are copied as bits.
void write_slab(OutputFile& file, const StoredTensor& tensor, const Slab& slab, const float* values);
// Reads whole rows into [count, width]. Integers are copied as bits.
void read_rows(const InputFile& file, const StoredTensor& tensor, const RowSet& rows, int64_t width, float* into);

}  // namespace tessera::checkpoint
