#include "train/report_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "formatted.h"
#include "tessera/error.h"
#include "wrapped.h"

namespace tessera::cli {
namespace {

std::string predicted_step_text(const PlanVersusActual& c) {
  return formatted("plan versus actual (figures: %s): a step %.1f us predicted, %.1f us measured\n", c.figures.c_str(),
                   c.step_us.predicted, c.step_us.measured);
}

// Prints a line for all ranks; `figure` takes one from a rank.
template <class Figure>
std::string rank_line(const PlanVersusActual& c, const std::string& name, const Figure& figure) {
  std::string out = formatted("%-20s", name.c_str());
  for (const PlanVersusActual::Rank& rank : c.ranks) {
    const PlannedFigure f = figure(rank);
    out += formatted(" %9.1f %9.1f", f.predicted, f.measured);
  }
  return out + "\n";
}

std::string in_columns(const PlannedFigure& f) {
  return formatted("%9.1f ", f.predicted) + (std::isnan(f.measured) ? "        -" : formatted("%9.1f", f.measured));
}

std::string plan_versus_actual_text(const PlanVersusActual& c) {
  using Rank = PlanVersusActual::Rank;
  std::string out;
  if (c.ranks.size() > 1) out += "Measured exchanges include waiting for the other ranks.\n";
  out += formatted("%-20s", "us per step");
  for (size_t r = 0; r < c.ranks.size(); ++r) out += formatted(" %19s", str_cat("rank ", r, ", plan/actual").c_str());
  out += "\n";
  for (size_t i = 0; i < c.ranks[0].stages_us.size(); ++i)
    out += rank_line(c, c.ranks[0].stages_us[i].first, [i](const Rank& rank) { return rank.stages_us[i].second; });
  const auto kb = [](const PlannedFigure& bytes) { return PlannedFigure{bytes.predicted / 1e3, bytes.measured / 1e3}; };
  out += rank_line(c, "all", [](const Rank& rank) { return rank.us; });
  out += rank_line(c, "KB in the host", [&](const Rank& rank) { return kb(rank.in_host); });
  out += rank_line(c, "KB across hosts", [&](const Rank& rank) { return kb(rank.across_hosts); });
  out += formatted("\n%-20s %4s %-18s %9s %9s %9s %9s\n", "table, us per step", "rank", "sharding", "lookup", "actual",
                   "update", "actual");
  for (const PlanVersusActual::Table& t : c.tables) {
    out += formatted("%-20s %4d %-18s ", t.table.substr(0, 60).c_str(), t.rank, t.sharding_type.substr(0, 60).c_str());
    out += in_columns(t.lookup_us) + " " + in_columns(t.update_us) + "\n";
  }
  for (const PlanVersusActual::Table& t : c.tables) {
    if (!t.disk_reads) continue;
    out += formatted("table %s on rank %d: %.1f rows read from disk in a step predicted, %.1f measured\n",
                     t.table.c_str(), t.rank, t.disk_reads->predicted, t.disk_reads->measured);
  }
  return out;
}

void print_traffic(const std::vector<ExchangeFigures>& traffic) {
  std::printf("\n%-20s %14s %14s %14s %14s\n", "bytes per step", "in hosts", "planned", "across hosts", "planned");
  for (const ExchangeFigures& e : traffic)
    std::printf("%-20s %14.0f %14.0f %14.0f %14.0f\n", e.exchange.c_str(), e.in_host.measured, e.in_host.predicted,
                e.across_hosts.measured, e.across_hosts.predicted);
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
    std::string out = formatted("\n  %-*s", first, "head");
    for (const std::string& metric : metrics_) out += formatted("  %*s", width(metric), metric.c_str());
    for (const std::string& head : heads_) {
      out += formatted("\n  %-*s", first, head.c_str());
      for (const std::string& metric : metrics_) {
        const auto value = values_.find({head, metric});
        out += value == values_.end() ? formatted("  %*s", width(metric), "")
                                      : formatted("  %*.*f", width(metric), digits, value->second);
      }
    }
    return out;
  }

 private:
  static int width(const std::string& metric) { return std::max(8, static_cast<int>(metric.size())); }

