// Says what keeps a graph out of a device.
#pragma once

#include <string>

#include "tessera/layer_graph.h"

namespace tessera {

// The first thing that only host memory can compute: a head that changes labels or weights of samples, or an input that
// is a sequence, a part of a value, or, but for the data's, what another one takes too; "": none.
std::string what_only_hosts_take(const ModelGraph& graph, const GraphWiring& wiring);

}  // namespace tessera
