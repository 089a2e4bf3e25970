// The description of a model that `tessera train` stores in a checkpoint, because tensors do not tell it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tessera/layer_graph.h"
#include "tessera/train_job.h"

namespace tessera {

// `tessera quantize` reads it.
nlohmann::ordered_json model_description(const Config& config, const JobData& data, const ModelGraph& graph);

// kInvalidArgument, with the first difference: a run cannot continue as `mine` what it began as `saved`. Settings of
// training, such as dropout and the weights of heads, may differ. `saved` is null in checkpoints of other programs.
// `advice` ends the sentence.
void check_same_model(const nlohmann::ordered_json& saved, const nlohmann::ordered_json& mine, const std::string& path,
                      const char* advice = "--start begins a new run with the weights that fit");

}  // namespace tessera
