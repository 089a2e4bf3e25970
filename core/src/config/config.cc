#include "tessera/config.h"

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

#include "config/decode.h"
#include "config/effects.h"
#include "config/json.h"
#include "tessera/sdk/nearest.h"
#include "tessera/sdk/other_columns.h"

namespace tessera {
namespace {

using config::decode;
using config::where;

toml::table parse_toml(const std::string& text, const std::string& source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& e) {
    fail(Code::kInvalidArgument, source, ":", e.source().begin.line, ": not valid TOML: ", e.description(),
         source.ends_with(".toml") ? ""
                                   : " (a job is a TOML file; `tessera data describe` writes one for a file of data)");
  }
}

std::vector<std::string> section_names() {
  std::vector<std::string> names = {"table", "layer", "head"};
  Config probe;
  config::for_each_section(probe, [&](const char* name, auto&) { names.emplace_back(name); });
  return names;
}

// Returns the only section that has this key; empty: none or several have it.
std::string section_with(const std::string& key) {
  Config probe;
  std::string out;
  int found = 0;
  config::for_each_section(probe, [&](const char* name, auto& section) {
    for (const auto& field : config::fields<std::decay_t<decltype(section)>>()) {
      if (field.name != key) continue;
      out = name;
      ++found;
    }
  });
  return found == 1 ? out : "";
}

// Repeatable sections, each with a name, and their keys whose value has options. One more name after such a key is an
// option.
struct Listed {
  const char* section;
  std::array<std::string_view, 2> options;
  bool has_options(const std::string& key) const {
    return std::find(options.begin(), options.end(), key) != options.end();
  }
};
constexpr Listed kListed[] = {
    {"table", {"optimizer"}}, {"layer", {"options", "optimizer"}}, {"head", {"loss_options"}}};

const Listed* listed(const std::string& section) {
  const auto at =
      std::find_if(std::begin(kListed), std::end(kListed), [&](const Listed& l) { return section == l.section; });
  return at == std::end(kListed) ? nullptr : at;
}

// A parsed `section.key=value`. `path` is the part before the key: {"table", "film"}.
struct Override {
  std::string text;    // "data.batch=64"
  std::string source;  // "--set data.batch=64"
  std::vector<std::string> path;
  std::string key;
  toml::table value;  // {key = value}
};

std::vector<std::string> split_path(const std::string& text) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

// Parses TOML. If that fails, text without quotes that does not begin like a list or table is a bare word, such as
// "days/[0-4]*.csv".
toml::table parse_value(const std::string& value, const std::string& source) {
  const bool bare_allowed =
      value.find_first_of("\"'\n") == std::string::npos && !value.starts_with('[') && !value.starts_with('{');
  try {
    return toml::parse("value = " + (value.empty() ? "\"\"" : value), source);
  } catch (const toml::parse_error& e) {
    if (!bare_allowed) {
      fail(Code::kInvalidArgument, source,
           ": the value is not valid TOML (strings in lists need quotes): ", e.description());
    }
  }
  std::string quoted;
  for (char c : value) quoted += c == '\\' ? std::string("\\\\") : std::string(1, c);
  try {
    return toml::parse("value = \"" + quoted + "\"", source);
  } catch (const toml::parse_error& e) {
    fail(Code::kInvalidArgument, source, ": the value is not valid TOML: ", e.description());
  }
}

Override parse_override(const std::string& text) {
  if (!config::is_utf8(text)) fail(Code::kInvalidArgument, "--set: an override must be UTF-8, as the config is");
  Override out{.text = text, .source = "--set " + text};
  const size_t equals = text.find('=');
  std::vector<std::string> path = split_path(text.substr(0, equals));
  const bool whole = std::none_of(path.begin(), path.end(), [](const std::string& p) { return p.empty(); });
  if (equals == std::string::npos || path.size() < 2 || !whole) {
    fail(Code::kInvalidArgument, out.source, ": an override has the form section.key=value");
  }
  out.key = path.back();
  path.pop_back();
  if (const Listed* list = listed(path[0])) {  // a name may have dots: table.NAME.key, table.NAME.optimizer.option
    const bool option = path.size() > 2 && list->has_options(path.back());
    const std::string with_options = option ? path.back() : "";
    const size_t end = path.size() - (option ? 1 : 0);
    if (end < 2) {
      fail(Code::kInvalidArgument, out.source, ": one ", path[0], "'s key is written ", path[0], ".NAME.key=value");
    }
    std::string name = path[1];
    for (size_t i = 2; i < end; ++i) name += "." + path[i];
    out.path = {path[0], name};
    if (option) out.path.push_back(with_options);
  } else {
    out.path = std::move(path);
  }
  toml::table parsed = parse_value(text.substr(equals + 1), out.source);
  out.value.insert_or_assign(out.key, std::move(*parsed.get("value")));
  return out;
}

void apply_to_table(const Override& o, const std::string& section, bool option, TableConfig& table) {
  if (option) {
    config::set_option(table.optimizer, o.key, *o.value.get(o.key));
  } else if (section == "table_defaults") {
    config::decode_table_defaults(o.value, table);
  } else {
    decode(o.value, section, table);
  }
}

void apply_to(const Override& o, TableConfig& table) {
  apply_to_table(o, "table." + o.path[1], o.path.size() == 3, table);
}
void apply_to(const Override& o, LayerConfig& layer) {
  if (o.path.size() == 3)
    config::set_option(o.path[2] == "options" ? layer.options : layer.optimizer, o.key, *o.value.get(o.key));
  else
    decode(o.value, "layer." + o.path[1], layer);
}
void apply_to(const Override& o, HeadConfig& head) {
  if (o.path.size() == 3)
    config::set_option(head.loss_options, o.key, *o.value.get(o.key));
  else
    decode(o.value, "head." + o.path[1], head);
}

// Applies it to the element of that name. kNotFound: there is none.
template <class S>
void apply_to_list(const Override& o, std::vector<S>& list) {
  std::vector<std::string> known;
  for (S& one : list) {
    known.push_back(one.name);
    if (one.name == o.path[1]) return apply_to(o, one);
  }
  fail(Code::kNotFound, o.source, ": ", sdk::unknown_name(o.path[0], o.path[1], known));
}

// Applies overrides except those of lists, which are applied later.
void apply_to_section(const Override& o, Config& config) {
  const toml::node& node = *o.value.get(o.key);
  const std::string& section = o.path[0];
  if (listed(section)) return;
  if (section == "column")
    fail(Code::kInvalidArgument, where(node),
         ": a [[column]] can only be changed in the file; overrides change sections, tables, layers and heads");
  const bool option = section == "table_defaults" && o.path.size() == 2 && o.path[1] == "optimizer";
  if (o.path.size() > 1 && !option) {
    fail(Code::kInvalidArgument, where(node), ": an override has the form section.key=value");
  }
  bool found = false;
  config::for_each_section(config, [&](const std::string& name, auto& out) {
    if (name != section) return;
    found = true;
    if constexpr (std::is_same_v<std::decay_t<decltype(out)>, TableConfig>) {
      apply_to_table(o, name, option, out);
    } else {
      decode(o.value, name, out);
    }
  });
  if (!found) config::unknown_key(node, "", section, section_names());
}

void decode_sections(const toml::table& file, Config& config) {
  std::vector<std::string> known = section_names();
  known.emplace_back("column");
  for (const auto& [key, node] : file) {
    const std::string name(key.str());
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      if (const std::string section = node.is_table() ? "" : section_with(name); !section.empty())
        fail(Code::kInvalidArgument, where(node), ": \"", name, "\" is a key of [", section, "]: write it there");
      config::unknown_key(node, "", name, known);
    }
    if (name != "table" && name != "column" && name != "layer" && name != "head" && !node.is_table())
      config::wrong_type(node, name, str_cat("a section, [", name, "]"));
  }
  config::for_each_section(config, [&](const char* name, auto& out) {
    const toml::node* node = file.get(name);
    if (!node) return;
    if constexpr (std::is_same_v<std::decay_t<decltype(out)>, TableConfig>) {
      config::decode_table_defaults(*node->as_table(), out);
    } else {
      decode(*node->as_table(), name, out);
    }
  });
}

