// tessera/step_model.h - how long a training step takes under a plan, rank by rank and table by table, before it runs.
//
// The figures are those of a Machine and of the kernel plugins (planner.h, cost model "default"). Between two exchanges
// all ranks work on their own, and an exchange begins when the last one is there: a step is the sum of the exchanges
// and of the slowest rank's time between them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/planner.h"

namespace tessera {

// The dense part of a model, as far as its time depends on it. Empty: embeddings alone.
struct DenseWork {
  std::vector<std::pair<int64_t, int64_t>> layers;  // inputs, outputs
  int64_t vectors = 0, dim = 0;                     // of a dot interaction; 0: none
  double bucket_bytes = 4 << 20;                    // of gradients that are reduced together
  int64_t parameters() const;
  // Seconds of all layers, of the interaction, and what there is to do beside, for so many samples.
  double layer_seconds(const Curve& curve, double batch) const;
  double interaction_seconds(const Curve& curve, double batch) const;
  BesideLayersWork beside_layers(double batch) const;
  DenseUpdateWork update() const;
  bool empty() const { return layers.empty() && vectors == 0; }
};
// A DLRM's (dlrm.h): dense inputs, bottom and top layer sizes, pooled outputs of embedding_dim.
DenseWork dlrm_dense_work(int64_t dense_inputs, int64_t num_embeddings, int64_t embedding_dim,
                          const std::vector<int64_t>& bottom_mlp, const std::vector<int64_t>& top_mlp);

// Seconds of each stage, in the order of a step; names as StageTimes has them.
using StageSeconds = std::vector<std::pair<std::string, double>>;

struct TablePrediction {
  std::string name;
  // Per rank: what holds for the pieces that it holds.
  std::vector<double> lookup, update;  // seconds
  std::vector<double> reads;           // rows, from disk
  std::vector<double> bytes;           // ids to it from other ranks, rows and gradients between it and them
};

// The core's work on one rank, in the units that a Machine's figures of the same names are applied to.
struct RankWork {
  RouteWork route;
  UnpackWork unpack;
  RowsWork combine, split;
  DataParallelWork data_parallel;
};

struct StepPrediction {
  double seconds = 0;                // of a step: the slowest ranks' work, exchanges and waiting
  double exchanges = 0;              // of these
  double waiting = 0;                // of these, although ranks have equal work
  std::vector<StageSeconds> stages;  // by rank; waiting for others is not in it
  std::vector<RankWork> work;        // by rank
  std::vector<TablePrediction> tables;
  std::string kernel;  // plugin whose estimates were used; empty: figures alone
};

// The work of the collections among `modules` under `plan`; kDense modules are ignored. kInvalidArgument
// where the plan does not fit the tables.
StepPrediction predict_step(const Runtime& runtime, const PlannerOptions& options,
                            const std::vector<PlannerModule>& modules, const ShardingPlan& plan,
                            const DenseWork& dense = {});

}  // namespace tessera
