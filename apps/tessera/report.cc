// tessera report A B: compares two runs by their report.json.
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "command.h"
#include "options.h"
#include "tessera/config.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

constexpr char kAboutReport[] =
    "Compares two runs of tessera train by their reports (report.json = \"FILE\" in the config, or --set "
    "report.json=FILE). Prints settings that differ, metrics of the test and of the best validation, speed and the "
    "stages of a step.";

json read_report(const std::string& path) {
  json report = json::parse(read_file(path, "cannot read the report "), nullptr, /*allow_exceptions=*/false);
  if (report.is_discarded()) fail(Code::kDataLoss, path, " is not a report of tessera train: it is no JSON");
  for (const char* key : {"model", "data", "train", "test", "stages", "config"}) {
    if (!report.is_object() || !report.contains(key))
      fail(Code::kInvalidArgument, path, " is not a report of tessera train: it has no \"", key, '"');
  }
  return report;
}

// Values of both runs: first all names of the first run, then those that only the second one has.
struct Row {
  std::string name, a, b;
};

using Settings = std::vector<std::pair<std::string, std::string>>;

// Adds each entry of an inline table, `{ name = "adam", eps = 1e-8 }`, as a setting of its own; other values as they
// are.
void add_setting(const std::string& name, const std::string& value, Settings* out) {
  if (!value.starts_with("{ ") || !value.ends_with(" }")) {
    out->emplace_back(name, value);
    return;
  }
  const std::string inside = value.substr(2, value.size() - 4);
  int depth = 0;
  bool quoted = false;
  size_t begin = 0;
  for (size_t i = 0; i <= inside.size(); ++i) {
    const char c = i < inside.size() ? inside[i] : ',';
    if (c == '"' && (i == 0 || inside[i - 1] != '\\')) quoted = !quoted;
    if (!quoted) depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (c != ',' || (i < inside.size() && (quoted || depth > 0))) continue;
    const std::string one = inside.substr(begin, i - begin);
    const size_t equals = one.find(" = ");
    if (equals != std::string::npos) add_setting(name + "." + one.substr(0, equals), one.substr(equals + 3), out);
    begin = i + 2;  // skips ", "
  }
}

// Settings of a config as written by to_toml(): "data.epochs", "table film.rows" and their values.
Settings settings_of(const std::string& toml) {
  Settings out;
  std::istringstream lines(toml);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with("[[")) {
      section = line.substr(2, line.find(']') - 2);
    } else if (line.starts_with('[')) {
      section = line.substr(1, line.find(']') - 1);
    } else if (equals != std::string::npos) {
      const std::string key = line.substr(0, equals), value = line.substr(equals + 3);
      const bool names =
          key == "name" && (section == "table" || section == "layer" || section == "head" || section == "column");
      if (names)
        section += " " + value;
      else
        add_setting(section + "." + key, value, &out);
    }
  }
  return out;
}

std::string value_of(const Settings& all, const std::string& name) {
  for (const auto& [known, value] : all) {
    if (known == name) return value;
  }
  return "-";
}

std::vector<Row> differing_settings(const json& a, const json& b) {
  Settings mine = settings_of(a["config"].get<std::string>()), theirs = settings_of(b["config"].get<std::string>());
  mine.emplace_back("ranks", a["world_size"].dump());
  theirs.emplace_back("ranks", b["world_size"].dump());
  std::vector<Row> rows;
  for (const auto& [name, value] : mine) {
    const std::string other = value_of(theirs, name);
    if (other != value && !name.starts_with("report.")) rows.push_back({name, value, other});
  }
  for (const auto& [name, value] : theirs) {
    if (value_of(mine, name) == "-" && !name.starts_with("report.")) rows.push_back({name, "-", value});
  }
  return rows;
}

std::string number_of(const json& value) {
  if (!value.is_number()) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value.get<double>());
  return text;
}

// Adds the numbers of two objects, matched by key.
void add_numbers(const std::string& before, const json& a, const json& b, std::vector<Row>* rows) {
  const auto wanted = [](const std::string& key, const json& v) {
    return (v.is_number() || v.is_null()) && key != "seconds" && key != "step";
  };
  for (const auto& [key, value] : a.items()) {
    if (wanted(key, value)) rows->push_back({before + key, number_of(value), number_of(b.value(key, json()))});
  }
  for (const auto& [key, value] : b.items()) {
    if (wanted(key, value) && !a.contains(key)) rows->push_back({before + key, "-", number_of(value)});
  }
}

