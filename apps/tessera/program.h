// The programs of this folder share exit statuses, and start each other.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tessera::cli {

// Runs `command` and returns its status. An exception is printed as one sentence, "WHO: sentence", and becomes 2 for
// wrong use and 1 for other failures.
int status_of(const std::string& who, const std::function<int()>& command);

// Replaces this program with another one in its directory, such as "tessera-onnx". UsageError, `advice` at its end: it
// is not there.
[[noreturn]] void become(const std::string& program, std::vector<std::string> args, const std::string& advice);

}  // namespace tessera::cli
