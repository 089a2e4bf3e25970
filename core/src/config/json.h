// Parses JSON from outside: files, requests, messages of other ranks. All such JSON is parsed here. Size and depth are
// limited before anything is built or recurses, and errors are sentences that name the place.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/error.h"

namespace tessera::config {

struct JsonSource {
  std::string name;  // the beginning of errors: a path, "the request"
  Code code = Code::kInvalidArgument;
  size_t max_bytes = size_t{256} << 20;
  std::string advice = {};  // end of errors of JsonObject: "; tessera calibrate makes a right one"
  static constexpr int kMaxDepth = 32;
};

bool is_utf8(const std::string& text);

// Checks size, depth, and zero bytes, which the library takes for the end: "NAME is nested deeper than 32".
void check_json(std::string_view text, const JsonSource& source);
// Throws "NAME is no JSON: line 3, byte 57: unexpected 'x'". `at` is the library's position: 1 for the first byte.
[[noreturn]] void no_json(std::string_view text, const JsonSource& source, size_t at);

// Errors have the code source.code. Json: nlohmann::json, or ordered_json. Only json.cc compiles the parser, which
// takes seconds.
template <class Json = nlohmann::ordered_json>
Json parse_json(std::string_view text, const JsonSource& source);

// An object whose members are read by name. It is a view, so `value` must outlive it. A missing member, or one of
// another type, is an error: "NAME: tables[3].rows is missing". "NAME: " is left out if the source has no name.
class JsonObject {
 public:
  JsonObject(const nlohmann::ordered_json& value, const JsonSource& source)
      : JsonObject(value, std::make_shared<const JsonSource>(source), "") {}

  bool has(const char* key) const;  // false also if it is null
  // T: std::string, bool, an integer (range-checked), double, or a vector of these.
  template <class T>
  T get(const char* key) const {
    T out{};
    take(member(key), key, out);
    return out;
  }
  template <class T>
  T get(const char* key, T otherwise) const {
    return has(key) ? get<T>(key) : otherwise;
  }
  // Leaves `out` unchanged if there is no such member.
  template <class T>
  void read(const char* key, T& out) const {
    if (has(key)) take(member(key), key, out);
  }
  template <class T>
  void read(const char* key, std::optional<T>& out) const {
    if (has(key)) take(member(key), key, out.emplace());
  }
  // Reads a number in [least, most].
  template <class T>
  T within(const char* key, T least, T most) const {
    const T value = get<T>(key);
    if (!(value >= least) || !(value <= most))
      wrong_at(key, " is ", value, "; from ", least, " to ", most, " is expected");
    return value;
  }
  uint32_t hex(const char* key) const;  // from a text of 8 hexadecimal digits
  JsonObject object(const char* key) const { return {member(key), source_, place(key)}; }
  // Reads a list of objects. `name`: the member that errors use instead of the index: tables["film"].
  std::vector<JsonObject> objects(const char* key, const char* name = nullptr) const;
  // Reads a list of objects that is the whole text.
  static std::vector<JsonObject> list(const nlohmann::ordered_json& value, const JsonSource& source);
  std::vector<std::pair<std::string, JsonObject>> members() const;  // all members, which must be objects
  const nlohmann::ordered_json& member(const char* key) const;
  const nlohmann::ordered_json& value() const { return value_; }
  // Refuses other members: "NAME: tables[3] has an unknown key "dim"; did you mean "embedding_dim"?".
  const JsonObject& only(const std::vector<std::string>& known) const;
  // Throws an error about the text: "NAME: parts".
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(source_->code, source_->name, source_->name.empty() ? "" : ": ", parts..., source_->advice);
  }
  // Throws an error about a member: "NAME: tables[3].rows parts".
  template <class... Parts>
  [[noreturn]] void wrong_at(const char* key, const Parts&... parts) const {
    wrong(place(key), parts...);
  }

 private:
  using Value = nlohmann::ordered_json;

  using Source = std::shared_ptr<const JsonSource>;

  JsonObject(const Value& value, Source source, std::string where);
  std::string place(std::string_view key) const;
  [[noreturn]] void wrong_type(const Value& value, std::string_view key, const char* expected) const;
  static bool is_int64(const Value& value);

  void take(const Value& value, std::string_view key, std::string& out) const;
  void take(const Value& value, std::string_view key, bool& out) const;
  void take(const Value& value, std::string_view key, double& out) const;
  template <std::integral T>
  void take(const Value& value, std::string_view key, T& out) const {
    if (!is_int64(value) || !std::in_range<T>(value.get<int64_t>())) wrong_type(value, key, "a whole number");
    out = static_cast<T>(value.get<int64_t>());
  }
  template <class T>
  void take(const Value& value, std::string_view key, std::vector<T>& out) const {
    if (!value.is_array()) wrong_type(value, key, "a list");
    out.clear();
    for (const Value& one : value) take(one, key, out.emplace_back());
  }

  const Value& value_;
  Source source_;
  std::string where_;  // place in the text: "tables[3]"; empty: the whole
};

}  // namespace tessera::config
