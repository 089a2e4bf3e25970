// Fingerprints of the values that must be equal on all ranks of a job, and a search for the difference if fingerprints
// differ.
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
  std::vector<RowRouterPtr> routers;  // by table; null if rows are ranges
};

// Two ranks have equal fingerprints exactly if they have the same tables, plan and options, and route rows to the same
// places.
JobFingerprint fingerprint_of(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan,
                              std::vector<RowRouterPtr> routers, bool sequence, const ShardedModuleOptions& options,
                              const ProcessGroup& group);

// Returns a sentence about the first table whose layout differs, or whose rows are routed differently, with the first
// such id. Empty: the reason is something else. Collective.
std::string what_differs(const JobFingerprint& job, const ProcessGroup& group);

}  // namespace tessera
