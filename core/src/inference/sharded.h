// What ranks do together before a sharded model is there.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/packed_model.h"
#include "tessera/process_group.h"
#include "tessera/sharding_plan.h"

namespace tessera::inference {

// The planner's, of a model that only infers.
EmbeddingModuleShardingPlan planned(const Runtime& runtime, const InferenceModel& model, const ProcessGroup& group);

// What `mine` says or throws, on all ranks. Where it throws on any, all throw the first one's error.
std::vector<std::string> agreed(const ProcessGroup& group, const std::function<std::string()>& mine);

}  // namespace tessera::inference
