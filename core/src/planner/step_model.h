// Predicts the time of a training step under a plan, by rank and table, before it runs.
//
// The figures are those of a Machine and of the kernel plugins (planner.h, cost model "default"). Between two exchanges
// each rank works on its own, and an exchange begins when the last rank arrives. So a step is the sum of the exchanges
// and of the slowest rank's time between them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/planner.h"

namespace tessera {

// The dense part of a model, as far as its time depends on it. Empty: only embeddings.
struct DenseWork {
  std::vector<std::pair<int64_t, int64_t>> layers;  // inputs, outputs
  int64_t vectors = 0, dim = 0;                     // of a dot interaction; 0: none
  double bucket_bytes = 4 << 20;                    // size of gradients that are reduced together
  int64_t parameters() const;
  // Seconds of all layers or of the interaction, and the other work, for `batch` samples.
  double layer_seconds(const Curve& curve, double batch) const;
  double interaction_seconds(const Curve& curve, double batch) const;
  BesideLayersWork beside_layers(double batch) const;
  DenseUpdateWork update() const;
  bool empty() const { return layers.empty() && vectors == 0; }
};
// The dense work of a DLRM (layer_graph.h): dense inputs, bottom and top layer sizes, pooled outputs of embedding_dim.
DenseWork dlrm_dense_work(int64_t dense_inputs, int64_t num_embeddings, int64_t embedding_dim,
                          const std::vector<int64_t>& bottom_mlp, const std::vector<int64_t>& top_mlp);

// Seconds of each stage, in the order of a step, with StageTimes' names.
using StageSeconds = std::vector<std::pair<std::string, double>>;

struct TablePrediction {
  std::string name;
  // Totals for each rank over the shards that it holds.
  std::vector<double> lookup, update;  // seconds
  std::vector<double> reads;           // rows, from disk
  std::vector<double> bytes;           // ids to it from other ranks, rows and gradients between it and them
};

// The core's work on one rank, in the units of a Machine's figures of the same names.
struct RankWork {
  RouteWork route;
  UnpackWork unpack;
  RowsWork combine, split;
  DataParallelWork data_parallel;
};

struct StepPrediction {
  double seconds = 0;                // of a step: the slowest ranks' work, exchanges and waiting
  double exchanges = 0;              // part of `seconds`
  double across_hosts = 0;           // part of `exchanges` that crosses hosts
  double waiting = 0;                // part of `seconds`, although ranks have equal work
  double imbalance = 0;              // part of `seconds`: what the slowest ranks work beyond the mean of all
  double bytes_across_hosts = 0;     // that the rank which sends most sends to other hosts
  std::vector<StageSeconds> stages;  // by rank; without waiting for others
  std::vector<RankWork> work;        // by rank
  std::vector<TablePrediction> tables;
  std::string kernel;  // plugin whose estimates were used; empty: only figures
};

// Predicts the work of the collections in `modules` under `plan`, and ignores kDense modules. kInvalidArgument: the
// plan does not fit the tables.
StepPrediction predict_step(const Runtime& runtime, const PlannerOptions& options,
                            const std::vector<PlannerModule>& modules, const ShardingPlan& plan,
                            const DenseWork& dense = {});

}  // namespace tessera
