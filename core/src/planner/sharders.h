// Asks sharder plugins for layouts, and checks these.
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

// A layout with its parts joined into one, which is possible because all have the same placement.
struct Layout {
  int32_t placement = TSR_PLACE_ANY_RANK;
  int32_t combine = TSR_COMBINE_CONCAT;  // if there are several parts, that of the parts which are not copies
  bool routed = false;
  std::vector<tsr_rectangle> rectangles;  // those of all parts, in the order of the parts
  int64_t cookie = 0;
  size_t first_replicated = 0, num_replicated = 0;  // rectangles of the part that is a REPLICA, if there are several
  bool is_replicated(size_t rectangle) const {
    return rectangle >= first_replicated && rectangle < first_replicated + num_replicated;
  }
};

struct LayoutRequest {
  int64_t min_partition = 0;
  int64_t max_shards = 0;
};

// The sharders of a runtime. Each is created when it is first asked. Only one thread may use the object at a time.
class Sharders {
 public:
  Sharders(const Runtime& runtime, const Topology& topology);

  // Ids of the sharders that work here, ascending, without those that must be asked for (TSR_SHARDER_WHEN_ASKED).
  std::vector<std::string> offered();

  // The layouts that `sharding_type` offers for the table, best first; empty if it cannot split the table. Throws
  // Error(kNotFound), which lists the types, for an unknown type. Throws an Error that names sharder and table if the
  // sharder fails, or if a layout does not tile the table or does not suit the topology.
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
