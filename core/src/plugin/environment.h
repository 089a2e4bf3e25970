// The environment variables of this folder, which are read only here. All of them are ignored if the process runs with
// raised privileges.
//
//   TESSERA_PLUGIN_PATH  directories to search, separated by ':'
//   TESSERA_TRUST_ALL    1: accept files and directories that others may write, with a warning
//   TESSERA_LOG          error | warning | info | debug: the least important level that is printed; default warning
//   TESSERA_CRASH_REPORT 0: the program does not say which plugin a crash was in
#pragma once

#include <cstdint>
#include <string>

namespace tessera::plugin {

struct Environment {
  std::string plugin_path;
  bool trust_all = false;
  int32_t log_level = 1;  // TSR_LOG_WARNING
  bool crash_report = true;
};

// kInvalidArgument names a variable whose value means nothing.
Environment read_environment();

}  // namespace tessera::plugin
