// The default cost model's primitives: the cost of pieces of tables to their owners, and to the homes of the ids.
#pragma once

#include <string>
#include <vector>

#include "planner/compute_kernels.h"
#include "planner/reuse.h"
#include "planner/workload.h"
#include "tessera/machine.h"
#include "tessera/planner.h"
#include "tessera/step_figures.h"
#include "wiring/expected_step.h"

namespace tessera {

// One table and its input, per rank and step.
struct TableLoad {
  const EmbeddingBagConfig* table = nullptr;
  Workload work;
  double features = 1;
  double samples = 0;
  double distinct = 1;  // distinct_share()
  std::vector<PopularityBand> bands;

  // The ids that every rank has for each of the table's features.
  ExpectedTableFeature table_feature() const {
    return {work.pooled ? work.outputs / features : samples, work.ids / features, work.weighted, distinct};
  }
  double row_bytes() const { return static_cast<double>(work.cols * work.element_bytes); }
  // The number of visits of a row of the band in a step, if `homes` ranks look up rows.
  double rate(const PopularityBand& band, double homes) const {
    return band.rows > 0 ? homes * work.ids * band.share / band.rows : 0;
  }
};
TableLoad table_load(const EmbeddingBagConfig& table, const ParameterConstraints& constraints, double batch_size);

// A rectangle of a table, given by its share of the rows and its number of columns.
struct PieceShape {
  double row_share = 1;
  int64_t cols = 0;
  const ComputeKernel& kernel;
};

// The costs of a piece for its owner, and what it exchanges with one home. Seconds and bytes per step.
struct PieceCost {
  double forward = 0, backward = 0;
  UnpackWork unpack;                         // for the id blocks of all homes
  double ids_bytes = 0;                      // ids from one home
  double rows_bytes = 0;                     // rows to one home; gradients from it take as many bytes
  double rows = 0;                           // rows to one home
  double held_bytes = 0;                     // memory for rows and states
  double host_bytes = 0, storage_bytes = 0;  // parts of held_bytes in host memory beside the device, and on disk
  double storage_reads = 0;                  // rows read from disk
};

// The work that a table which is split into pieces gives to each home.
struct HomeWork {
  RouteWork route;
  RowsWork rows;  // for combine, and again for split
};

// The work for one id block: of its home, which routes it, and also divides ids by rows if these are `split`; of its
// owner, which unpacks it; and of the rank that combines its rows, `cols` columns wide, with others.
RouteWork route_work(const ExpectedIdBlock& id_block, bool split);
UnpackWork unpack_work(const ExpectedIdBlock& id_block);
RowsWork rows_work(const ExpectedIdBlock& id_block, double cols);

class StepCosts {
 public:
  // The references must outlive the object.
  StepCosts(ComputeKernels& kernels, const Machine& machine) : machine_(machine), kernels_(kernels) {}

  // Throws the kernel's error if it refuses the piece. `homes` ranks look up rows of the piece; 1 for a data-parallel
  // table, which serves only its own rank.
  PieceCost piece(const TableLoad& load, const PieceShape& shape, double homes, const ReuseModel& reuse) const;
  // For a table that is split into row_pieces x col_pieces, all on different ranks.
  HomeWork home(const TableLoad& load, double row_pieces, double col_pieces) const;
  // The work to sum gradients of replicated rows over ranks and apply them, without the kernel's own backward.
  // `row_share` is the share of the table's rows that is replicated; 1 if the table is data-parallel.
  DataParallelWork data_parallel(const TableLoad& load, double row_share, double world) const;
  // Bytes of the marks that every rank sends to every other one, a bit for each row, and of the gradients that are then
  // reduced.
  double data_parallel_marks(const TableLoad& load, double row_share) const;
  double data_parallel_bytes(const TableLoad& load, double row_share, double world) const;

  const Machine& machine() const { return machine_; }
  ComputeKernels& kernels() const { return kernels_; }

 private:
  const Machine& machine_;
  ComputeKernels& kernels_;
};

}  // namespace tessera
