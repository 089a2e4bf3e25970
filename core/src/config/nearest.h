// The known name that a misspelt one most likely meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

// Least number of letters to insert, delete, replace or swap with their neighbour.
size_t edit_distance(std::string_view a, std::string_view b);

// The first of the nearest names; "" where there are none.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace tessera::config
