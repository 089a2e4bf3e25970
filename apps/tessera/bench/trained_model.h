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
  std::vector<Batch> batches;  // of this rank
  double pairs = 0;            // flops of dot products of pairs, forward and backward, of a batch; 0: not counted
};

// `name`: of `tessera model new`, or a job's config file; empty: the DLRM. A job's batches are the first ones of its
// data, of the workload's size.
TrainedModel trained_model(const Runtime& runtime, const std::string& name, const ShardedBench& bench, int rank);

// The matrices of its layers. Those of layers that take dense values alone need no gradient of their inputs.
std::vector<MatrixProduct> products_of(const Runtime& runtime, const ModelGraph& graph);

}  // namespace tessera::cli
