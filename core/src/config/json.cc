#include "config/json.h"

#include <algorithm>
#include <charconv>

#include "tessera/sdk/nearest.h"

namespace tessera::config {
namespace {

using Value = nlohmann::ordered_json;

// Formats a value for an error: its text, unless that is long.
std::string shown(const Value& value) {
  constexpr size_t kMost = 60;
  if (value.is_structured() && !value.empty()) return value.is_array() ? "a list" : "an object";
  const std::string text = value.dump();
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

std::string shown(unsigned char byte) {
  if (byte == '\n' || byte == '\r') return "the line's end";
  if (byte > ' ' && byte < 127) return {'\'', static_cast<char>(byte), '\''};
  return byte == ' ' ? "a space" : str_cat("the byte ", static_cast<int>(byte));
}

}  // namespace

bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::ordered_json(text).dump();
    return true;
  } catch (const nlohmann::ordered_json::type_error&) {
    return false;
  }
}

void check_json(std::string_view text, const JsonSource& source) {
  if (text.size() > source.max_bytes) {
    fail(source.code, source.name, " has ", text.size(), " bytes of JSON, and at most ", source.max_bytes, " are read");
  }
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) no_json(text, source, zero + 1);
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      i += c == '\\';
    } else if (c == '[' || c == '{') {
      if (++depth > JsonSource::kMaxDepth)
        fail(source.code, source.name, " is nested deeper than ", JsonSource::kMaxDepth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

void no_json(std::string_view text, const JsonSource& source, size_t at) {
  const std::string_view before = text.substr(0, std::max<size_t>(at, 1) - 1);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  fail(source.code, source.name, " is not JSON: line ", line, ", byte ", before.size() + 1, ": ",
       at > text.size() ? "it ends too early"
                        : str_cat("unexpected ", shown(static_cast<unsigned char>(text[before.size()]))));
}

template <class Json>
Json parse_json(std::string_view text, const JsonSource& source) {
  check_json(text, source);
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const typename Json::parse_error& e) {
    no_json(text, source, e.byte);
  } catch (const typename Json::exception&) {
    fail(source.code, source.name, " holds a number that is too large");
  }
}
template nlohmann::json parse_json(std::string_view text, const JsonSource& source);
template nlohmann::ordered_json parse_json(std::string_view text, const JsonSource& source);

JsonObject::JsonObject(const Value& value, Source source, std::string where)
    : value_(value), source_(std::move(source)), where_(std::move(where)) {
  if (!value.is_object()) wrong(where_.empty() ? "it" : where_, " is not an object {...}");
}

std::string JsonObject::place(std::string_view key) const {
  return where_.empty() ? std::string(key) : str_cat(where_, '.', key);
}

void JsonObject::wrong_type(const Value& value, std::string_view key, const char* expected) const {
  wrong(place(key), " is ", shown(value), "; ", expected, " is expected");
}

bool JsonObject::has(const char* key) const {
  const auto found = value_.find(key);
  return found != value_.end() && !found->is_null();
}

const JsonObject& JsonObject::only(const std::vector<std::string>& known) const {
  for (const auto& [key, value] : value_.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    wrong(where_, where_.empty() ? "" : " ", "has an unknown key \"", key, "\"; did you mean \"",
          sdk::nearest_name(key, known), "\"?");
  }
  return *this;
}

const Value& JsonObject::member(const char* key) const {
  const auto found = value_.find(key);
  if (found == value_.end()) wrong(place(key), " is missing");
  return *found;
}

uint32_t JsonObject::hex(const char* key) const {
  const auto text = get<std::string>(key);
  uint32_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, 16);
  if (error != std::errc() || end != text.data() + text.size())
    wrong_type(member(key), key, "a text of 8 hexadecimal digits");
  return out;
}

std::vector<JsonObject> JsonObject::objects(const char* key, const char* name) const {
  const Value& list = member(key);
  if (!list.is_array()) wrong_type(list, key, "a list");
  std::vector<JsonObject> out;
  for (const Value& one : list) {
    const bool named = name != nullptr && one.is_object() && one.contains(name) && one[name].is_string();
    const std::string which = named ? shown(one[name]) : std::to_string(out.size());
    out.push_back({one, source_, str_cat(place(key), '[', which, ']')});
  }
  return out;
}

std::vector<JsonObject> JsonObject::list(const Value& value, const JsonSource& source) {
  if (!value.is_array()) fail(source.code, source.name, " is not a list [...]", source.advice);
  const auto shared = std::make_shared<const JsonSource>(source);
  std::vector<JsonObject> out;
  for (const Value& one : value) out.push_back({one, shared, str_cat('[', out.size(), ']')});
  return out;
}

std::vector<std::pair<std::string, JsonObject>> JsonObject::members() const {
  std::vector<std::pair<std::string, JsonObject>> out;
  for (const auto& [key, value] : value_.items()) out.emplace_back(key, JsonObject(value, source_, place(key)));
  return out;
}

bool JsonObject::is_int64(const Value& value) {
  return value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
}

void JsonObject::take(const Value& value, std::string_view key, std::string& out) const {
  if (!value.is_string()) wrong_type(value, key, "a text");
  out = value.get<std::string>();
}

void JsonObject::take(const Value& value, std::string_view key, bool& out) const {
  if (!value.is_boolean()) wrong_type(value, key, "true or false");
  out = value.get<bool>();
}

void JsonObject::take(const Value& value, std::string_view key, double& out) const {
  if (!value.is_number()) wrong_type(value, key, "a number");
  out = value.get<double>();
}

}  // namespace tessera::config
