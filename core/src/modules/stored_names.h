// The names in checkpoints of a layer's parameters, if the layer has `names` for them.
#pragma once

#include <string>
#include <vector>

#include "tessera/dense.h"

namespace tessera {

// kInvalidArgument, one sentence: a pair that gives no name.
void check_names(const ParameterNames& names);

// The first of `names` that is of none of the layer's `own`; "": there is none.
std::string idle_name(const ParameterNames& names, const std::vector<std::string>& own);

// The name of `layer`'s parameter that it calls `own` itself; `names` were checked.
std::string stored_name(const std::string& layer, const std::string& own, const ParameterNames& names);

}  // namespace tessera
