#include "train/report_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tessera/error.h"

namespace tessera::cli {
namespace {

using json = nlohmann::ordered_json;

std::string format(const char* pattern, auto... values) {
  char text[256];
  std::snprintf(text, sizeof(text), pattern, values...);
  return text;
}

std::string measured_text(const json& pair) {
  return pair["measured"].is_null() ? format("%9s", "-") : format("%9.1f", pair["measured"].get<double>());
}

std::string predicted_step_text(const json& c) {
  const json& step = c["step_us"];
  return str_cat("plan versus actual (figures: ", c["figures"].get<std::string>(), "): a step ",
                 format("%.1f us predicted, %.1f us measured\n", number(step["predicted"]), number(step["measured"])));
}

std::string plan_versus_actual_text(const json& c) {
  const auto both = [&](const json& pair) {
    return format(" %9.1f %9.1f", number(pair["predicted"]), number(pair["measured"]));
  };
  std::string out;
  if (c["ranks"].size() > 1) out += "Measured exchanges include waiting for the other ranks.\n";
  out += format("%-20s", "us per step");
  for (size_t r = 0; r < c["ranks"].size(); ++r) out += format(" %19s", str_cat("rank ", r, ", plan/actual").c_str());
  out += "\n";
  const auto row = [&](const std::string& name, const auto& of) {
    out += format("%-20s", name.c_str());
    for (const json& rank : c["ranks"]) out += both(of(rank));
    out += "\n";
  };
  for (const auto& [name, unused] : c["ranks"][0]["stages_us"].items()) {
    row(name, [&name = name](const json& rank) { return rank["stages_us"][name]; });
  }
  row("all", [](const json& rank) { return rank["us"]; });
  row("KB in the host", [&](const json& rank) {
    const json& b = rank["bytes"]["in_host"];
    return json{{"predicted", number(b["predicted"]) / 1e3}, {"measured", number(b["measured"]) / 1e3}};
  });
  row("KB across hosts", [&](const json& rank) {
    const json& b = rank["bytes"]["across_hosts"];
    return json{{"predicted", number(b["predicted"]) / 1e3}, {"measured", number(b["measured"]) / 1e3}};
  });
  out += format("\n%-20s %4s %-18s %9s %9s %9s %9s\n", "table, us per step", "rank", "sharding", "lookup", "actual",
                "update", "actual");
  for (const json& t : c["tables"]) {
    out += format("%-20s %4d %-18s %9.1f", t["table"].get<std::string>().substr(0, 60).c_str(), t["rank"].get<int>(),
                  t["sharding_type"].get<std::string>().substr(0, 60).c_str(), number(t["lookup_us"]["predicted"]));
    out += " " + measured_text(t["lookup_us"]) + format(" %9.1f ", number(t["update_us"]["predicted"])) +
           measured_text(t["update_us"]) + "\n";
  }
  for (const json& t : c["tables"]) {
    if (!t.contains("disk_reads")) continue;
    const json& reads = t["disk_reads"];
    out += format("table %s on rank %d: %.1f rows read from disk in a step predicted, %.1f measured\n",
                  t["table"].get<std::string>().c_str(), t["rank"].get<int>(), number(reads["predicted"]),
                  number(reads["measured"]));
  }
  return out;
}

void print_traffic(const json& report) {
  std::printf("\n%-20s %14s %14s %14s %14s\n", "bytes per step", "in hosts", "planned", "across hosts", "planned");
  for (const auto& [name, v] : report.items()) {
    const json &in = v["in_host"], &across = v["across_hosts"];
    std::printf("%-20s %14.0f %14.0f %14.0f %14.0f\n", name.c_str(), number(in["sent"]), number(in["planned"]),
                number(across["sent"]), number(across["planned"]));
  }
}

constexpr size_t kHeadsOfALine = 2;  // more heads become a table with a line for each

// Arranges metrics "head.metric" as a table: a line per head, a column per metric.
class HeadTable {
 public:
  explicit HeadTable(const MetricValues& m) {
    for (const auto& [name, value] : m.values) {
      const size_t dot = name.substr(0, name.find('?')).find('.');
      const std::string head = dot == std::string::npos ? "" : name.substr(0, dot);
      const std::string metric = name.substr(dot == std::string::npos ? 0 : dot + 1);
      if (std::find(heads_.begin(), heads_.end(), head) == heads_.end()) heads_.push_back(head);
      if (std::find(metrics_.begin(), metrics_.end(), metric) == metrics_.end()) metrics_.push_back(metric);
      values_[{head, metric}] = value;
    }
  }

