// tessera model import.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

int import_command(const std::vector<std::string>& args);

}  // namespace tessera::cli
