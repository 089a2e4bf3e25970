#include "plugin/part_name.h"

#include <nlohmann/json.hpp>

#include "tessera/error.h"

namespace tessera::plugin {
namespace {

constexpr int kMaxLevels = 8;
constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789_.-";

[[noreturn]] void refuse(std::string_view whole, const char* why) {
  fail(Code::kInvalidArgument, "\"", whole, "\" is not the name of a part: ", why,
       "; a name looks like tcp, outer(inner) or outer:name(inner)");
}

std::string word(std::string_view* rest, std::string_view whole) {
  const size_t end = std::min(rest->find_first_not_of(kAllowed), rest->size());
  if (end == 0) refuse(whole, "a name has letters a-z, digits, _ . -");
  std::string out(rest->substr(0, end));
  rest->remove_prefix(end);
  return out;
}

PartName parse_level(std::string_view rest, std::string_view whole) {
  PartName out;
  out.id = word(&rest, whole);
  if (rest.starts_with(':')) {
    rest.remove_prefix(1);
    out.name = word(&rest, whole);
  }
  if (rest.empty()) return out;
  if (!rest.starts_with('(') || !rest.ends_with(')') || rest.size() < 3) refuse(whole, "its brackets do not match");
  out.inner = rest.substr(1, rest.size() - 2);
  return out;
}

}  // namespace

PartName parse_part_name(std::string_view text) {
  PartName out = parse_level(text, text);
  std::string inner = out.inner;
  for (int level = 1; !inner.empty(); ++level) {
    if (level == kMaxLevels) refuse(text, "it is stacked more than 8 deep");
    inner = parse_level(inner, text).inner;
  }
  return out;
}

std::string with_name(const std::string& options, const std::string& name) {
  nlohmann::ordered_json object = nlohmann::ordered_json::parse(options, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) fail(Code::kInvalidArgument, "options must be a JSON object, not ", options.substr(0, 200));
  if (name.empty()) return options;
  if (object.contains("name")) {
    fail(Code::kInvalidArgument, "the name \"", name, "\" behind the colon is also given in the options");
  }
  object["name"] = name;
  return object.dump();
}

}  // namespace tessera::plugin
