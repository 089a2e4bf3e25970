// The default cost model's primitives: what pieces of tables cost the ranks that hold them and the ranks that ask.
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

  // The ids that every rank has for each of its features.
  ExpectedTableFeature table_feature() const {
    return {work.pooled ? work.outputs / features : samples, work.ids / features, work.weighted, distinct};
  }
  double row_bytes() const { return static_cast<double>(work.cols * work.element_bytes); }
  // How often a row of a band is visited in a step, with `homes` ranks asking.
  double rate(const PopularityBand& band, double homes) const {
    return band.rows > 0 ? homes * work.ids * band.share / band.rows : 0;
  }
};
TableLoad table_load(const EmbeddingBagConfig& table, const ParameterConstraints& constraints, double batch_size);

// A rectangle of a table: which part of its rows, and how many columns.
struct PieceShape {
  double row_share = 1;
  int64_t cols = 0;
  const ComputeKernel& kernel;
};

// Costs of a piece for its owner, and what travels between it and one home. Seconds and bytes per step.
struct PieceCost {
  double forward = 0, backward = 0;
  UnpackWork unpack;                         // all homes together
  double ids_bytes = 0;                      // from one home
  double rows_bytes = 0;                     // to one home, and back
  double rows = 0;                           // of one home
  double held_bytes = 0;                     // rows and states
  double host_bytes = 0, storage_bytes = 0;  // of these, in host memory beside the device, and on disk
  double storage_reads = 0;                  // rows, from there
};

// The cost of a table that is split into pieces, for every home.
struct HomeWork {
  RouteWork route;
  RowsWork rows;  // of combine, and of split
};

// The work of one id block: for its home, which routes it and deals ids out by rows if these are `split`; for its
// owner, which unpacks it; and for the rank that puts its rows together with others of `cols` columns.
RouteWork route_work(const ExpectedIdBlock& id_block, bool split);
UnpackWork unpack_work(const ExpectedIdBlock& id_block);
RowsWork rows_work(const ExpectedIdBlock& id_block, double cols);

class StepCosts {
 public:
  // References outlive the object.
  StepCosts(ComputeKernels& kernels, const Machine& machine) : machine_(machine), kernels_(kernels) {}

  // The kernel's error where it does not take such a piece. `homes` ranks ask for rows of the piece; 1 for a
  // data-parallel table, which serves only its own rank.
  PieceCost piece(const TableLoad& load, const PieceShape& shape, double homes, const ReuseModel& reuse) const;
  // A table in row_pieces x col_pieces, all on different ranks.
  HomeWork home(const TableLoad& load, double row_pieces, double col_pieces) const;
  // The gradient of replicated rows, summed over ranks and applied, besides the kernel's own backward. `row_share`: of
  // the table's rows; 1 if the table is data-parallel.
  DataParallelWork data_parallel(const TableLoad& load, double row_share, double world) const;
  // The bits that every rank sends to every other one, one for each row, and the gradients that are then reduced.
  double data_parallel_marks(const TableLoad& load, double row_share) const;
  double data_parallel_bytes(const TableLoad& load, double row_share, double world) const;

  const Machine& machine() const { return machine_; }
  ComputeKernels& kernels() const { return kernels_; }

 private:
  const Machine& machine_;
  ComputeKernels& kernels_;
};

}  // namespace tessera
