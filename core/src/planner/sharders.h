// The answers of sharder plugins, checked.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/abi/sharder.h"
#include "tessera/embedding_configs.h"
#include "tessera/planner.h"
#include "tessera/runtime.h"

namespace tessera {

// A layout with all of its parts joined, which is possible because they have the same placement.
struct Layout {
  int32_t placement = TSR_PLACE_ANY_RANK;
  int32_t combine = TSR_COMBINE_CONCAT;  // of several parts, that of those which are split
  bool routed = false;
  std::vector<tsr_rectangle> rectangles;  // of all parts, in their order
  int64_t cookie = 0;
  size_t first_replicated = 0, num_replicated = 0;  // of several parts: the rectangles of the one that is a REPLICA
  bool is_replicated(size_t rectangle) const {
    return rectangle >= first_replicated && rectangle < first_replicated + num_replicated;
  }
};

struct LayoutRequest {
  int64_t min_partition = 0;
  int64_t max_shards = 0;
};

// The sharders of a runtime, each created when it is first asked. One thread at a time.
class Sharders {
 public:
  Sharders(const Runtime& runtime, const Topology& topology);

  // Ids of those that work here and do not want to be asked for (TSR_SHARDER_WHEN_ASKED), ascending.
  std::vector<std::string> offered();

  // The layouts that `sharding_type` offers for the table, best first; empty: it cannot cut this table.
  // Error(kNotFound) for an unknown type, with those that exist; Error naming sharder and table when the sharder fails
  // or when a layout does not tile the table or does not suit the topology.
  std::vector<Layout> propose(const std::string& sharding_type, const EmbeddingBagConfig& table,
                              const LayoutRequest& request = {});

 private:
  const tsr_sharder& api_of(const std::string& sharding_type);

  const Runtime& runtime_;
  Topology topology_;
  std::vector<uint64_t> device_bytes_;
  std::map<std::string, ComponentPtr> parts_;
};

}  // namespace tessera
