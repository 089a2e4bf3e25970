// Heads ask the graph for more than their inputs: for host memory, and for weights that are learnt.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/layer_graph.h"

namespace tessera {

// The reason why only the host trains the heads; "": devices may.
std::string what_only_hosts_train(const std::vector<HeadSpec>& heads);

// The parameter of each head, also added to `parameters`; null: the head does not learn its weight. `values`: of a
// model that is not trained, which need not have them; NULL: they start at 0.
ParameterList learnt_weights_of(const std::vector<HeadSpec>& heads, const std::map<std::string, Tensor>* values,
                                ParameterList& parameters);

}  // namespace tessera
