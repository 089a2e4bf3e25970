#include "plugin/environment.h"

#include <charconv>
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

// A relative path means nothing: XDG says that such a one is ignored.
std::string cache_folder() {
  const std::string_view own = variable("TESSERA_PLUGIN_CACHE");
  if (own == "0") return "";
  if (own.starts_with('/')) return std::string(own);
  if (!own.empty())
    fail(Code::kInvalidArgument, "TESSERA_PLUGIN_CACHE is \"", own,
         "\", but must be 0 or the absolute path of a folder");
  if (const std::string_view xdg = variable("XDG_CACHE_HOME"); xdg.starts_with('/')) return str_cat(xdg, "/tessera");
  const std::string_view home = variable("HOME");
  return home.starts_with('/') ? str_cat(home, "/.cache/tessera") : "";
}

int seconds(const char* name, int otherwise) {
  constexpr int kMost = 3600;
  const std::string_view text = variable(name);
  if (text.empty()) return otherwise;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 1 && value <= kMost) return value;
  fail(Code::kInvalidArgument, name, " is \"", text, "\", but must be a whole number of seconds from 1 to ", kMost);
}

}  // namespace

Environment read_environment() {
  Environment out;
  out.plugin_path = variable("TESSERA_PLUGIN_PATH");
  out.trust_all = yes_or_no("TESSERA_TRUST_ALL", false);
  out.log_level = level_from(variable("TESSERA_LOG"));
  out.crash_report = yes_or_no("TESSERA_CRASH_REPORT", true);
  out.cache = cache_folder();
  out.trial_s = seconds("TESSERA_PLUGIN_TRIAL_S", out.trial_s);
  return out;
}

}  // namespace tessera::plugin
