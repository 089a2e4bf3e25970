#include "train/page.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/report/charts.h"
#include "bench/report/html.h"
#include "bench/report/svg.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

using json = nlohmann::ordered_json;

std::string loss_curve(const RunReport& report) {
  Curve loss{"loss", {}};
  for (const double value : report.losses)
    loss.points.emplace_back(static_cast<double>(report.first_step + std::ssize(loss.points) + 1), value);
  return curve_chart("Training loss", "step", {loss});
}

std::string validation_curves(const RunReport& report) {
  std::vector<Curve> curves;  // in the order of the metrics
  for (const TrainValidation& v : report.validations) {
    for (size_t at = 0; at < v.metrics.values.size(); ++at) {
      const auto& [name, value] = v.metrics.values[at];
      if (at == curves.size()) curves.push_back({name, {}});
      curves[at].points.emplace_back(static_cast<double>(v.step), value);
    }
  }
  std::string out;
  for (const Curve& curve : curves) out += curve_chart("Validation: " + curve.name, "step", {curve});
  return out;
}

// The results of the test and of the best validation.
std::string metrics_table(const RunReport& report) {
  std::vector<Line> rows;
  const auto add = [&](const std::string& of, const MetricValues& metrics) {
    Line row = {{"of", of}, {"samples", metrics.samples}};
    for (const auto& [name, value] : metrics.values) row[name] = std::isfinite(value) ? json(value) : json();
    rows.push_back(std::move(row));
  };
  if (report.test.metrics.samples > 0) add("test", report.test.metrics);
  const auto best = std::find_if(report.validations.rbegin(), report.validations.rend(),
                                 [](const TrainValidation& v) { return v.best; });
  if (best != report.validations.rend()) add(str_cat("best validation, at step ", best->step), best->metrics);
  return rows.empty() ? "" : html_table(rows);
}

std::string stage_bars_of(const RunReport& report) {
  std::vector<Bar> bars;
  double all = 0;
  for (const StageTime& s : report.stages) {
    bars.push_back({s.name, time_text(s.us),
                    str_cat(s.name, ": ", time_text(s.us), ", the slowest rank ", time_text(s.largest_us)), s.us, s.us,
                    s.largest_us});
    all += s.largest_us;
  }
  return all > 0 ? bar_chart("Time of a step by stage, on rank 0; whiskers reach to the slowest rank", bars, time_text)
                 : "";
}

std::string plan_table(const RunReport& report) {
  std::vector<Line> rows;
  for (const auto& [path, module] : report.plan.modules) {
    for (const auto& [name, table] : module.tables()) {
      std::map<int64_t, int64_t> shards;  // per rank
      for (const ShardMetadata& shard : table.shards) ++shards[shard.rank];
      std::string ranks;
      for (const auto& [rank, n] : shards)
        ranks += str_cat(ranks.empty() ? "" : ", ", rank, n > 1 ? str_cat(" (", n, ")") : "");
      rows.push_back({{"table", name},
                      {"sharding_type", table.sharding_type},
                      {"compute_kernel", table.compute_kernel},
                      {"ranks", ranks}});
    }
  }
  const auto or_null = [](double us) { return std::isnan(us) ? json() : json(us); };
  std::vector<Line> times;
  for (const PlanVersusActual::Table& t : report.plan_versus_actual.tables) {
    times.push_back({{"table", t.table},
                     {"rank", t.rank},
                     {"lookup_us_planned", t.lookup_us.predicted},
                     {"lookup_us", or_null(t.lookup_us.measured)},
                     {"update_us_planned", t.update_us.predicted},
                     {"update_us", or_null(t.update_us.measured)}});
  }
  return (rows.empty() ? "" : html_table(rows)) + (times.empty() ? "" : html_table(times));
}

std::string run_in_short(const RunReport& report) {
  const std::string ranks =
      report.world_size == 1 ? "1 rank" : str_cat(report.world_size, " ranks over ", report.backend);
  return str_cat(ranks, " on ", report.device, ": ", report.steps, " steps in ",
                 number_text(std::round(10 * report.seconds) / 10), " s, ",
                 number_text(std::round(report.samples_per_s)), " samples/s; ", report.train_rows,
                 " rows to train on, ", report.test_rows, " to test on.");
}

}  // namespace

std::string train_page(const RunReport& report) {
  std::string out = "<p>" + escaped(run_in_short(report)) + "</p>\n";
  out += html_section("Metrics", "", metrics_table(report));
  out += html_section("Curves", "", loss_curve(report) + validation_curves(report));
  out += html_section("Stages", "", stage_bars_of(report));
  out += html_section("Plan",
                      "Shards of the tables, and measured times of the sampled tables next to the planned "
                      "times.",
                      plan_table(report));
  std::string notes;
  for (const std::string& note : report.start) notes += note + "\n";
  if (!notes.empty()) out += html_details("Start of the run", notes);
  out += html_details("Settings", report.config);
  return html_document(str_cat("tessera train: ", report.model, " on ", report.data_name), out);
}

}  // namespace tessera::cli
