// What rank 0 tells the other ranks of the version that all are about to open.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "publishing/patched_model.h"
#include "publishing/publication.h"
#include "tessera/process_group.h"
#include "tessera/sharding_plan.h"

namespace tessera::publishing {

struct RankTarget {
  int64_t base = 0, number = 0;  // all ranks begin with one base: rows with ids of their own have one order then
  std::string base_hash, hash;
  // Where tables live; none: it may change from version to version, and all rows of deltas are written.
  std::optional<EmbeddingModuleShardingPlan> plan;
};

// Rank 0, and the others, together.
void tell(const ProcessGroup& group, const RankTarget& target);
RankTarget told(const ProcessGroup& group);

// The rows that a rank reads by a plan, and all rows of the tables of `whole`.
KeptRows rows_read(const EmbeddingModuleShardingPlan& plan, int rank, const std::vector<std::string>& whole);

}  // namespace tessera::publishing
