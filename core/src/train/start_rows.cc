#include "train/start_rows.h"

#include <algorithm>
#include <cmath>

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

template <class Id>
void count(const Tensor& values, int64_t begin, int64_t end, std::span<double> counts) {
  for (int64_t i = begin; i < end; ++i) {
    const auto id = static_cast<int64_t>(values.data<Id>()[i]);
    if (id >= 0 && id < std::ssize(counts)) counts[static_cast<size_t>(id)] += 1;
  }
}

// How often `samples` have each row of the table, on all ranks.
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

// What this rank holds, a block of rows at a time.
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

void check_init(const std::vector<TableConfig>& tables) {
  for (const TableConfig& t : tables) {
    if (t.init == kLogFrequency && t.embedding_dim != 1)
      fail(Code::kInvalidArgument, "table ", t.name, " has init = \"", kLogFrequency,
           "\", which is one value a row, but ", t.embedding_dim, " values: set embedding_dim = 1");
    if (t.init == kLogFrequency && t.any_id)
      fail(Code::kInvalidArgument, "table ", t.name, " has init = \"", kLogFrequency,
           "\", for which its ids are counted, but takes any id: give it rows");
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
           "\", for which the ids of all training rows are counted, but they have no end: choose another init");
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
