// The environment variables of this folder, which are read only here. All of them are ignored if the process runs with
// raised privileges.
//
//   TESSERA_PLUGIN_PATH  directories to search, separated by ':'
//   TESSERA_TRUST_ALL    1: accept files and directories that others may write, with a warning
//   TESSERA_LOG          error | warning | info | debug: the least important level that is printed; default warning
//   TESSERA_CRASH_REPORT 0: the program does not say which plugin a crash was in
//   TESSERA_PLUGIN_CACHE absolute folder of what trials of plugins found; 0: nothing is kept. Unset: tessera in
//                        XDG_CACHE_HOME or, if that is unset, in .cache of HOME
//   TESSERA_PLUGIN_TRIAL_S  seconds that a plugin may take in its trial, 1 to 3600; default 60
#pragma once

#include <cstdint>
#include <string>

namespace tessera::plugin {

struct Environment {
  std::string plugin_path;
  bool trust_all = false;
  int32_t log_level = 1;  // TSR_LOG_WARNING
  bool crash_report = true;
  std::string cache;  // "": nothing is kept
  int trial_s = 60;
};

// kInvalidArgument names a variable whose value means nothing.
Environment read_environment();

}  // namespace tessera::plugin
