#include "config/effects.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "config/fields.h"

namespace tessera::config {
namespace {

// The reader that generates data, its keys, and those of reader plugins.
constexpr std::string_view kGenerator = "synthetic";
constexpr std::array<std::string_view, 8> kGeneratorKeys = {"rows",  "samples", "test_samples", "columns",
                                                            "dense", "pooling", "labels",       "index_dist"};
constexpr std::array<std::string_view, 8> kFileKeys = {"path",          "rows",  "test_path",  "test",
                                                       "test_fraction", "limit", "buffer_mib", "order_by"};

template <class List>
bool has(const List& list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

std::string of_data(const Config& config, std::string_view key) {
  const DataConfig& data = config.data;
  const bool generated = data.reader == kGenerator;
  if (generated && has(kFileKeys, key) && !has(kGeneratorKeys, key))
    return "the reader \"synthetic\" generates its data and does not use it, unlike reader plugins such as \"csv\": "
           "leave it out, or set data.reader";
  if (!generated && has(kGeneratorKeys, key) && !has(kFileKeys, key))
    return "only the reader \"synthetic\" uses it, and this job reads files: leave it out";
  const bool file = !data.test_path.empty() || data.test.starts_with("file:");
  if (key == "test_fraction" && file)
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
  const ValidationConfig& v = config.validation;
  if (key != "fraction" && key != "folds" && v.fraction == 0 && v.folds == 0)
    return "no rows are kept for validation: set validation.fraction, or leave it out";
  return {};
}

// The first column of history.columns whose history no [[column]] reads; empty: there is none. The first one of all is
// the item, by which repeats are found.
std::string unread_history(const Config& config) {
  const std::vector<std::string>& names = config.history.columns;
  const auto reads = [](const ColumnConfig& column, const std::string& name) {
    std::vector<std::string> fields = column.name;
    if (!column.column.empty()) fields = {column.column};
    return std::any_of(fields.begin(), fields.end(),
                       [&](const std::string& field) { return field.ends_with("." + name); });
  };
  for (size_t i = config.history.repeats ? 0 : 1; i < names.size() && !config.columns.empty(); ++i) {
    if (std::none_of(config.columns.begin(), config.columns.end(), [&](const auto& c) { return reads(c, names[i]); }))
      return names[i];
  }
  return {};
}

std::string of_history(const Config& config, std::string_view key) {
  if (const std::string name = key == "columns" ? unread_history(config) : ""; !name.empty())
    return str_cat("no [[column]] reads history.", name, ": leave \"", name, "\" out, or add one");
  if (config.history.user.empty()) return "set history.user, the column of the events' users, or leave it out";
  if (config.data.reader == kGenerator)
    return "the reader \"synthetic\" generates its data, without events: leave it out, or set data.path";
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

std::string of_planner(const Config& config, std::string_view key) {
  if ((key == "search" || key == "time_limit_s") && !config.planner.plan.empty())
    return "planner.plan is a plan, so none is searched: leave one of them out";
  return {};
}

template <class Entries>
bool all_frozen(const Entries& entries) {
  return !entries.empty() && std::none_of(entries.begin(), entries.end(), [](const auto& e) { return e.trainable; });
}

std::string of_schedule(const Config& config, std::string_view key) {
  const bool tables = key == "tables";
  if (tables ? all_frozen(config.tables) : all_frozen(config.layers))
    return str_cat("every [[", tables ? "table" : "layer", "]] has trainable = false: leave it out");
  return {};
}

std::string of_dense_optimizer(const Config& config, std::string_view) { return of_schedule(config, "dense"); }

std::string of_job(const Config& config, std::string_view key) {
  return key == "ema" ? of_schedule(config, "dense") : std::string();
}

struct EffectRule {
  std::string_view section;
  std::string (*missing)(const Config& config, std::string_view key);
  std::string_view switched;  // the key that switches the section off; empty: none
};
constexpr std::array<EffectRule, 10> kRules = {{
    {"data", of_data, ""},
    {"model", of_model, ""},
    {"validation", of_validation, "validation.fraction"},
    {"history", of_history, ""},
    {"metrics", of_metrics, "metrics.training"},
    {"table_defaults", of_table_defaults, ""},
    {"planner", of_planner, ""},
    {"schedule", of_schedule, ""},
    {"dense_optimizer", of_dense_optimizer, ""},
    {"job", of_job, ""},
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
      const std::decay_t<decltype(values)> defaults;
      const auto changes_nothing = [&](auto member) {
        const bool on = std::is_same_v<decltype(member), bool std::decay_t<decltype(values)>::*> &&
                        !is_off(defaults.*member);  // switching it off is a change
        return is_off(values.*member) && !on;
      };
      if (key == field.name) off = std::visit(changes_nothing, field.member);
    }
  });
  return off;
}

// True if --set replaces the file's reader and the file has this key for generated data. So a user can read other data
// once without editing the file.
bool is_of_replaced_reader(const Given& given, std::string_view section, std::string_view key, const std::string& at) {
  constexpr std::string_view kSet = "--set";
  const auto reader = given.find("data.reader");
  return section == "data" && has(kGeneratorKeys, key) && !at.starts_with(kSet) && reader != given.end() &&
         reader->second.starts_with(kSet);
}

// True for the fraction of a job to which --set gives a file of test rows, or for the default fraction in --set.
bool is_of_replaced_test(const Config& config, const Given& given, const std::string& path, const std::string& at) {
  constexpr std::string_view kSet = "--set";
  const auto set = [&](const char* key) {
    const auto found = given.find(key);
    return found != given.end() && found->second.starts_with(kSet);
  };
  return path == "data.test_fraction" && config.data.test_fraction == DataConfig().test_fraction &&
         (at.starts_with(kSet) || set("data.test") || set("data.test_path"));
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

void check_effects(Config& config, const Given& given) {
  for (const auto& [path, at] : given) {
    const size_t dot = path.find('.');
    for (const EffectRule& rule : kRules) {
      if (path.compare(0, dot, rule.section) != 0) continue;
      const std::string_view key = std::string_view(path).substr(dot + 1);
      if (is_of_replaced_reader(given, rule.section, key, at)) {
        if (key == "rows" && config.data.reader != kGenerator) config.data.rows.clear();
        continue;
      }
      if (is_of_replaced_test(config, given, path, at)) continue;
      const std::string why = rule.missing(config, key);
      if (!why.empty() && !given.contains(rule.switched) && !is_off(config, rule.section, key))
        fail(Code::kInvalidArgument, at, ": ", path, " has no effect: ", why);
    }
  }
  check_kernel(config, given);
}

}  // namespace tessera::config
