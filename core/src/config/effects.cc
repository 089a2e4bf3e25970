#include "config/effects.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "config/fields.h"

namespace tessera::config {
namespace {

// The keys of [data] that a built-in reader uses, except those that all use.
struct ReaderKeys {
  std::string_view reader;
  std::vector<std::string_view> keys;
};

const std::vector<ReaderKeys>& inside() {
  static const std::vector<ReaderKeys> all = {
      {"criteo-tsv", {"path", "test_path", "rows", "test", "test_fraction", "limit"}},
      {"movielens-100k", {"path", "split", "limit"}},
      {"prepared", {"path", "limit"}},
      // Must be last. Its keys may stay in a file if --set names another reader.
      {"synthetic", {"rows", "samples", "test_samples", "columns", "dense", "pooling", "labels", "index_dist"}},
  };
  return all;
}

template <class List>
bool has(const List& list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

// Lists the readers that use the key; `parts` adds reader components.
std::string takers(std::string_view key, bool parts) {
  std::string out;
  for (const ReaderKeys& r : inside()) {
    if (has(r.keys, key)) out += str_cat(out.empty() ? "\"" : ", \"", r.reader, '"');
  }
  return str_cat(out, parts ? str_cat(out.empty() ? "" : " and ", "reader plugins such as \"csv\"") : "");
}

std::string of_data(const Config& config, std::string_view key) {
  constexpr std::array<std::string_view, 4> kAny = {"reader", "batch", "epochs", "shuffle"};
  constexpr std::array<std::string_view, 7> kParts = {"path",  "test_path",  "test",    "test_fraction",
                                                      "limit", "buffer_mib", "order_by"};
  const DataConfig& data = config.data;
  const bool for_parts = has(kParts, key);
  const auto own =
      std::find_if(inside().begin(), inside().end(), [&](const ReaderKeys& r) { return data.reader == r.reader; });
  const bool taken = own == inside().end() ? for_parts : has(own->keys, key);
  if (!taken && !has(kAny, key))
    return str_cat("the reader \"", data.reader, "\" ", data.reader == "synthetic" ? "generates its data and " : "",
                   "does not use it, unlike ", takers(key, for_parts), ": leave it out, or set data.reader");
  const bool file = !data.test_path.empty() || data.test.starts_with("file:");
  if (key == "test_fraction" && file && data.test_fraction != 0 && data.test_fraction != DataConfig().test_fraction)
    return str_cat("the test rows are those of ", data.test_path.empty() ? data.test.substr(5) : data.test_path,
                   ": leave it out");
  return {};
}

std::string of_model(const Config& config, std::string_view key) {
  const bool graph = config.model.type == "graph";
  if (graph && (key == "bottom_mlp" || key == "top_mlp"))
    return "this model is made of [[layer]]s, and only a DLRM has it: leave it out";
  if (!graph && key == "inputs") return "a DLRM takes all inputs: leave it out, or write [[layer]]s";
  const auto own = [](const TableConfig& t) { return t.embedding_dim != 0; };
  const bool all_own = config.tables.empty() ? config.table_defaults.embedding_dim != 0
                                             : std::all_of(config.tables.begin(), config.tables.end(), own);
  if (graph && key == "embedding_dim" && all_own)
    return "every table has its own: leave it out, or change table_defaults.embedding_dim or those of the [[table]]s";
  return {};
}

std::string of_validation(const Config& config, std::string_view key) {
  if (key != "fraction" && config.validation.fraction == 0)
    return "no rows are kept for validation: set validation.fraction, or leave it out";
  return {};
}

std::string of_metrics(const Config& config, std::string_view key) {
  if (key == "window" && config.metrics.training.empty())
    return "it is the window of metrics.training, which names no metric: leave it out, or name one";
  return {};
}

// The key has no effect if each [[table]] sets its own value.
std::string of_table_defaults(const Config& config, std::string_view key) {
  if (key.starts_with("optimizer")) return {};  // a table may change only one of its options
  const auto& all = fields<TableConfig>();
  const auto field = std::find_if(all.begin(), all.end(), [&](const auto& f) { return key == f.name; });
  if (field == all.end() || config.tables.empty()) return {};
  const auto differs = [&](const TableConfig& t) {
    return std::visit([&](auto member) { return !(t.*member == config.table_defaults.*member); }, field->member);
  };
  if (!std::all_of(config.tables.begin(), config.tables.end(), differs)) return {};
  return "every [[table]] has its own: leave it out, or change those";
}

struct EffectRule {
  std::string_view section;
  std::string (*missing)(const Config& config, std::string_view key);
  std::string_view switched;  // the key that switches the section off; empty: none
};
constexpr std::array<EffectRule, 5> kRules = {{
    {"data", of_data, ""},
    {"model", of_model, ""},
    {"validation", of_validation, "validation.fraction"},
    {"metrics", of_metrics, "metrics.training"},
    {"table_defaults", of_table_defaults, ""},
}};

bool is_off(bool value) { return !value; }
bool is_off(int64_t value) { return value == 0; }
bool is_off(double value) { return value == 0; }
bool is_off(const PartSpec&) { return false; }
bool is_off(const PartOptions&) { return false; }
template <class T>
bool is_off(const std::optional<T>& value) {
  return !value;
}
template <class List>
bool is_off(const List& list) {
  return list.empty();
}

// True if the key's value is 0 or empty, so that it changes nothing.
bool is_off(const Config& config, std::string_view section, std::string_view key) {
  bool off = false;
  for_each_section(config, [&](std::string_view name, const auto& values) {
    if (name != section) return;
    for (const auto& field : fields<std::decay_t<decltype(values)>>()) {
      if (key == field.name) off = std::visit([&](auto member) { return is_off(values.*member); }, field.member);
    }
  });
  return off;
}

// True if --set replaces the file's reader and the file has this key for generated data. So a user can read other data
// once without editing the file.
bool is_of_replaced_reader(const Given& given, std::string_view section, std::string_view key, const std::string& at) {
  constexpr std::string_view kSet = "--set";
  const auto reader = given.find("data.reader");
  return section == "data" && has(inside().back().keys, key) && !at.starts_with(kSet) && reader != given.end() &&
         reader->second.starts_with(kSet);
}

void check_kernel(const Config& config, const Given& given) {
  for (const TableConfig& t : config.tables) {
    const auto own = given.find(str_cat("table.", t.name, ".compute_kernel"));
    if (own != given.end() && given.contains(str_cat("table.", t.name, ".compute_kernels")) &&
        !t.compute_kernels.empty())
      fail(Code::kInvalidArgument, own->second, ": table.", t.name,
           ".compute_kernel has no effect: the planner chooses from its compute_kernels; leave one of them out");
  }
}

}  // namespace

bool takes_effect(const Config& config, std::string_view section, std::string_view key) {
  return std::none_of(kRules.begin(), kRules.end(), [&](const EffectRule& rule) {
    return rule.section == section && rule.switched.empty() && !rule.missing(config, key).empty();
  });
}

void check_effects(const Config& config, const Given& given) {
  for (const auto& [path, at] : given) {
    const size_t dot = path.find('.');
    for (const EffectRule& rule : kRules) {
      if (path.compare(0, dot, rule.section) != 0) continue;
      const std::string_view key = std::string_view(path).substr(dot + 1);
      if (is_of_replaced_reader(given, rule.section, key, at)) continue;
      const std::string why = rule.missing(config, key);
      if (!why.empty() && !given.contains(rule.switched) && !is_off(config, rule.section, key))
        fail(Code::kInvalidArgument, at, ": ", path, " has no effect: ", why);
    }
  }
  check_kernel(config, given);
}

}  // namespace tessera::config