  size_t heads() const { return heads_.size(); }
  std::string text(int digits) const {
    size_t widest = 4;
    for (const std::string& head : heads_) widest = std::max(widest, head.size());
    const int first = static_cast<int>(widest);
    std::string out = format("\n  %-*s", first, "head");
    for (const std::string& metric : metrics_) out += format("  %*s", width(metric), metric.c_str());
    for (const std::string& head : heads_) {
      out += format("\n  %-*s", first, head.c_str());
      for (const std::string& metric : metrics_) {
        const auto value = values_.find({head, metric});
        out += value == values_.end() ? format("  %*s", width(metric), "")
                                      : format("  %*.*f", width(metric), digits, value->second);
      }
    }
    return out;
  }

 private:
  static int width(const std::string& metric) { return std::max(8, static_cast<int>(metric.size())); }

  std::vector<std::string> heads_, metrics_;  // in the order of first appearance
  std::map<std::pair<std::string, std::string>, double> values_;
};

}  // namespace

double number(const json& value) { return value.is_null() ? std::nan("") : value.get<double>(); }

std::string unknown_ids_text(const std::string& rows, const UnknownIds& ids) {
  return str_cat("tessera: warning: ", rows, ": ", ids.warning(),
                 ", which has the ids of the training rows: all other ids count as one. Are these other data, or "
                 "are they written in another way?");
}

void print_tables(const json& report) {
  if (report["device"] != "cpu")
    std::printf("stages are the host's times: what they enqueue on %s is not waited for\n",
                report["device"].get<std::string>().c_str());
  std::printf("%-20s %14s %18s\n", "stage", "us per step", "largest rank's us");
  for (const auto& [name, v] : report["stages"].items()) {
    std::printf("%-20s %14.1f %18.1f\n", name.c_str(), number(v["us_per_step"]), number(v["largest_us_per_step"]));
  }
  if (report.contains("pipeline")) {
    const json& p = report["pipeline"];
    std::printf(
        "\nread, route and exchange of ids took %.1f us per step, of which %.1f us ran during the step before\n",
        number(p["work_us_per_step"]), number(p["hidden_us_per_step"]));
  }
  if (report.contains("bytes_per_step")) print_traffic(report["bytes_per_step"]);
  std::printf("\n%s\n", plan_versus_actual_text(report["plan_versus_actual"]).c_str());
}

void print_training(const json& report, bool verbose) {
  std::printf("%s on %s: %lld steps, %.1f s, %.0f samples/s, train loss %.4f\n",
              report["model"].get<std::string>().c_str(), report["data"]["name"].get<std::string>().c_str(),
              static_cast<long long>(report["steps"].get<int64_t>()), number(report["train"]["seconds"]),
              number(report["train"]["samples_per_s"]), number(report["train"]["loss"]));
  if (verbose) {
    std::printf("first step done after %.2f s\n", number(report["seconds_to_first_step"]));
    std::printf("%s", predicted_step_text(report["plan_versus_actual"]).c_str());
  }
  if (const auto dropped = report["dropped_ids"].get<int64_t>())
    std::printf("%lld ids out of range were dropped\n", static_cast<long long>(dropped));
  const double steps = std::max(1.0, number(report["steps"]));  // steps of this run
  for (const auto& [name, table] : report["tables"].items()) {
    if (table.contains("storage_reads")) {
      const double read = number(table["read_us"]);
      std::printf(
          "table %s: %.1f %% of its lookups found their row in memory; a step read %.1f rows from disk and wrote %.1f, "
          "and %.0f %% of the reads' time was ahead of the lookups\n",
          name.c_str(), 100 * number(table["hits"]) / std::max(1.0, number(table["lookups"])),
          number(table["storage_reads"]) / steps, number(table["storage_writes"]) / steps,
          read > 0 ? 100 * std::max(0.0, 1 - number(table["wait_us"]) / read) : 100.0);
      continue;
    }
    if (number(table["hits"]) >= number(table["lookups"])) continue;  // every lookup found its row
    std::printf("table %s: %.0f rows in use, %.0f evicted, %.1f %% of its lookups found one\n", name.c_str(),
                number(table["rows_in_use"]), number(table["evictions"]),
                100 * number(table["hits"]) / number(table["lookups"]));
  }
}

std::string metrics_text(const MetricValues& m, int digits, const std::string& note) {
  const std::string samples = format("(%lld samples)", static_cast<long long>(m.samples)) + note;
  const HeadTable table(m);
  if (table.heads() > kHeadsOfALine) return format("%zu heads ", table.heads()) + samples + table.text(digits);
  std::string out;
  for (const auto& [name, value] : m.values)
    out += format("%s %.*f  ",
                  name == "auc"                  ? "AUC"
                  : name == "normalized_entropy" ? "NE"
                                                 : name.c_str(),
                  digits, value);
  return out + samples;
}

std::string monitor_text(const std::string& monitor, const MetricValues& metrics) {
  return format("%s %.4f", monitor.c_str(), metrics[monitor]);
}

std::string validation_text(const TrainValidation& v) {
  return format("validation at step %lld: ", static_cast<long long>(v.step)) + metrics_text(v.metrics, 4) +
         (v.best ? "  best so far" : "");
}

}  // namespace tessera::cli
