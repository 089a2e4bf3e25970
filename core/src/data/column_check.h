// What one [[column]] says by itself.
#pragma once

#include <string>

#include "tessera/config.h"

namespace tessera::data {

// kInvalidArgument: keys that do not fit each other, or have no effect on what the column is.
void check_column(const std::string& name, const ColumnConfig& column);

}  // namespace tessera::data
