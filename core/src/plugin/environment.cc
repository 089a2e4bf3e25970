#include "plugin/environment.h"

#include <cstdlib>
#include <string_view>

#include "tessera/abi/host.h"
#include "tessera/error.h"

namespace tessera::plugin {
namespace {

std::string_view variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? "" : value;
}

int32_t level_from(std::string_view text) {
  if (text.empty() || text == "warning") return TSR_LOG_WARNING;
  if (text == "error") return TSR_LOG_ERROR;
  if (text == "info") return TSR_LOG_INFO;
  if (text == "debug") return TSR_LOG_DEBUG;
  fail(Code::kInvalidArgument, "TESSERA_LOG is \"", text, "\", but must be error, warning, info or debug");
}

bool yes_or_no(const char* name, bool otherwise) {
  const std::string_view text = variable(name);
  if (text.empty()) return otherwise;
  if (text == "0") return false;
  if (text == "1") return true;
  fail(Code::kInvalidArgument, name, " is \"", text, "\", but must be 0 or 1");
}

}  // namespace

Environment read_environment() {
  Environment out;
  out.plugin_path = variable("TESSERA_PLUGIN_PATH");
  out.trust_all = yes_or_no("TESSERA_TRUST_ALL", false);
  out.log_level = level_from(variable("TESSERA_LOG"));
  out.crash_report = yes_or_no("TESSERA_CRASH_REPORT", true);
  return out;
}

}  // namespace tessera::plugin