using ColumnIndex = std::unordered_map<std::string_view, const DataColumn*>;

const DataColumn& column_of(const TableConfig& table, const std::string& feature, const ColumnIndex& columns) {
  if (const auto found = columns.find(feature); found != columns.end()) return *found->second;
  std::vector<std::string> known;
  for (const auto& [name, column] : columns) known.emplace_back(name);
  std::sort(known.begin(), known.end());
  fail(Code::kNotFound, "table \"", table.name, "\" reads the feature \"", feature,
       "\", but the data has no such column", sdk::other_columns(feature, known));
}

void fill_from_columns(TableConfig& table, const ColumnIndex& columns) {
  if (!columns.empty()) {
    for (const std::string& feature : table.features) {
      if (!is_drawn(feature)) column_of(table, feature, columns);
    }
    const DataColumn& first = column_of(table, table.features[0], columns);
    if (table.rows == 0 && !table.any_id) table.rows = first.rows;
    if (table.pooling == "auto") table.pooling = first.pooling;
  }
  if (table.pooling == "auto") table.pooling = "sum";
  if (table.rows == 0 && table.any_id)
    fail(Code::kInvalidArgument, "table \"", table.name,
         "\" takes any id: set rows to the number of rows that it "
         "may have");
  if (table.rows == 0) {
    fail(Code::kInvalidArgument, "table \"", table.name, "\" has no rows, and there is no data to take them from");
  }
}

