// Says why a device cannot compute a graph.
#pragma once

#include <string>

#include "tessera/layer_graph.h"

namespace tessera {

// Returns the first thing in the graph that only host memory supports; "": none. That is a head that changes labels or
// weights of samples; ids, a sequence, or a part of a value as an input; or a value, other than the dense input, that
// two layers or heads take.
std::string what_only_hosts_take(const ModelGraph& graph, const GraphWiring& wiring);

}  // namespace tessera
