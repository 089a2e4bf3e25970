#include "predict/importance.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "config/json.h"
#include "data/random.h"
#include "inference/model_data.h"
#include "tessera/sdk/nearest.h"

namespace tessera::cli {
namespace {

// Columns that are shuffled together: features and dense values of one field of the files.
struct Field {
  std::string name;
  std::vector<size_t> features, dense;
};

// Bags of one feature for all rows.
struct Bags {
  std::vector<int64_t> values, begins = {0};
  std::vector<int32_t> lengths;
  std::vector<float> weights;  // empty: all 1

  void add(const PredictInput::Feature& part) {
    values.insert(values.end(), part.values.begin(), part.values.end());
    weights.insert(weights.end(), part.weights.begin(), part.weights.end());
    for (const int32_t n : part.lengths) lengths.push_back(n), begins.push_back(begins.back() + n);
  }
  Bags in_order(const std::vector<uint32_t>& order) const {
    Bags out;
    for (const uint32_t row : order) {
      const auto first = static_cast<size_t>(begins[row]), count = static_cast<size_t>(lengths[row]);
      const std::span<const int32_t> length(&lengths[row], 1);
      out.add({std::span(values).subspan(first, count), length,
               weights.empty() ? std::span<const float>() : std::span(weights).subspan(first, count)});
    }
    return out;
  }
  PredictInput::Feature rows(size_t first, size_t count) const {
    const auto from = static_cast<size_t>(begins[first]), size = static_cast<size_t>(begins[first + count]) - from;
    return {std::span(values).subspan(from, size), std::span(lengths).subspan(first, count),
            weights.empty() ? std::span<const float>() : std::span(weights).subspan(from, size)};
  }
};

// All rows of the data, as the model takes them.
struct Rows {
  std::vector<Batch> batches;  // for labels and weights
  std::vector<Bags> features;
  std::vector<float> dense;  // [rows, width]
  size_t count = 0, width = 0;
};

Rows read_rows(const ModelDescription& model, const Dataset& data, const std::vector<Samples>& parts,
               const ImportanceOptions& options) {
  Rows out;
  out.width = static_cast<size_t>(model.dense_inputs);
  out.features.resize(model.features.size());
  BatchInput input(model, data.columns, model.dense_inputs);
  for (const Samples& part : parts) {
    BatchReader reader(part, {.batch = options.batch});
    for (Batch batch; static_cast<int64_t>(out.count) < options.rows && reader.next(batch); batch = Batch()) {
      const PredictInput& rows = input.from(batch);
      for (size_t f = 0; f < out.features.size(); ++f) out.features[f].add(rows.features[f]);
      out.dense.insert(out.dense.end(), rows.dense.begin(), rows.dense.end());
      out.count += static_cast<size_t>(rows.batch);
      out.batches.push_back(std::move(batch));
    }
  }
  return out;
}

// The field of the files behind each column of the model.
std::map<std::string, std::string> fields_of(const ModelDescription& model) {
  std::map<std::string, std::string> out;
  if (model.encoding.empty()) return out;
  const config::JsonSource source{"the model's encoding of columns", Code::kDataLoss};
  const nlohmann::ordered_json root = config::parse_json(model.encoding, source);
  for (const config::JsonObject& column : config::JsonObject(root, source).objects("columns")) {
    const auto name = column.get<std::string>("name");
    out[name] = column.get<std::string>("column", name);
  }
  return out;
}

std::vector<Field> shuffled_fields(const ModelDescription& model, const Dataset& data) {
  const std::map<std::string, std::string> fields = fields_of(model);
  std::vector<Field> out;
  const auto field = [&](const std::string& column) -> Field& {
    const auto known = fields.find(column);
    const std::string& name = known == fields.end() ? column : known->second;
    const auto at = std::find_if(out.begin(), out.end(), [&](const Field& f) { return f.name == name; });
    return at != out.end() ? *at : out.emplace_back(Field{name, {}, {}});
  };
  for (size_t f = 0; f < model.features.size(); ++f) {
    if (model.features[f].needed) field(model.features[f].name).features.push_back(f);
  }
  for (size_t d = 0; d < data.dense.size(); ++d) field(data.dense[d]).dense.push_back(d);
  return out;
}

class Importance {
 public:
  Importance(Predictor& predictor, const Rows& rows, const std::vector<AskedHead>& heads, const std::string& metric)
      : predictor_(predictor), rows_(rows), heads_(heads) {
    const MetricValues known = judged(rows_.features, rows_.dense);
    std::vector<std::string> names;
    for (const auto& [name, value] : known.values) names.push_back(name);
    if (names.empty()) fail(Code::kInvalidArgument, "importance needs rows with labels: it is what the answers lose");
    metric_ = metric.empty() ? names.front() : metric;
    if (std::find(names.begin(), names.end(), metric_) == names.end())
      fail(Code::kInvalidArgument, "--metric: ", sdk::unknown_name("metric", metric_, names), " of these rows");
    base_ = known[metric_];
    // All usual metrics but the AUC are errors, and the calibration has its best value inside.
    rises_ = !metric_.ends_with("auc");
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
  const Rows& rows_;
  const std::vector<AskedHead>& heads_;
  std::string metric_;
  double base_ = 0;
  bool rises_ = false;
};

struct Line {
  std::string column;
  double mean = 0, deviation = 0;
};

std::string fixed(double value) {
  std::ostringstream out;
  out << std::showpos << std::fixed << std::setprecision(4) << value;
  return out.str();
}

}  // namespace

void print_importance(Predictor& predictor, const Dataset& data, const std::vector<Samples>& parts,
                      const std::vector<AskedHead>& heads, const ImportanceOptions& options, std::ostream& out) {
  const Rows rows = read_rows(predictor.model(), data, parts, options);
  Importance importance(predictor, rows, heads, options.metric);
  std::vector<Line> lines;
  size_t widest = 6;
  for (const Field& field : shuffled_fields(predictor.model(), data)) {
    double sum = 0, squares = 0;
    for (int64_t k = 0; k < options.repeats; ++k) {
      const double loss = importance.loss(field, data::shuffled(rows.count, static_cast<uint64_t>(k) + 1));
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
  out << importance.metric() << ' ' << fixed(importance.base()).substr(1) << " of " << rows.count << " rows of "
      << data.name << "; " << (importance.rises() ? "rises" : "falls") << " by, if a column is shuffled:\n";
  for (const Line& l : lines)
    out << "  " << std::left << std::setw(static_cast<int>(widest)) << l.column << "  " << fixed(l.mean) << " +- "
        << fixed(l.deviation).substr(1) << '\n';
}

}  // namespace tessera::cli
