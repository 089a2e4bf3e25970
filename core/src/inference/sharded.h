// Collective work of the ranks before there is a sharded model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/predictor.h"
#include "tessera/process_group.h"
#include "tessera/sharding.h"

namespace tessera::inference {

// Asks the planner for a plan of a model that only infers.
EmbeddingModuleShardingPlan planned(const Runtime& runtime, const InferenceModel& model, const ProcessGroup& group);

// Runs `mine` on all ranks and returns all results. If it throws on some rank, all throw the first such rank's error.
std::vector<std::string> agreed(const ProcessGroup& group, const std::function<std::string()>& mine);

}  // namespace tessera::inference
