#include "config/decode.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/sdk/nearest.h"

namespace tessera::config {
namespace {

using json = nlohmann::ordered_json;

const char* type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a floating-point number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

// Bounds of a number and its name in errors: "job.threads".
struct Rule {
  std::string name;
  double least, most;
  const std::vector<std::string>& choices;
};

std::string number_text(double v) {
  return str_cat(json(v == std::floor(v) && std::abs(v) < 1e15 ? json(int64_t(v)) : json(v)));
}

template <class T>
T in_range(const toml::node& at, const Rule& rule, T value) {
  const auto v = static_cast<double>(value);
  if (v >= rule.least && v <= rule.most && !std::isnan(v)) return value;
  const bool open = rule.most > 9e18;
  fail(Code::kInvalidArgument, where(at), ": ", rule.name, " is ", str_cat(json(value)), ", but must be ",
       open ? str_cat("at least ", number_text(rule.least))
            : str_cat("between ", number_text(rule.least), " and ", number_text(rule.most)));
}

void read(const toml::node& node, const Rule& rule, bool& out) {
  const auto v = node.value_exact<bool>();
  if (!v) wrong_type(node, rule.name, "true or false");
  out = *v;
}

void read(const toml::node& node, const Rule& rule, int64_t& out) {
  const auto v = node.value_exact<int64_t>();
  if (!v) wrong_type(node, rule.name, "an integer");
  out = in_range(node, rule, *v);
}

void read(const toml::node& node, const Rule& rule, double& out) {
  if (const auto i = node.value_exact<int64_t>()) {
    out = in_range(node, rule, static_cast<double>(*i));
    return;
  }
  const auto v = node.value_exact<double>();
  if (!v) wrong_type(node, rule.name, "a number");
  if (!std::isfinite(*v)) fail(Code::kInvalidArgument, where(node), ": ", rule.name, " must be a finite number");
  out = in_range(node, rule, *v);
}

void read(const toml::node& node, const Rule& rule, std::optional<bool>& out) {
  bool v = false;
  read(node, rule, v);
  out = v;
}

void read(const toml::node& node, const Rule& rule, std::optional<double>& out) {
  double v = 0;
  read(node, rule, v);
  out = v;
}

void read(const toml::node& node, const Rule& rule, std::string& out) {
  const auto v = node.value_exact<std::string>();
  if (!v) wrong_type(node, rule.name, "a string");
  if (!rule.choices.empty() && std::find(rule.choices.begin(), rule.choices.end(), *v) == rule.choices.end())
    fail(Code::kInvalidArgument, where(node), ": ", rule.name, " is \"", *v, "\", but must be one of ",
         sdk::joined(rule.choices));
  out = *v;
}

void read(const toml::node& node, const Rule& rule, std::optional<NumberOrWord>& out) {
  NumberOrWord v;
  if (node.is_string())
    read(node, rule, v.word);
  else if (node.is_number())
    read(node, rule, v.number);
  else
    wrong_type(node, rule.name, "a number or a string");
  out = std::move(v);
}

template <class T>
constexpr const char* kElement = nullptr;
template <>
constexpr const char* kElement<std::string> = "a string or an array of strings";
template <>
constexpr const char* kElement<int64_t> = "an integer or an array of integers";
template <>
constexpr const char* kElement<double> = "a number or an array of numbers";

// Reads a list, or one element that stands for a list of one.
template <class T>
void read(const toml::node& node, const Rule& rule, std::vector<T>& out) {
  std::vector<T> list;
  if (const toml::array* array = node.as_array()) {
    for (const toml::node& item : *array) {
      T value{};
      read(item, rule, value);
      list.push_back(std::move(value));
    }
  } else {
    const bool fits = (std::is_same_v<T, std::string> && node.is_string()) ||
                      (std::is_same_v<T, int64_t> && node.is_integer()) ||
                      (std::is_same_v<T, double> && node.is_number());
    if (!fits) wrong_type(node, rule.name, kElement<T>);
    T value{};
    read(node, rule, value);
    list.push_back(std::move(value));
  }
  out = std::move(list);
}

json to_json(const toml::node& node, const std::string& name) {
  if (const auto* v = node.as_string()) return v->get();
  if (const auto* v = node.as_integer()) return v->get();
  if (const auto* v = node.as_boolean()) return v->get();
  if (const auto* v = node.as_floating_point()) {
    if (!std::isfinite(v->get())) fail(Code::kInvalidArgument, where(node), ": ", name, " must be a finite number");
    return v->get();
  }
  if (const auto* array = node.as_array()) {
    json list = json::array();
    for (const toml::node& item : *array) list.push_back(to_json(item, name));
    return list;
  }
  if (const auto* table = node.as_table()) {
    json object = json::object();
    for (const auto& [key, value] : *table) object[std::string(key.str())] = to_json(value, name);
    return object;
  }
  wrong_type(node, name, "a string, a number, a boolean, an array or a table");
}

// toml++ sorts tables by key. The positions restore the written order.
std::vector<std::pair<std::string, const toml::node*>> in_written_order(const toml::table& table) {
  std::vector<std::pair<toml::source_position, std::pair<std::string, const toml::node*>>> items;
  for (const auto& [key, value] : table) items.push_back({key.source().begin, {std::string(key.str()), &value}});
  std::stable_sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::pair<std::string, const toml::node*>> out;
  for (auto& item : items) out.push_back(std::move(item.second));
  return out;
}

void read(const toml::node& node, const Rule& rule, PartSpec& out) {
  const toml::table* table = node.as_table();
  if (!table) wrong_type(node, rule.name, "an inline table like { name = \"exact_sgd\", learning_rate = 0.1 }");
  const toml::node* name = table->get("name");
  if (!name) fail(Code::kInvalidArgument, where(node), ": ", rule.name, " has no key \"name\"");
  PartSpec part;
  read(*name, {rule.name + ".name", 0, 0, rule.choices}, part.name);
  for (const auto& [key, value] : in_written_order(*table)) {
    if (key != "name") set_option(part, key, *value);
  }
  out = std::move(part);
}

void read(const toml::node& node, const Rule& rule, PartOptions& out) {
  const toml::table* table = node.as_table();
  const char* like = rule.name.ends_with(".optimizer") ? "{ learning_rate = 0.001 }"
                     : rule.name.ends_with(".names")   ? "{ \"*\" = \"over_arch.model.*\" }"
                                                       : "{ widths = [64, 1] }";
  if (!table) wrong_type(node, rule.name, str_cat("an inline table like ", like));
  json options = json::object();
  for (const auto& [key, value] : in_written_order(*table)) options[key] = to_json(*value, rule.name + "." + key);
  out.json = options.dump();
}

template <class S>
std::vector<std::string> names_of(const std::vector<Field<S>>& all) {
  std::vector<std::string> names;
  for (const auto& field : all) names.emplace_back(field.name);
  return names;
}

}  // namespace

std::string where(const toml::node& node) {
  const toml::source_region& source = node.source();
  const std::string path = source.path ? *source.path : std::string("config");
  return path.starts_with("--set ") ? path : str_cat(path, ":", source.begin.line);
}

void wrong_type(const toml::node& at, const std::string& what, const std::string& expected) {
  fail(Code::kInvalidArgument, where(at), ": ", what, " must be ", expected, ", not ", type_name(at));
}

namespace {

// The new name of a renamed key; empty: it was not renamed.
std::string renamed_key(std::string_view section, std::string_view key) {
  const bool table = section.starts_with("table");
  if (section == "job" && key == "kernel") return "kernel_plugin";
  if (table && key == "kernel") return "compute_kernel";
  if (table && key == "kernels") return "compute_kernels";
  return "";
}

}  // namespace

void unknown_key(const toml::node& at, const std::string& section, const std::string& key,
                 const std::vector<std::string>& known) {
  if (section == "data" && key == "split")
    fail(Code::kInvalidArgument, where(at),
         ": \"split\" in [data] is an option of its reader now: reader = "
         "\"movielens-100k?split=time\"");
  if (const std::string now = renamed_key(section, key); !now.empty())
    fail(Code::kInvalidArgument, where(at), ": \"", key, "\" in [", section, "] is called \"", now, "\" now");
  const std::string nearest = sdk::nearest_name(key, known);
  std::string meant = str_cat("the nearest known key is \"", nearest, "\"");
  if (sdk::name_distance(key, nearest) > key.size() / 2) {  // not a misspelling but another word
    meant = "there are";
    for (const std::string& name : known) meant += str_cat(name == known.front() ? " \"" : ", \"", name, "\"");
  }
  fail(Code::kInvalidArgument, where(at), ": unknown key \"", key, "\"",
       section.empty() ? "" : str_cat(" in [", section, "]"), "; ", meant);
}

void set_option(PartSpec& part, const std::string& key, const toml::node& value) {
  if (key == "name") return read(value, {"the optimizer's name", 0, 0, {}}, part.name);
  json options = json::parse(part.options);
  options[key] = to_json(value, key);
  part.options = options.dump();
}

void set_option(PartOptions& options, const std::string& key, const toml::node& value) {
  json all = json::parse(options.json);
  all[key] = to_json(value, key);
  options.json = all.dump();
}

template <class S>
void decode(const toml::table& table, const std::string& section, S& out) {
  const auto& all = fields<S>();
  for (const auto& [key, node] : in_written_order(table)) {
    const auto field = std::find_if(all.begin(), all.end(), [&key = key](const auto& f) { return key == f.name; });
    if (field == all.end()) unknown_key(*node, section, key, names_of(all));
    const Rule rule{section + "." + key, field->allowed.least, field->allowed.most, field->allowed.choices};
    std::visit([&, node = node](auto member) { read(*node, rule, out.*member); }, field->member);
  }
}

void decode_table_defaults(const toml::table& table, TableConfig& out) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (only_of_one_table(name)) {
      fail(Code::kInvalidArgument, where(node), ": \"", name, "\" belongs to one table: write it under its [[table]]");
    }
  }
  decode(table, "table_defaults", out);
}

template void decode(const toml::table&, const std::string&, PluginsConfig&);
template void decode(const toml::table&, const std::string&, JobConfig&);
template void decode(const toml::table&, const std::string&, CommConfig&);
template void decode(const toml::table&, const std::string&, ModelConfig&);
template void decode(const toml::table&, const std::string&, LayerConfig&);
template void decode(const toml::table&, const std::string&, HeadConfig&);
template void decode(const toml::table&, const std::string&, TableConfig&);
template void decode(const toml::table&, const std::string&, DenseOptimizerConfig&);
template void decode(const toml::table&, const std::string&, PlannerConfig&);
template void decode(const toml::table&, const std::string&, DataConfig&);
template void decode(const toml::table&, const std::string&, ScheduleConfig&);
template void decode(const toml::table&, const std::string&, ValidationConfig&);
template void decode(const toml::table&, const std::string&, ColumnConfig&);
template void decode(const toml::table&, const std::string&, MetricsConfig&);
template void decode(const toml::table&, const std::string&, PublishConfig&);
template void decode(const toml::table&, const std::string&, ReportConfig&);

}  // namespace tessera::config
