#include "tessera/runtime.h"

#include <nlohmann/json.hpp>

#include "tessera/error.h"

namespace tessera {
namespace {

constexpr int kMaxLevels = 8;
constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789_.-@";

[[noreturn]] void refuse(std::string_view whole, const char* why) {
  fail(Code::kInvalidArgument, "\"", whole, "\" is not the name of a component: ", why,
       "; a name looks like tcp, tcp?key=value, outer(inner) or outer:name(inner)");
}

std::string word(std::string_view* rest, std::string_view whole) {
  const size_t end = std::min(rest->find_first_not_of(kAllowed), rest->size());
  if (end == 0) refuse(whole, "a name has letters a-z, digits, _ . - @");
  std::string out(rest->substr(0, end));
  rest->remove_prefix(end);
  return out;
}

// Parses "?key=value&key=value". Values are true, false, numbers, or otherwise text.
std::string options_behind_mark(std::string_view* rest, std::string_view whole) {
  nlohmann::ordered_json options = nlohmann::ordered_json::object();
  while (rest->starts_with('?') || rest->starts_with('&')) {
    if (rest->starts_with('?') != options.empty()) refuse(whole, "options are ?key=value, joined by &");
    rest->remove_prefix(1);
    const std::string key = word(rest, whole);
    if (!rest->starts_with('=')) refuse(whole, "options are ?key=value, joined by &");
    rest->remove_prefix(1);
    const std::string_view value = rest->substr(0, rest->find_first_of("&?()"));
    rest->remove_prefix(value.size());
    const auto parsed = nlohmann::ordered_json::parse(value, nullptr, /*allow_exceptions=*/false);
    if (options.contains(key)) refuse(whole, "an option is given twice");
    options[key] = parsed.is_primitive() && !parsed.is_null() ? parsed : nlohmann::ordered_json(value);
  }
  try {
    return options.dump();
  } catch (const nlohmann::json::type_error&) {
    refuse(whole, "its options are not UTF-8");
  }
}

ComponentName parse_level(std::string_view rest, std::string_view whole) {
  ComponentName out{.id = word(&rest, whole)};
  if (rest.starts_with(':')) {
    rest.remove_prefix(1);
    out.name = word(&rest, whole);
  }
  out.options = options_behind_mark(&rest, whole);
  if (rest.empty()) return out;
  if (!rest.starts_with('(') || !rest.ends_with(')') || rest.size() < 3) refuse(whole, "its brackets do not match");
  out.inner = rest.substr(1, rest.size() - 2);
  return out;
}

}  // namespace

ComponentName parse_component_name(std::string_view text) {
  ComponentName out = parse_level(text, text);
  std::string inner = out.inner;
  for (int level = 1; !inner.empty(); ++level) {
    if (level == kMaxLevels) refuse(text, "it is stacked more than 8 deep");
    inner = parse_level(inner, text).inner;
  }
  return out;
}

std::string all_options(const std::string& options, const ComponentName& part) {
  nlohmann::ordered_json all = nlohmann::ordered_json::parse(options, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object()) fail(Code::kInvalidArgument, "options must be a JSON object, not ", options.substr(0, 200));
  nlohmann::ordered_json more = nlohmann::ordered_json::parse(part.options);
  if (!part.name.empty()) {
    if (all.contains("name") || more.contains("name")) {
      fail(Code::kInvalidArgument, "the name \"", part.name, "\" after the colon is also given in the options");
    }
    more["name"] = part.name;
  }
  for (const auto& [key, value] : more.items()) {
    if (all.contains(key)) fail(Code::kInvalidArgument, part.id, ": the option \"", key, "\" is given twice");
    all[key] = value;
  }
  return more.empty() ? options : all.dump();
}

}  // namespace tessera
