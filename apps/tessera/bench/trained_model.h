// The model of `bench train`: a DLRM over the workload's tables, or the model of a job.
#pragma once

#include <string>
#include <vector>

#include "bench/sgemm.h"
#include "bench/sharded_workload.h"
#include "tessera/layer_graph.h"
#include "tessera/runtime.h"

namespace tessera::cli {

struct TrainedModel {
  std::vector<EmbeddingBagConfig> tables;
  ModelGraph graph;
  std::vector<Batch> batches;  // this rank's batches
  double pairs = 0;            // flops per batch of dot products of pairs, forward and backward; 0 if not counted
};

// `name` is a model of `tessera model new` or a job's config file; empty means the DLRM. A job's batches are the first
// ones of its data, with the workload's batch size.
TrainedModel trained_model(const Runtime& runtime, const std::string& name, const ShardedBench& bench, int rank);

// The shapes of its layers' matrix products. Layers that take only dense values need no gradient of their inputs.
std::vector<MatrixProduct> products_of(const Runtime& runtime, const ModelGraph& graph);

}  // namespace tessera::cli
