// tessera model export.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

int export_command(const std::vector<std::string>& args);

}  // namespace tessera::cli
