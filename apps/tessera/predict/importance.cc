#include "predict/importance.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>

#include "formatted.h"
#include "predict/field_rows.h"
#include "tessera/sdk/nearest.h"
#include "tessera/sdk/random.h"

namespace tessera::cli {
namespace {

class Importance {
 public:
  Importance(Predictor& predictor, const FieldRows& rows, const std::vector<AskedHead>& heads,
             const std::string& metric)
      : predictor_(predictor), rows_(rows), heads_(heads) {
    const MetricValues known = judged(rows_.features, rows_.dense);
    std::vector<std::string> names;
    for (const auto& [name, value] : known.values) names.push_back(name);
    if (names.empty()) fail(Code::kInvalidArgument, "importance needs rows with labels: it is what the answers lose");
    metric_ = metric.empty() ? names.front() : metric;
    if (std::find(names.begin(), names.end(), metric_) == names.end())
      fail(Code::kInvalidArgument, "--metric: ", sdk::unknown_name("metric", metric_, names), " of these rows");
    base_ = known[metric_];
    // All usual metrics but the AUC and the accuracy are errors, and the calibration has its best value inside.
    rises_ = !metric_.ends_with("auc") && !metric_.ends_with("accuracy");
    if (metric_.ends_with("calibration"))
      fail(Code::kInvalidArgument, "--metric calibration: a shuffle may make it larger or smaller; take logloss");
  }

  const std::string& metric() const { return metric_; }
  double base() const { return base_; }
  bool rises() const { return rises_; }

  // Returns what the metric loses if the field's values come in this order.
  double loss(const Field& field, const std::vector<uint32_t>& order) {
    std::vector<Bags> features = rows_.features;
    for (const size_t f : field.features) features[f] = rows_.features[f].in_order(order);
    std::vector<float> dense = rows_.dense;
    for (const size_t d : field.dense) {
      for (size_t r = 0; r < rows_.count; ++r) dense[r * rows_.width + d] = rows_.dense[order[r] * rows_.width + d];
    }
    const double now = judged(features, dense)[metric_];
    return rises_ ? now - base_ : base_ - now;
  }

 private:
  MetricValues judged(const std::vector<Bags>& features, const std::vector<float>& dense) {
    HeadJudge judge(predictor_.model(), heads_, false);
    const std::vector<size_t> widths = widths_of(predictor_.model(), heads_);
    std::vector<std::vector<float>> values(widths.size());
    std::vector<std::span<float>> outputs(widths.size());
    std::vector<PredictInput::Feature> parts(features.size());
    size_t first = 0;
    for (const Batch& batch : rows_.batches) {
      const auto count = static_cast<size_t>(batch.labels.numel());
      for (size_t f = 0; f < features.size(); ++f) parts[f] = features[f].rows(first, count);
      for (size_t o = 0; o < widths.size(); ++o) {
        values[o].resize(count * widths[o]);
        outputs[o] = values[o];
      }
      const std::span<const float> numbers = std::span(dense).subspan(first * rows_.width, count * rows_.width);
      predictor_.predict_outputs({static_cast<int64_t>(count), numbers, parts}, outputs);
      judge.add(values, batch);
      first += count;
    }
    return judge.values();
  }

  Predictor& predictor_;
  const FieldRows& rows_;
  const std::vector<AskedHead>& heads_;
  std::string metric_;
  double base_ = 0;
  bool rises_ = false;
};

struct Line {
  std::string column;
  double mean = 0, deviation = 0;
};

}  // namespace

void print_importance(Predictor& predictor, const Dataset& data, const std::vector<Samples>& parts,
                      const std::vector<AskedHead>& heads, const ImportanceOptions& options, std::ostream& out) {
  const FieldRows rows = read_rows(predictor.model(), data, parts, options.batch, options.rows);
  Importance importance(predictor, rows, heads, options.metric);
  std::vector<Line> lines;
  size_t widest = 6;
  for (const Field& field : fields_of(predictor.model(), data)) {
    double sum = 0, squares = 0;
    for (int64_t k = 0; k < options.repeats; ++k) {
      const double loss = importance.loss(field, sdk::shuffled(rows.count, static_cast<uint64_t>(k) + 1));
      sum += loss, squares += loss * loss;
    }
    const auto n = static_cast<double>(options.repeats);
    lines.push_back({field.name, sum / n, std::sqrt(std::max(0.0, squares / n - sum * sum / n / n))});
    widest = std::max(widest, field.name.size());
  }
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.mean > b.mean; });
  if (options.as_json) {
    for (const Line& l : lines)
      out << nlohmann::ordered_json{{"column", l.column},
                                    {"metric", importance.metric()},
                                    {"importance", l.mean},
                                    {"deviation", l.deviation}}
                 .dump()
          << '\n';
    return;
  }
  out << importance.metric() << ' ' << formatted("%.4f", importance.base()) << " of " << rows.count << " rows of "
      << data.name << "; " << (importance.rises() ? "rises" : "falls") << " by, if a column is shuffled:\n";
  for (const Line& l : lines)
    out << "  " << std::left << std::setw(static_cast<int>(widest)) << l.column << "  "
        << formatted("%+.4f +- %.4f", l.mean, l.deviation) << '\n';
}

}  // namespace tessera::cli
