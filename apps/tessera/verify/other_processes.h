// Asks the same question in several processes, as ranks would.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::cli::verify {

// Runs `ask` in processes of which each has another RANK, LOCAL_RANK and process id, one after the other, and returns
// their answers. Throws Broken with the message if one throws, or crashes. The plugin must not be open yet.
std::vector<double> ask_in_processes(size_t count, const std::function<double()>& ask);

}  // namespace tessera::cli::verify
