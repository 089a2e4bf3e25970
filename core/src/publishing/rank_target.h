// Rank 0's message to the other ranks about the version that all are about to open.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "publishing/patched_model.h"
#include "publishing/publication.h"
#include "tessera/process_group.h"
#include "tessera/sharding.h"

namespace tessera::publishing {

struct RankTarget {
  int64_t base = 0, number = 0;  // one base for all ranks, so that rows with their own ids have the same order
  std::string base_hash, hash;
  // The location of tables; unset: it may change with each version, so all rows of deltas are written.
  std::optional<EmbeddingModuleShardingPlan> plan;
};

// Rank 0 calls tell() while the others call told().
void tell(const ProcessGroup& group, const RankTarget& target);
RankTarget told(const ProcessGroup& group);

// The rows that a rank reads under a plan, and all rows of the tables in `whole`.
KeptRows rows_read(const EmbeddingModuleShardingPlan& plan, int rank, const std::vector<std::string>& whole);

}  // namespace tessera::publishing