json best_validation(const json& report) {
  json best = json::object();
  for (const json& v : report.value("validations", json::array())) {
    if (v.value("best", false)) best = v;
  }
  return best;
}

std::vector<Row> results(const json& a, const json& b) {
  std::vector<Row> rows = {{"train loss", number_of(a["train"]["loss"]), number_of(b["train"]["loss"])}};
  add_numbers("test ", a["test"], b["test"], &rows);
  const json best_a = best_validation(a), best_b = best_validation(b);
  if (!best_a.empty() || !best_b.empty())
    rows.push_back(
        {"best validation at step", number_of(best_a.value("step", json())), number_of(best_b.value("step", json()))});
  add_numbers("validation ", best_a, best_b, &rows);
  return rows;
}

std::vector<Row> speed(const json& a, const json& b) {
  std::vector<Row> rows = {{"steps", number_of(a["steps"]), number_of(b["steps"])}};
  for (const char* key : {"samples", "seconds", "samples_per_s"})
    rows.push_back({key, number_of(a["train"][key]), number_of(b["train"][key])});
  json mine = json::object(), theirs = json::object();
  for (const auto& [stage, us] : a["stages"].items()) mine[stage] = us["us_per_step"];
  for (const auto& [stage, us] : b["stages"].items()) theirs[stage] = us["us_per_step"];
  add_numbers("us a step, ", mine, theirs, &rows);
  return rows;
}

// The change of a number, absolute and relative to the first.
std::string change_of(const Row& row) {
  if (row.a == "-" || row.b == "-") return "";
  char* end_a = nullptr;
  char* end_b = nullptr;
  const double a = std::strtod(row.a.c_str(), &end_a), b = std::strtod(row.b.c_str(), &end_b);
  if (*end_a != '\0' || *end_b != '\0' || a == b) return "";
  char text[64];
  if (a == 0)
    std::snprintf(text, sizeof(text), "%+.4g", b - a);
  else
    std::snprintf(text, sizeof(text), "%+.4g (%+.1f %%)", b - a, 100 * (b - a) / std::abs(a));
  return text;
}

void print(const char* title, const std::vector<Row>& rows, bool changes) {
  if (rows.empty()) return;
  std::printf("%s\n", title);
  int name = 0, a = 5, b = 6;
  for (const Row& row : rows) {
    name = std::max(name, static_cast<int>(row.name.size()));
    a = std::max(a, static_cast<int>(row.a.size()));
    b = std::max(b, static_cast<int>(row.b.size()));
  }
  std::printf("  %-*s  %*s  %*s\n", name, "", a, "first", b, "second");
  for (const Row& row : rows) {
    std::printf("  %-*s  %*s  %*s  %s\n", name, row.name.c_str(), a, row.a.c_str(), b, row.b.c_str(),
                changes ? change_of(row).c_str() : "");
  }
}

}  // namespace

int report_command(const std::vector<std::string>& args) {
  std::string first, second;
  Options options("report", "A B", kAboutReport);
  options.argument("first", po::value(&first));
  options.argument("second", po::value(&second));
  if (!parse_options(args, options)) return 0;
  if (second.empty()) throw UsageError("two reports are needed, A and B: see tessera report --help");
  const json a = read_report(first), b = read_report(second);
  std::printf("first:  %s, %s on %s\nsecond: %s, %s on %s\n", first.c_str(), a["model"].get<std::string>().c_str(),
              a["data"]["name"].get<std::string>().c_str(), second.c_str(), b["model"].get<std::string>().c_str(),
              b["data"]["name"].get<std::string>().c_str());
  const std::vector<Row> settings = differing_settings(a, b);
  if (settings.empty()) std::printf("settings: all the same\n");
  print("settings that differ", settings, false);
  print("results", results(a, b), true);
  print("speed", speed(a, b), true);
  return 0;
}

}  // namespace tessera::cli
