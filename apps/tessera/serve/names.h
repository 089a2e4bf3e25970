// Formats lists of names for sentences.
#pragma once

#include <string>
#include <vector>

namespace tessera::serve {

// "a", "b" and "c"; of more than eight names, the first ones and the number of the others.
std::string listed(const std::vector<std::string>& names, const char* quote = "\"");

}  // namespace tessera::serve
