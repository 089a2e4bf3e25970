// TorchRec's metrics in one process: a stream of batches, and the values after each.
#include "conformance/extras.h"
#include "metrics/rec_metrics.h"

namespace tessera::cli {
namespace {

// TorchRec's class, and the name under which its values appear.
constexpr std::pair<const char*, const char*> kMetrics[] = {
    {"NEMetric", "ne"},   {"CalibrationMetric", "calibration"},  {"CTRMetric", "ctr"},           {"MSEMetric", "mse"},
    {"MAEMetric", "mae"}, {"WeightedAvgMetric", "weighted_avg"}, {"AccuracyMetric", "accuracy"}, {"AUCMetric", "auc"}};

std::string name_of(const std::string& metric) {
  for (const auto& [known, name] : kMetrics) {
    if (metric == known) return name;
  }
  fail(Code::kUnimplemented, "the runner does not know the metric ", metric);
}

std::vector<double> doubles(const json& batch, const char* field) {
  return tensor_from(batch.at(field)).to_vector<double>();
}

void metric_op(CaseContext& c) {
  const std::string prefix = name_of(c.given.at("metric").get<std::string>());
  const int64_t ranks = c.given.at("world_size").get<int64_t>();
  const int64_t window = (c.given.at("window_size").get<int64_t>() + ranks - 1) / ranks;
  std::vector<RecMetric> metrics{RecMetric(prefix, window)};
  if (prefix == "mse") metrics.emplace_back("rmse", window);  // TorchRec's class gives both
  if (c.given.at("options").value("include_logloss", false)) metrics.emplace_back("logloss", window);
  const json& stream = c.given.at("stream");
  for (size_t i = 0; i < stream.size(); ++i) {
    json got = json::object();
    for (RecMetric& m : metrics) {
      m.update(doubles(stream[i], "predictions"), doubles(stream[i], "labels"), doubles(stream[i], "weights"));
      for (const auto& [name, value] : m.compute()) got[str_cat(prefix, "-DefaultTask|local_", name)] = value;
    }
    const json& want = c.expect.at("after_each_batch").at(i);
    c.check.equal(str_cat("values after batch ", i), want.size(), got.size());
    for (const auto& [name, value] : want.items()) {
      if (!got.contains(name)) return c.check.fail(name, "there is no such value");
      c.check.number(str_cat(name, " after batch ", i), tensor_from(value).item(), got[name].get<double>());
    }
  }
}

}  // namespace

void add_extra_metrics(OpTable& ops) { ops["extras"] = metric_op; }

}  // namespace tessera::cli