std::vector<std::string> names_of(const ColumnConfig& columns) { return columns.name; }
template <class S>
std::vector<std::string> names_of(const S& one) {
  return one.name.empty() ? std::vector<std::string>() : std::vector<std::string>{one.name};
}

// Decodes the [[key]] sections, whose names must differ.
template <class S>
std::vector<S> decode_list(const toml::table& file, const std::string& key, const S& defaults) {
  std::vector<S> list;
  const toml::node* node = file.get(key);
  if (!node) return list;
  const toml::array* array = node->as_array();
  if (!array || !std::all_of(array->begin(), array->end(), [](const toml::node& n) { return n.is_table(); })) {
    config::wrong_type(*node, key, str_cat("a list of tables, each written [[", key, "]]"));
  }
  std::set<std::string> names;
  for (const toml::node& item : *array) {
    S one = defaults;
    decode(*item.as_table(), key, one);
    if (one.name.empty()) fail(Code::kInvalidArgument, where(item), ": this [[", key, "]] has no name");
    for (const std::string& name : names_of(one)) {
      if (!names.insert(name).second)
        fail(Code::kInvalidArgument, where(item), ": a second [[", key, "]] is named \"", name, "\"");
    }
    list.push_back(std::move(one));
  }
  return list;
}

// A file with layers describes a graph, and a graph needs layers.
void decode_graph(const toml::table& file, const std::vector<Override>& overrides, Config& config) {
  config.layers = decode_list(file, "layer", LayerConfig());
  config.heads = decode_list(file, "head", HeadConfig());
  for (const Override& o : overrides) {
    if (o.path[0] == "layer") apply_to_list(o, config.layers);
    if (o.path[0] == "head") apply_to_list(o, config.heads);
  }
  const toml::node* model = file.get("model");
  const bool said = (model && model->as_table()->contains("type")) ||
                    std::any_of(overrides.begin(), overrides.end(), [](const Override& o) {
                      return o.path == std::vector<std::string>{"model"} && o.key == "type";
                    });
  const bool layers = !config.layers.empty() || !config.heads.empty();
  if (layers && !said) config.model.type = "graph";
  const bool graph = config.model.type == "graph";
  const char* first = config.layers.empty() ? "head" : "layer";
  if (layers && !graph)
    fail(Code::kInvalidArgument, where(*file.get(first)), ": a [[", first,
         "]] belongs to a model of type \"graph\", but model.type is \"", config.model.type,
         "\", which has no such sections: leave one of the two out");
  if (graph && config.layers.empty())
    fail(Code::kInvalidArgument,
         "model.type is \"graph\", but there is no [[layer]]: add layers, or set the type to \"dlrm\"");
}

// Records where each key of a section or table was written.
config::Given given_keys(const toml::table& file, const std::vector<Override>& overrides) {
  config::Given given;
  const auto add = [&](const std::string& section, const toml::table& keys) {
    for (const auto& [key, node] : keys) given.insert_or_assign(str_cat(section, ".", key.str()), where(node));
  };
  for (const auto& [key, node] : file) {
    const std::string section(key.str());
    if (const toml::table* keys = node.as_table()) add(section, *keys);
    if (section != "table" || !node.is_array()) continue;
    for (const toml::node& item : *node.as_array()) {
      const std::string name = item.as_table()->get("name")->value_or(std::string());
      add("table." + name, *item.as_table());
    }
  }
  for (const Override& o : overrides) {
    std::string path;
    for (const std::string& part : o.path) path += part + ".";
    given.insert_or_assign(path + o.key, o.source);
  }
  return given;
}

}  // namespace

