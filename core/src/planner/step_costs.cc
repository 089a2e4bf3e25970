#include "planner/step_costs.h"

#include <algorithm>
#include <cmath>

namespace tessera {

TableLoad table_load(const EmbeddingBagConfig& table, const ParameterConstraints& constraints, double batch_size) {
  TableLoad out;
  out.table = &table;
  out.work = workload_of(table, constraints, batch_size);
  out.samples = batch_size;
  out.features = static_cast<double>(std::max<size_t>(1, table.feature_names.size()));
  out.distinct = distinct_share(table, !out.work.pooled, constraints, batch_size);
  out.bands = popularity_bands(table.num_embeddings, constraints.zipf_exponent);
  return out;
}

RouteWork route_work(const ExpectedIdBlock& id_block, bool split) {
  return {0, 1, id_block.bags, split ? 0 : id_block.ids, split ? id_block.ids : 0};
}

UnpackWork unpack_work(const ExpectedIdBlock& id_block) {
  return {0, 1, id_block.bags, id_block.ids, id_block.uncertain_bags()};
}

RowsWork rows_work(const ExpectedIdBlock& id_block, double cols) {
  return {0, 1, id_block.pooled ? id_block.bags : id_block.rows, id_block.uncertain_bags(),
          id_block.rows * cols * sizeof(float)};
}

PieceCost StepCosts::piece(const TableLoad& load, const PieceShape& shape, double homes,
                           const ReuseModel& reuse) const {
  const Workload& work = load.work;
  PieceCost out;
  if (shape.row_share <= 0) return out;
  const bool asked = work.ids > 0;  // if not, the piece takes memory and no time
  const ExpectedIdBlock id_block = expected_id_block(load.table_feature(), shape.row_share, !work.pooled);
  const ExpectedIdBlock sent = id_block.once();
  ExpectedIdBlock mean = sent;  // the mean over the homes; the owner itself, as a home, has all ids and not `sent`
  for (double ExpectedIdBlock::*n :
       {&ExpectedIdBlock::bags, &ExpectedIdBlock::full_bags, &ExpectedIdBlock::ids, &ExpectedIdBlock::rows})
    mean.*n += (id_block.*n - sent.*n) / homes;
  const double ids = load.features * mean.ids;
  out.rows = load.features * sent.rows;
  out.rows_bytes = out.rows * static_cast<double>(shape.cols) * sizeof(float);
  out.ids_bytes = load.features * sent.bytes();
  if (asked) out.unpack = homes * load.features * unpack_work(mean);

  const int64_t rows = std::llround(static_cast<double>(work.rows) * shape.row_share);
  bool first = true;
  double rows_so_far = 0;  // rows of the shard in this band and all bands before
  for (const PopularityBand& band : load.bands) {
    tsr_workload w{};
    w.struct_size = sizeof(w);
    w.pooling = static_cast<int32_t>(load.table->pooling);
    const int64_t before = std::llround(rows_so_far);
    rows_so_far += band.rows * shape.row_share;
    w.rows = std::llround(rows_so_far) - before;
    w.dim = shape.cols;
    w.ids = homes * ids * band.share;
    w.weighted = work.weighted;
    w.distinct = distinct_rows(band.rows * shape.row_share, w.ids);
    w.reuse_bytes = reuse.equivalent_bytes(load.rate(band, homes));
    w.update_bytes = reuse.equivalent_bytes(1);
    if (first) {  // bags and runs are counted once, in the first band
      w.bags = homes * (load.features * mean.rows);
      w.runs = homes * load.features;
    }
    first = false;
    const tsr_estimate e = kernels_.estimate(*load.table, shape.kernel, machine_, rows, w);
    if (asked) out.forward += e.forward_seconds;
    if (asked) out.backward += e.backward_seconds;
    out.held_bytes += static_cast<double>(e.bytes);
    out.host_bytes += static_cast<double>(e.host_bytes);
    out.storage_bytes += static_cast<double>(e.storage_bytes);
    if (asked) out.storage_reads += e.storage_reads;
  }
  // A kernel may store nothing for some bands. If it states no bytes for any band, the usual size is assumed.
  if (out.held_bytes == 0) out.held_bytes = ComputeKernels::usual_bytes(*load.table, shape.kernel, rows, shape.cols);
  return out;
}

HomeWork StepCosts::home(const TableLoad& load, double row_pieces, double col_pieces) const {
  const ExpectedIdBlock id_block = expected_id_block(load.table_feature(), 1 / row_pieces, !load.work.pooled);
  const double pieces = load.features * row_pieces * col_pieces;
  return {pieces * route_work(id_block, row_pieces > 1),
          pieces * rows_work(id_block, static_cast<double>(load.work.cols) / col_pieces)};
}

double StepCosts::data_parallel_marks(const TableLoad& load, double row_share) const {
  return row_share * static_cast<double>(load.work.rows) / 8;
}

double StepCosts::data_parallel_bytes(const TableLoad& load, double row_share, double world) const {
  return data_parallel(load, row_share, world).bytes;
}

DataParallelWork StepCosts::data_parallel(const TableLoad& load, double row_share, double world) const {
  DataParallelWork out;
  for (const PopularityBand& band : load.bands)
    out.touched_rows += distinct_rows(row_share * band.rows, row_share * world * load.work.ids * band.share);
  out.tables = 1;
  out.ids = row_share * load.work.ids;
  out.rows = row_share * static_cast<double>(load.work.rows);
  out.bytes = out.touched_rows * static_cast<double>(load.work.cols) * sizeof(float);
  return out;
}

}  // namespace tessera
