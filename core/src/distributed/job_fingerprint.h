// The values that must be equal on all ranks of a job, and which of them are not if their fingerprints say that
// something differs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/process_group.h"
#include "tessera/sharded_modules.h"
#include "wiring/row_router.h"

namespace tessera {

// The values that are equal on all ranks of a job.
struct JobFingerprint {
  struct Table {
    std::string name;
    std::string sharder;
    uint64_t config = 0, layout = 0;
  };
  uint64_t all = 0;  // of tables, plan, routes and options
  std::vector<Table> tables;
  std::vector<RowRouterPtr> routers;  // by table; null where rows are ranges
};

// Equal on two ranks exactly when they run the same tables under the same plan, and route rows to the same places.
JobFingerprint fingerprint_of(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan,
                              std::vector<RowRouterPtr> routers, bool sequence, const ShardedModuleOptions& options,
                              const ProcessGroup& group);

// Which table has another layout, or is routed differently, with the first id; empty where the reason is another one.
// Collective.
std::string what_differs(const JobFingerprint& job, const ProcessGroup& group);

}  // namespace tessera
