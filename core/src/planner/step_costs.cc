#include "planner/step_costs.h"

#include <algorithm>
#include <cmath>

namespace tessera {

namespace {

constexpr double kBytesPerId = 8, kBytesPerWeight = 4, kBytesPerLength = 4, kBytesPerElement = 4;

// The part of bags with ids that have at least one in a part of the rows.
double full_share(const Workload& work, double row_share) {
  if (row_share >= 1 || work.outputs <= 0) return 1;
  return 1 - std::pow(1 - row_share, work.ids / work.outputs);
}

// Bags that have ids in a part of the rows where most have not, or the other way round: a processor guesses wrong.
double uncertain_bags(const Workload& work, double row_share) {
  const double full = full_share(work, row_share);
  return work.outputs * std::min(full, 1 - full);
}

}  // namespace

TableLoad table_load(const EmbeddingBagConfig& table, const ParameterConstraints& constraints, double batch_size) {
  TableLoad out;
  out.table = &table;
  out.work = workload_of(table, constraints, batch_size);
  out.features = static_cast<double>(std::max<size_t>(1, table.feature_names.size()));
  out.bands = popularity_bands(table.num_embeddings, constraints.zipf_exponent);
  return out;
}

PieceCost StepCosts::piece(const TableLoad& load, const PieceShape& shape, double homes,
                           const ReuseModel& reuse) const {
  const Workload& work = load.work;
  PieceCost out;
  if (shape.row_share <= 0 || work.ids <= 0) return out;
  const double ids = work.ids * shape.row_share;
  out.full_bags = work.pooled ? work.outputs * full_share(work, shape.row_share) : ids;
  out.rows_bytes = out.full_bags * static_cast<double>(shape.cols) * kBytesPerElement;
  const double all_bags = work.pooled ? work.outputs : load.features;
  out.ids_bytes =
      ids * (kBytesPerId + (work.weighted ? kBytesPerWeight : 0)) + (all_bags + load.features) * kBytesPerLength;
  out.unpack = {0, homes * load.features, homes * all_bags, homes * ids, 0, 0};
  if (work.pooled) out.unpack.cut_ids = homes * uncertain_bags(work, shape.row_share);

  bool first = true;
  for (const PopularityBand& band : load.bands) {
    tsr_workload w{};
    w.struct_size = sizeof(w);
    w.pooling = static_cast<int32_t>(load.table->pooling);
    w.rows = static_cast<int64_t>(std::llround(band.rows * shape.row_share));
    w.dim = shape.cols;
    w.ids = homes * ids * band.share;
    w.weighted = work.weighted;
    w.distinct = distinct_rows(band.rows * shape.row_share, w.ids);
    w.reuse_bytes = reuse.equivalent_bytes(load.rate(band, homes));
    w.update_bytes = reuse.equivalent_bytes(1);
    if (first) {  // bags and runs once, whatever their rows
      w.bags = homes * out.full_bags;
      w.runs = homes * load.features;
    }
    first = false;
    const tsr_estimate e = kernels_.of(*load.table, shape.compute_kernel, w);
    out.forward += e.forward_seconds;
    out.backward += e.backward_seconds;
    out.held_bytes += static_cast<double>(e.bytes);
  }
  return out;
}

HomeWork StepCosts::home(const TableLoad& load, double row_pieces, double col_pieces) const {
  const Workload& work = load.work;
  const double bags = work.pooled ? work.outputs : load.features;
  const double pieces = row_pieces * col_pieces;
  HomeWork out;
  out.route.runs = load.features * pieces;
  out.route.bags = bags * pieces;
  (row_pieces > 1 ? out.route.cut_ids : out.route.ids) = work.ids * col_pieces;
  const double rows = work.pooled ? work.outputs * full_share(work, 1 / row_pieces) * row_pieces : work.ids;
  out.rows.runs = load.features * pieces;
  out.rows.bags = work.pooled ? bags * pieces : rows * col_pieces;
  if (work.pooled) out.rows.cut_ids = pieces * uncertain_bags(work, 1 / row_pieces);
  out.rows.bytes = rows * static_cast<double>(work.cols) * kBytesPerElement;
  return out;
}

double StepCosts::replica_marks(const TableLoad& load) const { return static_cast<double>(load.work.rows) / 8; }

double StepCosts::replica_bytes(const TableLoad& load, double world) const { return replica(load, world).bytes; }

StageWork StepCosts::replica(const TableLoad& load, double world) const {
  StageWork out;
  for (const PopularityBand& band : load.bands)
    out.bags += distinct_rows(band.rows, world * load.work.ids * band.share);
  out.runs = 1;
  out.ids = load.work.ids;
  out.cut_ids = static_cast<double>(load.work.rows);
  out.bytes = out.bags * static_cast<double>(load.work.cols) * kBytesPerElement;
  return out;
}

}  // namespace tessera
