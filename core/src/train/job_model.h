// The model of a job's config as a graph of layers.
#pragma once

#include <string>
#include <vector>

#include "tessera/config.h"
#include "tessera/head_metrics.h"
#include "tessera/layer_graph.h"
#include "tessera/runtime.h"
#include "tessera/step_model.h"

namespace tessera {

inline constexpr const char* kGraphType = "graph";  // model.type of layers from the config

struct JobOutline {
  std::vector<Prediction> heads;    // what the model will predict
  std::vector<DataColumn> columns;  // of ids, in the data
};
// What can be said of a job before its data is read: the model's names, circles, layers that no plugin computes,
// labels, and, with what the data says of itself (describe_dataset()), its tables, parts (check_components()), widths
// and options. kInvalidArgument, kNotFound.
JobOutline check_job(const Runtime& runtime, const Config& config, const std::string& encoding,
                     const std::string& compute_device);

// Of the config's [[layer]]s and [[head]]s.
void add_layers(const Config& config, ModelGraph& graph);

// kInvalidArgument: tables or inputs that do not fit the model.
ModelGraph model_of(const Runtime& runtime, const Config& config, const std::vector<TableConfig>& tables,
                    int64_t dense_inputs);

// Of that model; makes its layers where it is no preset.
DenseWork dense_work(const Runtime& runtime, const Config& config, const std::vector<TableConfig>& tables,
                     int64_t dense_inputs);

}  // namespace tessera
