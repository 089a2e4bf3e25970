// Lists of names in sentences.
#pragma once

#include <string>
#include <vector>

namespace tessera::serve {

// "a", "b" and "c"; of more than eight the first ones and how many others there are.
std::string listed(const std::vector<std::string>& names, const char* quote = "\"");

}  // namespace tessera::serve
