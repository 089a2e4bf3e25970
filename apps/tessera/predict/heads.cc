#include "predict/heads.h"

#include <algorithm>
#include <cmath>

#include "tessera/layer_graph.h"
#include "tessera/sdk/nearest.h"

namespace tessera::cli {
namespace {

size_t output_of(const ModelDescription& model, const std::string& name) {
  std::vector<std::string> known;
  for (const ModelOutput& output : model.outputs) known.push_back(output.name);
  const auto at = std::find(known.begin(), known.end(), name);
  if (at == known.end())
    fail(Code::kInvalidArgument, "--head: the model has no head \"", name, '"', sdk::nearest_text(name, known));
  return static_cast<size_t>(at - known.begin());
}

// `alone`: only this head is asked. It then uses the only label of the data, whatever its name, unless that is the
// label of another head.
std::optional<size_t> label_of(const ModelDescription& model, const ModelOutput& output,
                               const std::vector<std::string>& labels, bool alone) {
  const auto at = std::find(labels.begin(), labels.end(), output.label);
  if (at != labels.end()) return static_cast<size_t>(at - labels.begin());
  const auto is_of = [&](const ModelOutput& o) { return o.label == labels[0]; };
  const bool free = labels.size() == 1 && std::none_of(model.outputs.begin(), model.outputs.end(), is_of);
  if (free && (alone || output.label == HeadSpec().label)) return 0;
  if (alone)
    fail(Code::kInvalidArgument, "the model predicts the label \"", output.label,
         "\", but the data has none of that name");
  return std::nullopt;
}

MetricSet metrics_of(const ModelOutput& output, bool streamed) {
  const bool probability = output.probability;
  if (output.classes) return MetricSet(kUsualClassMetrics, {.logits = false, .classes = output.width});
  if (!probability) return MetricSet({"rmse", "mae"}, {.logits = false});
  if (!streamed) return MetricSet();
  return MetricSet({"auc?bins=1048576", "logloss", "normalized_entropy", "calibration"});
}

// The values in the form that metrics take.
Tensor scores_of(const std::vector<float>& values, bool probability) {
  Tensor out = Tensor::empty({std::ssize(values)});
  for (size_t i = 0; i < values.size(); ++i) {
    const double p = values[i];
    out.data<float>()[i] = probability ? static_cast<float>(std::log(p / (1 - p))) : values[i];
  }
  return out;
}

}  // namespace

std::vector<size_t> asked_outputs(const ModelDescription& model, const std::vector<std::string>& names) {
  std::vector<size_t> out;
  for (size_t o = 0; names.empty() && o < model.outputs.size(); ++o) out.push_back(o);
  for (const std::string& name : names) {
    const size_t output = output_of(model, name);
    if (std::find(out.begin(), out.end(), output) == out.end()) out.push_back(output);
  }
  return out;
}

std::vector<AskedHead> asked_heads(const ModelDescription& model, const std::vector<size_t>& outputs,
                                   const Dataset& data) {
  const bool alone = outputs.size() == 1;
  std::vector<AskedHead> out;
  for (const size_t o : outputs) {
    const ModelOutput& output = model.outputs[o];
    out.push_back({o, alone ? "score" : output.name, static_cast<size_t>(output.width),
                   data.labelled ? label_of(model, output, data.labels, alone) : std::nullopt});
    if (output.where.empty() || !out.back().label) continue;
    const auto where = std::find(data.labels.begin(), data.labels.end(), output.where);
    if (where == data.labels.end())
      out.back().label.reset();  // nothing says which samples count
    else
      out.back().where = static_cast<size_t>(where - data.labels.begin());
  }
  return out;
}

std::vector<size_t> widths_of(const ModelDescription& model, const std::vector<AskedHead>& heads) {
  std::vector<size_t> out(model.outputs.size(), 0);
  for (const AskedHead& head : heads) out[head.output] = head.width;
  return out;
}

std::string no_auc_note(const MetricValues& metrics, const Dataset& data, const ModelDescription& model) {
  const bool none = std::any_of(metrics.values.begin(), metrics.values.end(), [](const auto& metric) {
    return metric.first.ends_with("auc") && std::isnan(metric.second);
  });
  if (!none) return {};
  std::string out = str_cat(data.name, ": AUC is not defined, because all labels are the same");
  if (model.encoding.empty()) return out;
  const ColumnEncoding encoding(model.encoding);
  for (const std::string& label : data.labels) {
    const ColumnConfig* const column = encoding.column(label);
    if (column != nullptr && !column->positive.empty())
      out += str_cat("; in \"", label, "\" the word \"", column->positive, "\" counts as 1, and every other as 0");
    if (column != nullptr && column->threshold)
      out += str_cat("; in \"", label, "\" a number counts as 1 from ", *column->threshold, " on, and below as 0");
  }
  return out;
}

HeadJudge::HeadJudge(const ModelDescription& model, const std::vector<AskedHead>& heads, bool streamed) {
  for (const AskedHead& head : heads) {
    const ModelOutput& output = model.outputs[head.output];
    if (!head.label || (head.width != 1 && !output.classes)) continue;
    const std::string before = heads.size() > 1 ? head.name + "." : "";
    judged_.push_back({head, output.probability, before, metrics_of(output, streamed)});
  }
}

void HeadJudge::add(const std::vector<std::vector<float>>& values, const Batch& batch) {
  for (Judged& judged : judged_) {
    const Tensor scores = scores_of(values[judged.head.output], judged.probability);
    try {
      Tensor memory;
      judged.set.add(scores, batch.label(*judged.head.label), nullptr,
                     counted_weights(batch, judged.head.where, memory));
    } catch (const Error& e) {
      if (judged.before.empty()) throw;
      throw Error(e.code(), str_cat("the head \"", judged.head.name, "\": ", e.what()));
    }
  }
}

MetricValues HeadJudge::values() const {
  MetricValues out;
  for (const Judged& judged : judged_) {
    const MetricValues one = judged.set.values();
    out.samples = one.samples;
    for (const auto& [name, value] : one.values) out.values.emplace_back(judged.before + name, value);
  }
  return out;
}

}  // namespace tessera::cli
