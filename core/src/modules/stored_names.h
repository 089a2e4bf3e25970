// Names of a layer's parameters in checkpoints, if the layer's `names` choose them.
#pragma once

#include <string>
#include <vector>

#include "tessera/dense.h"

namespace tessera {

// kInvalidArgument: a pair gives no name.
void check_names(const ParameterNames& names);

// Returns the first of `names` that matches none of the layer's parameters `own`; "": all match.
std::string idle_name(const ParameterNames& names, const std::vector<std::string>& own);

// Returns the name in checkpoints of the parameter that `layer` itself calls `own`. `names` must have been checked.
std::string stored_name(const std::string& layer, const std::string& own, const ParameterNames& names);

}  // namespace tessera