  std::vector<std::string> heads_, metrics_;  // in the order of first appearance
  std::map<std::pair<std::string, std::string>, double> values_;
};

void print_table(const TableCounts& table, double steps) {
  const auto hits = static_cast<double>(table.hits), lookups = static_cast<double>(table.lookups);
  if (table.disk) {
    const auto read = static_cast<double>(table.disk->read_us), waited = static_cast<double>(table.disk->wait_us);
    std::printf(
        "table %s: %.1f %% of its lookups found their row in memory; a step read %.1f rows from disk and wrote %.1f, "
        "and %.0f %% of the reads' time was ahead of the lookups\n",
        table.name.c_str(), 100 * hits / std::max(1.0, lookups), static_cast<double>(table.disk->storage_reads) / steps,
        static_cast<double>(table.disk->storage_writes) / steps,
        read > 0 ? 100 * std::max(0.0, 1 - waited / read) : 100.0);
    return;
  }
  if (hits < lookups)  // otherwise every lookup found its row
    std::printf("table %s: %lld rows in use, %lld evicted, %.1f %% of its lookups found one\n", table.name.c_str(),
                static_cast<long long>(table.rows_in_use), static_cast<long long>(table.evictions),
                100 * hits / lookups);
}

constexpr double kSure = 1.96;  // standard errors on either side that hold 95 % of the cases

// The value of the metric "auc", or "click.auc" of the head "click"; NaN if it was not computed.
double value_of(const MetricValues& m, const std::string& name) {
  for (const auto& [known, value] : m.values) {
    if (known == name) return value;
  }
  return std::nan("");
}

// The share of the rarer one of two labels, which have this entropy.
double rarer_share(double entropy) {
  constexpr int kHalvings = 50;
  double low = 0, high = 0.5;
  for (int i = 0; i < kHalvings; ++i) {
    const double p = (low + high) / 2;
    (-p * std::log(p) - (1 - p) * std::log1p(-p) < entropy ? low : high) = p;
  }
  return high;
}

// The standard error of an AUC (Hanley and McNeil, 1982). An AUC of 1 counts as one with half an error, because its
// formula gives 0.
double auc_error(double auc, double positives, double negatives) {
  const double most = 1 - 0.5 / std::min(positives, negatives);
  const double a = std::clamp(auc, 1 - most, most);
  const double above = a / (2 - a) - a * a, below = 2 * a * a / (1 + a) - a * a;
  const double variance = a * (1 - a) + (positives - 1) * above + (negatives - 1) * below;
  return std::sqrt(variance / (positives * negatives));
}

// Half of the interval of a head's AUC; 0 if it is not known.
double auc_interval(const MetricValues& m, const std::string& head) {
  const double auc = value_of(m, head + "auc");
  const double entropy = value_of(m, head + "logloss") / value_of(m, head + "normalized_entropy");
  const auto samples = static_cast<double>(m.samples);
  const double rarer = rarer_share(entropy) * samples;
  if (std::isnan(auc) || !(entropy > 0) || rarer < 1) return 0;
  return kSure * std::max(auc_error(auc, rarer, samples - rarer), auc_error(auc, samples - rarer, rarer));
}

}  // namespace

std::string chance_text(const MetricValues& m) {
  constexpr double kWideAuc = 0.02, kWideRmse = 0.05;  // the latter as a share of the RMSE
  constexpr double kAnyAuc = 0.25;                     // a useless model's and a good one's are not further apart
  double auc = 0, rmse = 0;
  for (const auto& [name, value] : m.values) {
    const std::string head = name.substr(0, name.rfind('.') + 1);
    if (name == head + "auc") auc = std::max(auc, auc_interval(m, head));
    if (name == head + "rmse") rmse = kSure / std::sqrt(2.0 * static_cast<double>(m.samples));  // of normal errors
  }
  if (m.samples == 0 || (auc < kWideAuc && rmse < kWideRmse)) return {};
  const bool of_auc = auc >= kWideAuc;
  if (auc >= kAnyAuc) return str_cat("These ", m.samples, " rows are too few to tell an AUC from chance.\n");
  return str_cat("By chance alone, the ", of_auc ? "AUC" : "RMSE", " of ", m.samples, " rows may be ",
                 of_auc ? formatted("%.2f", auc) : formatted("%.0f %%", 100 * rmse), " higher or lower.\n");
}

