// Turns the model of a job's config into a graph of layers.
#pragma once

#include <string>
#include <vector>

#include "modules/vector_inputs.h"
#include "planner/step_model.h"
#include "tessera/config.h"
#include "tessera/layer_graph.h"
#include "tessera/metrics.h"
#include "tessera/runtime.h"

namespace tessera {

inline constexpr const char* kGraphType = "graph";  // model.type of models built from [[layer]] sections

// A head that metrics cannot judge, and why.
struct UnjudgedHead {
  std::string name, why;
};

struct JobOutline {
  std::vector<Prediction> heads;  // outputs that the model will predict
  std::vector<UnjudgedHead> others;
  std::vector<DataColumn> columns;  // columns of ids in the data
};
// Checks a job before its data is read: the model's names, cycles, labels, and layers that no plugin has. With what the
// data declares (describe_dataset()) it also checks tables, components (check_components()), widths and options.
// kInvalidArgument, kNotFound.
JobOutline check_job(const Runtime& runtime, const Config& config, const std::string& encoding,
                     const std::string& compute_device);

// The config's columns that are vectors.
std::vector<VectorInput> vector_columns(const Config& config);

// Adds the config's [[layer]]s and [[head]]s to the graph.
void add_layers(const Config& config, ModelGraph& graph);

// kInvalidArgument: tables or inputs do not fit the model.
ModelGraph model_of(const Runtime& runtime, const Config& config, const std::vector<TableConfig>& tables,
                    int64_t dense_inputs);

// The dense work of that model. Makes its layers unless it is a preset.
DenseWork dense_work(const Runtime& runtime, const Config& config, const std::vector<TableConfig>& tables,
                     int64_t dense_inputs);

}  // namespace tessera
