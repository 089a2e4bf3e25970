#include "tessera/metrics.h"

#include <algorithm>

#include "tessera/runtime.h"
#include "tessera/sdk/nearest.h"

namespace tessera {
namespace {

// Splits a name into {head, metric}. Without a head it is only a metric's name, which may have a dot of its own.
std::pair<std::string, std::string> apart(const std::vector<Prediction>& heads, const std::string& name) {
  const size_t dot = name.find('.');
  if (dot != std::string::npos) {
    const std::string head = name.substr(0, dot);
    if (std::any_of(heads.begin(), heads.end(), [&](const Prediction& p) { return p.head == head; }))
      return {head, name.substr(dot + 1)};
  }
  return {"", name};
}

// Fails if the name is a known metric after the name of an unknown head.
void require_head(const std::vector<Prediction>& heads, const std::string& name) {
  const size_t dot = name.substr(0, name.find('?')).find('.');
  if (dot == std::string::npos) return;
  const std::string head = name.substr(0, dot), metric = parse_component_name(name.substr(dot + 1)).id;
  const std::vector<std::string> known = metric_names();
  if (std::find(known.begin(), known.end(), metric) == known.end()) return;
  std::vector<std::string> names;
  for (const Prediction& p : heads) names.push_back(p.head);
  fail(Code::kInvalidArgument, "there is no metric \"", name,
       "\": no head of the model that metrics judge is called \"", head, '"', sdk::nearest_text(head, names));
}

std::vector<std::string> usual_of(const std::vector<Prediction>& heads) {
  std::vector<std::string> out;
  for (const Prediction& p : heads) {
    if (!p.usual) continue;
    const std::vector<std::string> values = {"rmse", "mae"};
    for (const std::string& name : p.classes > 0 ? kUsualClassMetrics : p.logits ? kUsualMetrics : values)
      out.push_back(heads.size() > 1 ? str_cat(p.head, ".", name) : name);
  }
  return out;
}

// Fails because a metric fits no head.
[[noreturn]] void refuse(const std::vector<Prediction>& heads, const std::string& name, const Metric::Info& info) {
  if (info.least_classes > 0)
    fail(Code::kInvalidArgument, "the metric \"", name,
         "\" needs a head of classes, but no head has a loss of classes, such as softmax_cross_entropy");
  const auto other =
      std::find_if(heads.begin(), heads.end(), [](const Prediction& p) { return !(p.classes && *p.classes > 0); });
  if (other == heads.end())
    fail(Code::kInvalidArgument, "the metric \"", name,
         "\" judges one value for each sample, but the model predicts classes: take one of classes, such as ",
         kUsualClassMetrics[0]);
  fail(Code::kInvalidArgument, "the metric \"", name,
       "\" needs labels from 0 to 1, but no head has a loss of logits; \"", other->head, ".", name,
       "\" asks for it for the head \"", other->head, "\" anyway");
}

bool fits(const Prediction& head, const Metric::Info& info) {
  if (!head.classes) return true;
  if (*head.classes > 0 || info.least_classes > 0) return *head.classes > 0 && info.least_classes > 0;
  return head.logits || info.any_labels;
}

// The metric's own description; errors are those of MetricSet.
Metric::Info info_of(const std::string& metric, const Runtime* runtime) {
  return MetricSet({metric}, {.runtime = runtime, .classes = std::nullopt}).info(metric);
}

}  // namespace

std::vector<HeadMetric> head_metrics(const std::vector<Prediction>& heads, const std::vector<std::string>& names,
                                     const Runtime* runtime) {
  std::vector<HeadMetric> out;
  for (const std::string& name : names) {
    const auto [head, metric] = apart(heads, name);
    if (head.empty() && !heads.empty()) require_head(heads, name);
    const Metric::Info info = head.empty() ? info_of(metric, runtime) : Metric::Info();
    const size_t before = out.size();
    for (size_t h = 0; h < heads.size(); ++h) {
      if (head.empty() ? fits(heads[h], info) : heads[h].head == head)
        out.push_back({h, metric, heads.size() > 1 ? str_cat(heads[h].head, ".", metric) : name});
    }
    if (out.size() == before && !heads.empty()) refuse(heads, name, info);
  }
  return out;
}

HeadMetrics::HeadMetrics(std::vector<Prediction> heads, std::vector<std::string> names, const Runtime* runtime) {
  if (names.empty()) names = usual_of(heads);
  const std::vector<HeadMetric> all = head_metrics(heads, names, runtime);
  for (size_t h = 0; h < heads.size(); ++h) {
    std::vector<std::string> own, shown;
    for (const HeadMetric& m : all) {
      if (m.head == h) own.push_back(m.name), shown.push_back(m.shown);
    }
    const MetricSetOptions options{runtime, heads[h].logits, heads[h].classes};
    try {
      MetricSet set(own, options);
      heads_.push_back({std::move(heads[h]), std::move(shown), std::move(set)});
    } catch (const Error& e) {
      if (heads.size() == 1) throw;
      throw Error(e.code(), str_cat("the head \"", heads[h].head, "\": ", e.what()));
    }
  }
}

std::vector<std::string> HeadMetrics::keys() const {
  std::vector<std::string> out;
  for (const Head& head : heads_) {
    for (const std::string& key : head.set.keys()) {
      if (std::find(out.begin(), out.end(), key) == out.end()) out.push_back(key);
    }
  }
  return out;
}

Tensor counted_weights(const Batch& batch, const std::optional<size_t>& where, Tensor& memory) {
  if (!where) return batch.sample_weights;
  const Tensor labels = batch.label(*where);
  const int64_t samples = labels.numel();
  if (!memory.defined() || memory.numel() < samples) memory = Tensor::empty({samples});
  const Tensor out = memory.first({samples});
  for (int64_t i = 0; i < samples; ++i) {
    const float weight = batch.sample_weights.defined() ? batch.sample_weights.data<float>()[i] : 1.0f;
    out.data<float>()[i] = labels.data<float>()[i] >= 0.5f ? weight : 0.0f;
  }
  return out;
}

std::string HeadMetrics::shown(const std::string& monitor) const {
  std::vector<std::string> known;
  for (const Head& head : heads_) {
    for (size_t m = 0; m < head.shown.size(); ++m) {
      const std::string& metric = head.set.names()[m];
      if (monitor.empty() || monitor == head.shown[m] || monitor == metric ||
          monitor == str_cat(head.prediction.head, ".", metric))
        return head.shown[m];
      known.push_back(head.shown[m]);
    }
  }
  const bool asks = std::any_of(heads_.begin(), heads_.end(), [](const Head& h) { return !h.prediction.usual; });
  if (known.empty())
    fail(Code::kInvalidArgument, "no head of the model has a metric",
         asks ? ": a head whose value is a loss or a rank has none by default, so ask in metrics.names for those that "
                "fit, such as \"ndcg@10\" of ranks"
              : "");
  fail(Code::kInvalidArgument, "there is no metric \"", monitor, "\" here", sdk::nearest_text(monitor, known));
}

double HeadMetrics::cost(const std::string& shown, double value) const {
  for (const Head& head : heads_) {
    const auto at = std::find(head.shown.begin(), head.shown.end(), shown);
    if (at == head.shown.end()) continue;
    return head.set.cost(head.set.names()[static_cast<size_t>(at - head.shown.begin())], value);
  }
  fail(Code::kInvalidArgument, "there is no metric \"", shown, "\" here");
}

void HeadMetrics::add(const std::vector<Tensor>& scores, const Batch& batch) {
  if (scores.size() != heads_.size())
    fail(Code::kInvalidArgument, "there are scores of ", scores.size(), " heads, but ", heads_.size(), " are judged");
  for (size_t h = 0; h < heads_.size(); ++h) {
    Head& head = heads_[h];
    try {
      Tensor memory;
      head.set.add(scores[h], batch.label(head.prediction.label), &batch.sparse,
                   counted_weights(batch, head.prediction.where, memory));
    } catch (const Error& e) {
      if (heads_.size() == 1) throw;
      throw Error(e.code(), str_cat("the head \"", head.prediction.head, "\": ", e.what()));
    }
  }
}

template <class Values>
MetricValues HeadMetrics::gather(const Values& values_of) const {
  MetricValues out;
  for (const Head& head : heads_) {
    const MetricValues one = values_of(head.set);
    out.samples = one.samples;
    for (size_t m = 0; m < one.values.size(); ++m) out.values.emplace_back(head.shown[m], one.values[m].second);
  }
  return out;
}

MetricValues HeadMetrics::values() const {
  return gather([](const MetricSet& set) { return set.values(); });
}

MetricValues HeadMetrics::values(const ProcessGroup& group) const {
  return gather([&](const MetricSet& set) { return set.values(group); });
}

}  // namespace tessera
