#include "train/start_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "checkpoint/row_blocks.h"
#include "checkpoint/together.h"

namespace tessera {
namespace {

constexpr const char* kLogFrequency = "log_frequency";

void set_block(const checkpoint::RowBlock& block, const SetRow& set, std::vector<float>& memory) {
  memory.resize(static_cast<size_t>(block.floats()));
  checkpoint::BlockReader().read(block, memory.data());
  const checkpoint::BlockValues values = checkpoint::values_at(block, memory.data());
  std::vector<int64_t> ids;
  const checkpoint::RowSet rows = checkpoint::table_rows(block, ids);
  const ShardMetadata& w = block.where();
  for (int64_t i = 0; i < block.count; ++i) set(rows.row(i), w.col, w.cols, values.weights + i * w.cols);
  checkpoint::write_values(block, values);
}

// Adds those of the block's ids that belong to its shard.
void add_block(const checkpoint::RowBlock& block, std::span<const int64_t> ids, const SetRow& set) {
  const HeldShard held = block.table->held(block.shard);
  ShardedEmbeddings& to = *block.table->collection;
  ids = ids.subspan(static_cast<size_t>(block.first), static_cast<size_t>(block.count));
  const std::vector<bool> owned = to.owns_rows(held, ids);
  std::vector<int64_t> own;
  std::vector<float> weights;
  for (int64_t i = 0; i < block.count; ++i) {
    if (!owned[static_cast<size_t>(i)]) continue;
    own.push_back(ids[static_cast<size_t>(i)]);
    weights.resize(weights.size() + static_cast<size_t>(held.where.cols));
    set(block.first + i, held.where.col, held.where.cols, weights.data() + std::ssize(weights) - held.where.cols);
  }
  if (!own.empty()) to.import_rows(held, own, weights.data(), {});
}

template <class Id>
void count(const Tensor& values, int64_t begin, int64_t end, std::span<double> counts) {
  for (int64_t i = begin; i < end; ++i) {
    const auto id = static_cast<int64_t>(values.data<Id>()[i]);
    if (id >= 0 && id < std::ssize(counts)) counts[static_cast<size_t>(id)] += 1;
  }
}

// Counts how often `samples` have each row of the table, over all ranks.
std::vector<double> frequencies(const TableConfig& table, const Samples& samples, const ProcessGroup& group) {
  constexpr int64_t kBatch = 8192;
  std::vector<double> counts(static_cast<size_t>(table.rows));
  BatchReader reader(samples, {kBatch, group.rank(), group.world_size()});
  for (Batch batch; reader.next(batch);) {
    const KeyedJaggedTensor& sparse = batch.sparse;
    for (size_t k = 0; k < sparse.keys().size(); ++k) {
      if (std::find(table.features.begin(), table.features.end(), sparse.keys()[k]) == table.features.end()) continue;
      const int64_t begin = sparse.offset_per_key()[k], end = begin + sparse.length_per_key()[k];
      if (sparse.values().dtype() == DType::kInt32)
        count<int32_t>(sparse.values(), begin, end, counts);
      else
        count<int64_t>(sparse.values(), begin, end, counts);
    }
  }
  const Tensor all = Tensor::from(counts);
  if (group.world_size() > 1) group.all_reduce(all, ReduceOp::kSum, "frequencies of ids").wait();
  return all.to_vector<double>();
}

}  // namespace

// Works on the rows that this rank holds, a block at a time.
void set_rows(const checkpoint::ModelTable& table, const ProcessGroup& group, const SetRow& set) {
  const std::vector<checkpoint::RowBlock> blocks = checkpoint::blocks_held({&table, 1}, group.rank());
  size_t done = 0;
  std::vector<float> memory;
  checkpoint::together_in_turns(group, "start of a table", [&] {
    if (done == blocks.size()) return false;
    set_block(blocks[done++], set, memory);
    return true;
  });
}

int64_t add_rows(const checkpoint::ModelTable& table, const ProcessGroup& group, std::span<const int64_t> ids,
                 const SetRow& set) {
  constexpr int64_t kBlock = 4096;
  std::vector<checkpoint::RowBlock> blocks;
  for (size_t s = 0; s < table.sharding->shards.size(); ++s) {
    const ShardMetadata& where = table.sharding->shards[s];
    for (int64_t first = 0; where.rank == group.rank() && where.rows > 0 && first < std::ssize(ids); first += kBlock)
      blocks.push_back({&table, s, first, std::min(kBlock, std::ssize(ids) - first)});
  }
  size_t done = 0;
  checkpoint::together_in_turns(group, "start of a table", [&] {
    if (done == blocks.size()) return false;
    add_block(blocks[done++], ids, set);
    return true;
  });
  const auto rows = checkpoint::values_together(group, "start of a table", [&] {
    int64_t sum = 0;
    for (size_t s = 0; s < table.sharding->shards.size(); ++s) {
      const ShardMetadata& where = table.sharding->shards[s];
      if (where.rank == group.rank() && where.rows > 0 && where.col == 0)
        sum += static_cast<int64_t>(table.collection->kernel_stats(table.held(s)).rows_in_use);
    }
    return sum;
  });
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

void check_init(const std::vector<TableConfig>& tables) {
  for (const TableConfig& t : tables) {
    if (t.init == kLogFrequency && t.embedding_dim != 1)
      fail(Code::kInvalidArgument, "table ", t.name, " has init = \"", kLogFrequency,
           "\", which gives one value for each row, but its rows have ", t.embedding_dim,
           " values: set embedding_dim = 1");
    if (t.init == kLogFrequency && t.any_id)
      fail(Code::kInvalidArgument, "table ", t.name, " has init = \"", kLogFrequency,
           "\", which counts the ids of rows, but takes any id: set any_id = false and rows");
    if (t.init == kLogFrequency && t.init_range)
      fail(Code::kInvalidArgument, "table ", t.name, " has init = \"", kLogFrequency,
           "\", so its init_range has no effect: leave it out");
  }
}

void set_frequencies(const std::vector<TableConfig>& tables, const Samples& samples, ModelTrainer& trainer) {
  for (const TableConfig& t : tables) {
    if (t.init != kLogFrequency) continue;
    if (!samples)
      fail(Code::kInvalidArgument, "table ", t.name, " has init = \"", kLogFrequency,
           "\", which counts the ids of all training rows, but they have no end: choose another init");
    const std::vector<double> counts = frequencies(t, samples, trainer.group());
    double sum = 0;
    for (const double n : counts) sum += n;
    for (const checkpoint::ModelTable& table : checkpoint::model_tables(trainer.parallel())) {
      if (table.stored.name != t.name) continue;
      set_rows(table, trainer.group(), [&](int64_t row, int64_t, int64_t, float* to) {
        *to = static_cast<float>(std::log(std::max(counts[static_cast<size_t>(row)], 1.0) / std::max(sum, 1.0)));
      });
    }
  }
}

}  // namespace tessera
