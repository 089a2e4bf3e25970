// Whether all ranks route rows alike, where the fingerprints of their collections say that something differs.
#pragma once

#include <string>
#include <vector>

#include "tessera/process_group.h"
#include "wiring/row_router.h"

namespace tessera {

// Which table is routed differently, and the first id; empty where the reason is another one. Null routers are passed
// over. Collective.
std::string other_routes(const std::vector<RowRouterPtr>& routers, const ProcessGroup& group);

}  // namespace tessera
