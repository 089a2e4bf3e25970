// Checks one [[column]] by itself.
#pragma once

#include <string>

#include "tessera/config.h"

namespace tessera::data {

// kInvalidArgument: keys contradict each other, or have no effect on a column of this kind.
void check_column(const std::string& name, const ColumnConfig& column);

}  // namespace tessera::data
