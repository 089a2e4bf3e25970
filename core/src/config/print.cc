// Prints the config as TOML text, and the reference in docs/config.md.
#include <charconv>
#include <nlohmann/json.hpp>

#include "config/effects.h"
#include "config/fields.h"

namespace tessera {
namespace {

using json = nlohmann::ordered_json;

// Writes a TOML basic string. JSON's escapes are a subset of TOML's, except for DEL.
std::string text_of(const std::string& value) {
  std::string out;
  for (char c : json(value).dump(-1, ' ', false, json::error_handler_t::replace)) {
    out += c == '\x7f' ? std::string("\\u007F") : std::string(1, c);
  }
  return out;
}
std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(int64_t value) { return std::to_string(value); }

// Writes the shortest text that reads back as the same double, and never as an integer.
std::string text_of(double value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

template <class T>
std::string text_of(const std::vector<T>& list) {
  std::string out = "[";
  for (const T& item : list) out += (out.size() > 1 ? ", " : "") + text_of(item);
  return out + "]";
}

std::string toml_of(const json& value) {
  if (value.is_string()) return text_of(value.get<std::string>());
  if (value.is_number_float()) return text_of(value.get<double>());
  if (value.is_array()) {
    std::string out = "[";
    for (const json& item : value) out += (out.size() > 1 ? ", " : "") + toml_of(item);
    return out + "]";
  }
  if (value.is_object()) {
    std::string out;
    for (const auto& [key, item] : value.items())
      out += (out.empty() ? "" : ", ") + text_of(key) + " = " + toml_of(item);
    return "{ " + out + " }";
  }
  return value.dump();
}

// Writes an inline table of `out` and the options.
std::string options_text(const std::string& options, std::string out) {
  const json all = json::parse(options);
  for (const auto& [key, value] : all.items()) {
    const bool bare = key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
                          std::string::npos &&
                      !key.empty();
    out += (out.empty() ? "" : ", ") + (bare ? key : text_of(key)) + " = " + toml_of(value);
  }
  return "{ " + out + " }";
}
std::string text_of(const PartSpec& part) { return options_text(part.options, "name = " + text_of(part.name)); }
std::string text_of(const PartOptions& options) {
  return options.json == "{}" ? std::string() : options_text(options.json, "");
}

std::string text_of(const NumberOrWord& value) {
  return value.word.empty() ? text_of(value.number) : text_of(value.word);
}

template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "";
}

template <class S>
std::string value_text(const S& section, const config::Field<S>& field) {
  return std::visit([&](auto member) { return text_of(section.*member); }, field.member);
}

bool any_key(const char*) { return true; }

// Writes lines `key = value`. Keys without a value and unwanted keys are left out.
template <class S, class Wanted>
void print_section(const S& section, bool one_table, std::string& out, const Wanted& wanted) {
  for (const auto& field : config::fields<S>()) {
    if constexpr (std::is_same_v<S, TableConfig>) {
      if (!one_table && config::only_of_one_table(field.name)) continue;
    }
    const std::string value = value_text(section, field);
    if (!value.empty() && wanted(field.name)) out += str_cat(field.name, " = ", value, "\n");
  }
}

template <class S>
void reference_of(const std::string& title, std::string_view section, bool (*wanted)(const std::string&),
                  std::string& out) {
  out += str_cat("### ", title, "\n\n", config::introduction(section), "\n\n");
  out += "| key | default | unit | meaning |\n| --- | --- | --- | --- |\n";
  const S defaults;
  for (const auto& field : config::fields<S>()) {
    if (!wanted(field.name)) continue;
    const std::string value = value_text(defaults, field);
    out += str_cat("| `", field.name, "` | ", value.empty() ? "unset" : "`" + value + "`", " | ", field.unit, " | ",
                   field.about, " |\n");
  }
  out += "\n";
}

bool every_key(const std::string&) { return true; }
bool shared_key(const std::string& key) { return !config::only_of_one_table(key); }

}  // namespace

std::string to_toml(const Config& config) {
  std::string out;
  config::for_each_section(config, [&](const char* name, const auto& section) {
    std::string keys;
    print_section(section, false, keys, [&](const char* key) { return config::takes_effect(config, name, key); });
    if (!keys.empty()) out += str_cat(out.empty() ? "" : "\n", "[", name, "]\n", keys);
  });
  for (const LayerConfig& layer : config.layers) print_section(layer, true, out += "\n[[layer]]\n", any_key);
  for (const HeadConfig& head : config.heads) print_section(head, true, out += "\n[[head]]\n", any_key);
  for (const TableConfig& table : config.tables) {
    out += "\n[[table]]\n";
    print_section(table, true, out,
                  [&](std::string_view key) { return key != "compute_kernel" || table.compute_kernels.empty(); });
  }
  for (const ColumnConfig& column : config.columns) {
    out += "\n[[column]]\n";
    print_section(column, true, out, any_key);
  }
  return out;
}

std::string config_reference() {
  std::string out;
  const Config config;
  config::for_each_section(config, [&](const char* name, const auto& section) {
    using S = std::decay_t<decltype(section)>;
    if constexpr (std::is_same_v<S, TableConfig>) {
      reference_of<S>("[[table]]", "table", config::only_of_one_table, out);
      reference_of<S>("[table_defaults] and [[table]]", name, shared_key, out);
    } else {
      reference_of<S>(str_cat("[", name, "]"), name, every_key, out);
      if constexpr (std::is_same_v<S, ModelConfig>) {
        reference_of<LayerConfig>("[[layer]]", "layer", every_key, out);
        reference_of<HeadConfig>("[[head]]", "head", every_key, out);
      }
    }
    if constexpr (std::is_same_v<S, DataConfig>) reference_of<ColumnConfig>("[[column]]", "column", every_key, out);
  });
  out.pop_back();
  return out;
}

}  // namespace tessera
