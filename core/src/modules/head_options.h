// Needs of a graph's heads besides their inputs: host memory, and weights that are learnt.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/layer_graph.h"

namespace tessera {

// The reason why only the host trains the heads; "": devices may.
std::string what_only_hosts_train(const std::vector<HeadSpec>& heads);

// Returns the parameter of each head's learnt weight, and adds it to `parameters`; null: the head does not learn its
// weight. `values`: the parameters of a model that is not trained, which may lack these; NULL: they start at 0.
ParameterList learnt_weights_of(const std::vector<HeadSpec>& heads, const std::map<std::string, Tensor>* values,
                                ParameterList& parameters);

}  // namespace tessera
