#include "train/page.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/report/charts.h"
#include "bench/report/html.h"
#include "bench/report/svg.h"
#include "tessera/error.h"
#include "train/report_text.h"

namespace tessera::cli {
namespace {

using json = nlohmann::ordered_json;

bool is_metric(const std::string& key) {
  return key != "samples" && key != "seconds" && key != "step" && key != "best";
}

std::string loss_curve(const json& report) {
  Curve loss{"loss", {}};
  const auto first = report["first_step"].get<double>();
  for (const json& value : report["losses"])
    loss.points.emplace_back(first + static_cast<double>(loss.points.size()) + 1, number(value));
  return curve_chart("Training loss", "step", {loss});
}

std::string validation_curves(const json& report) {
  std::vector<Curve> curves;  // in the order of the metrics
  for (const json& v : report.value("validations", json::array())) {
    size_t at = 0;
    for (const auto& [name, value] : v.items()) {
      if (!is_metric(name)) continue;
      if (at == curves.size()) curves.push_back({name, {}});
      curves[at++].points.emplace_back(v["step"].get<double>(), number(value));
    }
  }
  std::string out;
  for (const Curve& curve : curves) out += curve_chart("Validation: " + curve.name, "step", {curve});
  return out;
}

// The results of the test and of the best validation.
std::string metrics_table(const json& report) {
  std::vector<Line> rows;
  const auto add = [&](const std::string& of, const json& metrics) {
    Line row = {{"of", of}, {"samples", metrics["samples"]}};
    for (const auto& [name, value] : metrics.items()) {
      if (is_metric(name)) row[name] = value;
    }
    rows.push_back(std::move(row));
  };
  const json* best = nullptr;
  const json validations = report.value("validations", json::array());
  for (const json& v : validations) {
    if (v["best"].get<bool>()) best = &v;
  }
  if (report["test"]["samples"].get<int64_t>() > 0) add("test", report["test"]);
  if (best) add(str_cat("best validation, at step ", (*best)["step"].get<int64_t>()), *best);
  return rows.empty() ? "" : html_table(rows);
}

std::string stage_bars_of(const json& report) {
  std::vector<Bar> bars;
  for (const auto& [stage, us] : report["stages"].items()) {
    const double mean = number(us["us_per_step"]), largest = number(us["largest_us_per_step"]);
    bars.push_back({stage, time_text(mean),
                    str_cat(stage, ": ", time_text(mean), ", the slowest rank ", time_text(largest)), mean, mean,
                    largest});
  }
  double all = 0;
  for (const Bar& b : bars) all += b.high;
  return all > 0 ? bar_chart("Time of a step by stage, on rank 0; whiskers reach to the slowest rank", bars, time_text)
                 : "";
}

std::string plan_table(const json& report) {
  std::vector<Line> rows;
  for (const json& module : report["plan"]["modules"]) {
    for (const json& table : module["tables"]) {
      std::map<int64_t, int64_t> shards;  // per rank
      for (const json& shard : table["shards"]) ++shards[shard["rank"].get<int64_t>()];
      std::string ranks;
      for (const auto& [rank, n] : shards)
        ranks += str_cat(ranks.empty() ? "" : ", ", rank, n > 1 ? str_cat(" (", n, ")") : "");
      rows.push_back({{"table", table["name"]},
                      {"sharding_type", table["sharding_type"]},
                      {"compute_kernel", table["compute_kernel"]},
                      {"ranks", ranks}});
    }
  }
  std::vector<Line> times;
  for (const json& t : report["plan_versus_actual"]["tables"]) {
    times.push_back({{"table", t["table"]},
                     {"rank", t["rank"]},
                     {"lookup_us_planned", t["lookup_us"]["predicted"]},
                     {"lookup_us", t["lookup_us"]["measured"]},
                     {"update_us_planned", t["update_us"]["predicted"]},
                     {"update_us", t["update_us"]["measured"]}});
  }
  return (rows.empty() ? "" : html_table(rows)) + (times.empty() ? "" : html_table(times));
}

std::string notes_text(const json& report) {
  std::string out;
  for (const json& note : report.value("start", json::array())) out += note.get<std::string>() + "\n";
  return out;
}

std::string run_in_short(const json& report) {
  const json& train = report["train"];
  const auto ranks = report["world_size"].get<int64_t>();
  return str_cat(ranks, ranks == 1 ? " rank" : str_cat(" ranks over ", report["backend"].get<std::string>()), " on ",
                 report["device"].get<std::string>(), ": ", report["steps"].get<int64_t>(), " steps in ",
                 number_text(std::round(10 * number(train["seconds"])) / 10), " s, ",
                 number_text(std::round(number(train["samples_per_s"]))), " samples/s; ",
                 report["data"]["train_rows"].get<int64_t>(), " rows to train on, ",
                 report["data"]["test_rows"].get<int64_t>(), " to test on.");
}

}  // namespace

std::string train_page(const json& report) {
  const std::string title =
      str_cat("tessera train: ", report["model"].get<std::string>(), " on ", report["data"]["name"].get<std::string>());
  std::string out = "<p>" + escaped(run_in_short(report)) + "</p>\n";
  out += html_section("Metrics", "", metrics_table(report));
  out += html_section("Curves", "", loss_curve(report) + validation_curves(report));
  out += html_section("Stages", "", stage_bars_of(report));
  out += html_section("Plan",
                      "Shards of the tables, and measured times of the sampled tables next to the planned "
                      "times.",
                      plan_table(report));
  if (const std::string notes = notes_text(report); !notes.empty()) out += html_details("Start of the run", notes);
  out += html_details("Settings", report["config"].get<std::string>());
  return html_document(title, out);
}

}  // namespace tessera::cli