Config parse_config(const std::string& text, const std::string& source, const std::vector<std::string>& overrides) {
  const toml::table file = parse_toml(text, source);
  std::vector<Override> parsed;
  for (const std::string& o : overrides) parsed.push_back(parse_override(o));

  Config config;
  decode_sections(file, config);
  for (const Override& o : parsed) apply_to_section(o, config);
  decode_graph(file, parsed, config);
  config.tables = decode_list(file, "table", config.table_defaults);
  config.columns = decode_list(file, "column", ColumnConfig());
  for (const Override& o : parsed) {
    if (o.path[0] != "table") continue;
    if (config.tables.empty()) {
      TableConfig trial;  // finds wrong keys and types now; wrong names are found with the data
      apply_to(o, trial);
      config.table_overrides.push_back({o.path[1], o.text});
    } else {
      apply_to_list(o, config.tables);
    }
  }
  const config::Given given = given_keys(file, parsed);
  // The reader of the path is then asked from the reader plugins (choose_reader()).
  if (!config.data.path.empty() && !given.contains("data.reader")) config.data.reader.clear();
  config::check_effects(config, given);
  return config;
}

Config load_config(const std::string& path, const std::vector<std::string>& overrides) {
  const std::string text = read_file(path, "cannot read the config file ");
  const bool data =
      std::any_of(overrides.begin(), overrides.end(), [](const std::string& o) { return o.starts_with("data."); });
  if (!data && parse_toml(text, path).empty())
    fail(Code::kInvalidArgument, path,
         " is empty (a pipe can be read only once): set data.path for a job on files, or reader = \"synthetic\" in "
         "[data] for generated data");
  return parse_config(text, path, overrides);
}

bool is_drawn(const std::string& feature) {
  const size_t mark = feature.find('?');
  return mark != std::string::npos && feature.find("draw=", mark) != std::string::npos;
}

std::string feature_name(const std::string& feature) {
  return is_drawn(feature) ? feature.substr(0, feature.find('?')) : feature;
}

namespace {

// Turns the key into the option of the compute kernel that rounds.
void take_rounding(TableConfig& table) {
  if (table.rounding == "nearest") return;
  const auto refuse = [&](const std::string& why) {
    fail(Code::kInvalidArgument, "table ", table.name, ": rounding = \"", table.rounding, "\" ", why);
  };
  if (table.data_type == "float32" || table.data_type == "fp32")
    refuse("is for rows of 16 bits: set data_type to float16 or bfloat16, or leave it out");
  if (!table.compute_kernels.empty() || (table.compute_kernel != "auto" && table.compute_kernel != "fused"))
    refuse("is an option of the compute kernel fused, and the table names others: leave one of them out");
  table.compute_kernel = "fused?rounding=" + table.rounding;
}

}  // namespace

bool CommConfig::loses(std::string_view what) const {
  return std::find(lossy.begin(), lossy.end(), what) != lossy.end();
}

std::vector<TableConfig> tables_of(const Config& config, const std::vector<DataColumn>& columns) {
  std::vector<TableConfig> tables = config.tables;
  if (tables.empty()) {
    for (const DataColumn& column : columns) {
      tables.push_back(config.table_defaults);
      tables.back().name = column.name;
    }
  }
  for (const TableOverride& o : config.table_overrides) apply_to_list(parse_override(o.text), tables);
  ColumnIndex index;
  for (const DataColumn& column : columns) index.emplace(column.name, &column);
  for (TableConfig& table : tables) {
    if (table.features.empty()) table.features = {table.name};
    if (table.embedding_dim == 0) table.embedding_dim = config.model.embedding_dim;
    fill_from_columns(table, index);
    for (std::string& feature : table.features) feature = feature_name(feature);
    take_rounding(table);
    if (!table.trainable) config::set_option(table.optimizer, "learning_rate", toml::value<double>(0));
  }
  return tables;
}

}  // namespace tessera
