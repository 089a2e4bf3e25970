// JSON that somebody else wrote: files, requests, what another rank says. It is parsed here and nowhere else, so that
// its size and depth are limited before anything is built or recurses, and errors are sentences that name the place.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/error.h"

namespace tessera::config {

struct JsonSource {
  std::string name;  // what an error begins with: a path, "the request"
  Code code = Code::kInvalidArgument;
  size_t max_bytes = size_t{256} << 20;
  static constexpr int kMaxDepth = 32;
};

// Size, depth, and zero bytes, which the library takes for the end: "NAME is nested deeper than 32".
void check_json(std::string_view text, const JsonSource& source);
// "NAME is no JSON: line 3, byte 57: unexpected 'x'". `at` is the library's: 1 for the text's first byte.
[[noreturn]] void no_json(std::string_view text, const JsonSource& source, size_t at);

// Errors are of source.code.
template <class Json = nlohmann::ordered_json>
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

// An object whose members are read by name. A view: `value` has to outlive it. A member that is missing or of another
// type is an error: "NAME: tables[3].rows is missing"; without "NAME: " where the source has no name.
class JsonObject {
 public:
  JsonObject(const nlohmann::ordered_json& value, const JsonSource& source) : JsonObject(value, source, "") {}

  bool has(const char* key) const { return value_.contains(key); }
  // T: std::string, bool, an integer (in its range), double, or a vector of these.
  template <class T>
  T get(const char* key) const {
    T out{};
    read(member(key), key, out);
    return out;
  }
  template <class T>
  T get(const char* key, T otherwise) const {
    return has(key) ? get<T>(key) : otherwise;
  }
  uint32_t hex(const char* key) const;  // of a text with 8 hexadecimal digits
  JsonObject object(const char* key) const { return {member(key), source_, place(key)}; }
  std::vector<JsonObject> objects(const char* key) const;  // a list of them
  const nlohmann::ordered_json& member(const char* key) const;
  // An error of the text: "NAME: parts".
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(source_.code, source_.name, source_.name.empty() ? "" : ": ", parts...);
  }

 private:
  using Value = nlohmann::ordered_json;

  JsonObject(const Value& value, const JsonSource& source, std::string where);
  std::string place(std::string_view key) const;
  [[noreturn]] void wrong_type(const Value& value, std::string_view key, const char* expected) const;
  static bool is_int64(const Value& value);

  void read(const Value& value, std::string_view key, std::string& out) const;
  void read(const Value& value, std::string_view key, bool& out) const;
  void read(const Value& value, std::string_view key, double& out) const;
  template <std::integral T>
  void read(const Value& value, std::string_view key, T& out) const {
    if (!is_int64(value) || !std::in_range<T>(value.get<int64_t>())) wrong_type(value, key, "a whole number");
    out = static_cast<T>(value.get<int64_t>());
  }
  template <class T>
  void read(const Value& value, std::string_view key, std::vector<T>& out) const {
    if (!value.is_array()) wrong_type(value, key, "a list");
    for (const Value& one : value) read(one, key, out.emplace_back());
  }

  const Value& value_;
  JsonSource source_;
  std::string where_;  // in the text: "tables[3]"; empty for the whole
};

}  // namespace tessera::config
