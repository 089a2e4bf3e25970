// The model of a job's config as a graph of layers.
#pragma once

#include <vector>

#include "tessera/config.h"
#include "tessera/layer_graph.h"
#include "tessera/runtime.h"
#include "tessera/step_model.h"

namespace tessera {

inline constexpr const char* kGraphType = "graph";  // model.type of layers from the config

// What can be said of the model before there is data: names, circles, layers that no plugin computes, labels. A table's
// name is known where the config lists tables. kInvalidArgument, kNotFound.
void check_model(const Runtime& runtime, const Config& config);

// kInvalidArgument: tables or inputs that do not fit the model.
ModelGraph model_of(const Config& config, const std::vector<TableConfig>& tables, int64_t dense_inputs);

// Of that model; makes its layers where it is no preset.
DenseWork dense_work(const Runtime& runtime, const Config& config, const std::vector<TableConfig>& tables,
                     int64_t dense_inputs);

}  // namespace tessera