std::string doubts_text(const MetricValues& m) {
  constexpr double kTooGood = 0.9995;
  std::string out;
  for (const auto& [name, value] : m.values) {
    const std::string head = name.substr(0, name.rfind('.') + 1);
    const std::string of = head.empty() ? "" : str_cat(" of ", head.substr(0, head.size() - 1));
    if (name == head + "auc" && value >= kTooGood)
      out += wrapped(str_cat("So high an AUC", of, " often means that a column tells the label: leave out what is ",
                             "known only after it."));
    if (name == head + "multiclass_normalized_entropy" && value > 1)
      out += wrapped(str_cat("A normalized entropy", of,
                             " above 1 means that the shares of the classes predict better "
                             "than the model."));
    if (name == head + "normalized_entropy" && value > 1)
      out += wrapped(str_cat("A NE", of, " above 1 means that the mean of the labels predicts better than the model."));
  }
  return out;
}

std::string unknown_ids_text(const std::string& rows, const UnknownIds& ids) {
  return str_cat("tessera: warning: ", rows, ": ", ids.warning(),
                 ", which has the ids of the training rows: all other ids count as one. Are these other data, or "
                 "are they written in another way?");
}

void print_tables(const RunReport& report) {
  if (report.device != "cpu")
    std::printf("stages are the host's times: what they enqueue on %s is not waited for\n", report.device.c_str());
  std::printf("%-20s %14s %18s\n", "stage", "us per step", "largest rank's us");
  for (const StageTime& s : report.stages) std::printf("%-20s %14.1f %18.1f\n", s.name.c_str(), s.us, s.largest_us);
  if (report.pipeline)
    std::printf(
        "\nread, route and exchange of ids took %.1f us per step, of which %.1f us ran during the step before\n",
        report.pipeline->work_us, report.pipeline->hidden_us);
  if (!report.traffic.empty()) print_traffic(report.traffic);
  if (report.ids)
    std::printf("ids of other ranks' rows per step: %.0f, sent once each: %.0f (planned %.0f)\n", report.ids->wanted,
                report.ids->sent.measured, report.ids->sent.predicted);
  std::printf("\n%s\n", plan_versus_actual_text(report.plan_versus_actual).c_str());
}

void print_training(const RunReport& report, bool verbose) {
  std::printf("%s on %s: %lld steps, %.1f s, %.0f samples/s, train loss %.4f\n", report.model.c_str(),
              report.data_name.c_str(), static_cast<long long>(report.steps), report.seconds, report.samples_per_s,
              report.loss);
  if (verbose) {
    std::printf("first step done after %.2f s\n", report.seconds_to_first_step);
    std::printf("%s", predicted_step_text(report.plan_versus_actual).c_str());
  }
  if (report.dropped_ids > 0)
    std::printf("%lld ids out of range were dropped\n", static_cast<long long>(report.dropped_ids));
  const double steps = std::max(1.0, static_cast<double>(report.steps));  // of this run
  for (const TableCounts& table : report.tables) print_table(table, steps);
}

std::string metrics_text(const MetricValues& m, int digits, const std::string& note) {
  const std::string samples = formatted("(%lld samples)", static_cast<long long>(m.samples)) + note;
  const HeadTable table(m);
  if (table.heads() > kHeadsOfALine) return formatted("%zu heads ", table.heads()) + samples + table.text(digits);
  std::string out;
  for (const auto& [name, value] : m.values)
    out += formatted("%s %.*f  ",
                     name == "auc"                  ? "AUC"
                     : name == "normalized_entropy" ? "NE"
                                                    : name.c_str(),
                     digits, value);
  return out + samples;
}

std::string monitor_text(const std::string& monitor, const MetricValues& metrics) {
  return formatted("%s %.4f", monitor.c_str(), metrics[monitor]);
}

std::string validation_text(const TrainValidation& v) {
  return formatted("validation at step %lld: ", static_cast<long long>(v.step)) + metrics_text(v.metrics, 4) +
         (v.best ? "  best so far" : "");
}

}  // namespace tessera::cli
