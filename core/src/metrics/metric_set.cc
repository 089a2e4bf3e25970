#include <algorithm>
#include <cmath>
#include <numeric>

#include "config/json.h"
#include "metrics/formulas.h"
#include "tessera/metrics.h"
#include "tessera/runtime.h"
#include "tessera/sdk/nearest.h"

namespace tessera {
namespace {

using json = nlohmann::ordered_json;
using Pieces = Metric::Pieces;

// The samples of `scores` and `labels`, or those in `order`, converted to double.
class Wide {
 public:
  // `weights`: empty: all 1.
  Wide(std::span<const float> scores, std::span<const float> labels, std::span<const float> weights, bool logits)
      : scores_(scores.begin(), scores.end()),
        predictions_(scores_),
        labels_(labels.begin(), labels.end()),
        weights_(weights.begin(), weights.end()) {
    if (weights.empty()) weights_.assign(labels.size(), 1.0);
    if (logits) std::transform(scores_.begin(), scores_.end(), predictions_.begin(), metrics::sigmoid);
  }
  Wide(const Wide& all, std::span<const size_t> order) {
    for (const size_t i : order) {
      scores_.push_back(all.scores_[i]);
      predictions_.push_back(all.predictions_[i]);
      labels_.push_back(all.labels_[i]);
      weights_.push_back(all.weights_[i]);
    }
  }
  MetricSamples samples() const { return {scores_, predictions_, labels_, weights_}; }

 private:
  std::vector<double> scores_, predictions_, labels_, weights_;
};

// Calls body(samples of one key) for each key. Samples of weight 0 do not count, so they take no place among others.
template <class Body>
void for_each_group(const Wide& all, const std::vector<int64_t>& keys, const Body& body) {
  const std::span<const double> weights = all.samples().weights;
  std::vector<size_t> order;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (weights[i] != 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return keys[a] < keys[b]; });
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && keys[order[end]] == keys[order[begin]]) ++end;
    body(Wide(all, std::span(order).subspan(begin, end - begin)));
    begin = end;
  }
}

// Fails if the metric does not fit the scores.
void check_fits(const std::string& name, const Metric::Info& info, int64_t classes) {
  if (info.least_classes == 0 && classes > 0)
    fail(Code::kInvalidArgument, "the metric \"", name, "\" judges one value for each sample, but here are ", classes,
         " classes: take one of classes, such as ", kUsualClassMetrics[0]);
  if (info.least_classes > 0 && classes == 0)
    fail(Code::kInvalidArgument, "the metric \"", name,
         "\" needs a head of classes, such as one with the loss softmax_cross_entropy, but here is one value for each "
         "sample");
  if (info.least_classes > classes)
    fail(Code::kInvalidArgument, "the metric \"", name, "\" is always 1 for ", classes, " classes: take a k below ",
         classes);
}

// Returns the name without its option `key`, and moves that option to `key`.
std::string without_key(const std::string& name, std::string* key) {
  const ComponentName part = parse_component_name(name);
  const json options = config::parse_json(part.options, {"the options of a metric"});
  std::string rest = name.substr(0, name.find('?'));
  char joint = '?';
  for (const auto& [option, value] : options.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (option == "key")
      *key = text;
    else
      rest += str_cat(std::exchange(joint, '&'), option, "=", text);
  }
  return rest;
}

// Appends the first id of each sample's bag; -1: the bag is empty.
template <class Id, class Length>
void add_first_ids(const JaggedTensor& bags, std::vector<int64_t>& out) {
  const auto ids = bags.values().span<Id>();
  size_t at = 0;
  for (const Length n : bags.lengths().span<Length>()) {
    out.push_back(n > 0 ? static_cast<int64_t>(ids[at]) : -1);
    at += static_cast<size_t>(n);
  }
}
template <class Id>
void add_first_ids(const JaggedTensor& bags, std::vector<int64_t>& out) {
  bags.lengths().dtype() == DType::kInt64 ? add_first_ids<Id, int64_t>(bags, out)
                                          : add_first_ids<Id, int32_t>(bags, out);
}

template <class T>
std::vector<T> gathered_values(const ProcessGroup& group, const std::vector<T>& mine, std::span<const int64_t> counts) {
  const Tensor send = Tensor::from(mine);
  const Tensor all = Tensor::empty({std::accumulate(counts.begin(), counts.end(), int64_t{0})}, send.dtype());
  group.all_gather_v(send, all, counts, "samples of metrics").wait();
  return all.to_vector<T>();
}

}  // namespace

MetricSet::MetricSet(const std::vector<std::string>& names, MetricSetOptions options)
    : names_(names), logits_(options.logits), classes_(options.classes) {
  for (const std::string& name : names) {
    if (std::count(names.begin(), names.end(), name) > 1)
      fail(Code::kInvalidArgument, "the metric \"", name, "\" is asked for twice");
    One one;
    std::string key;
    one.metric = make_metric(without_key(name, &key), options.runtime);
    const Metric::Info& info = one.metric->info();
    if (classes_) check_fits(name, info, *classes_);
    if (key.empty() == (info.pieces == Pieces::kGroup))
      fail(Code::kInvalidArgument, "the metric \"", name, "\" ",
           key.empty() ? "needs groups of samples: name their column, as in ?key=user"
                       : "uses no groups, so it takes no key");
    if (!key.empty()) {
      const auto known = std::find(keys_.begin(), keys_.end(), key);
      one.key = static_cast<size_t>(known - keys_.begin());
      if (known == keys_.end()) keys_.push_back(key);
    }
    keeps_ = keeps_ || info.pieces != Pieces::kAny;
    if (info.pieces == Pieces::kAny) one.sums.assign(one.metric->number_of_sums(classes_.value_or(0)), 0.0);
    metrics_.push_back(std::move(one));
  }
  kept_.keys.resize(keys_.size());
}

const MetricSet::One& MetricSet::one(const std::string& name) const {
  const auto known = std::find(names_.begin(), names_.end(), name);
  if (known == names_.end())
    fail(Code::kInvalidArgument, "there is no metric \"", name, "\" here", sdk::nearest_text(name, names_));
  return metrics_[static_cast<size_t>(known - names_.begin())];
}

const Metric::Info& MetricSet::info(const std::string& name) const { return one(name).metric->info(); }

double MetricSet::cost(const std::string& name, double value) const {
  const Metric& metric = *one(name).metric;
  if (metric.info().best == Metric::Best::kNone)
    fail(Code::kInvalidArgument, "the metric \"", name, "\" has no better and worse values");
  return metric.cost(value);
}

void MetricSet::add(const Tensor& scores, const Tensor& labels, const KeyedJaggedTensor* columns,
                    const Tensor& weights) {
  TESSERA_CHECK(classes_.has_value(), "a set that takes samples knows whether there are classes");
  const int64_t samples = labels.numel(), each = std::max<int64_t>(1, *classes_);
  if (scores.dtype() != DType::kFloat32 || labels.dtype() != DType::kFloat32 || scores.numel() != samples * each) {
    fail(Code::kInvalidArgument, "metrics need ", each == 1 ? "" : str_cat(each, " times "),
         "as many float32 scores as labels, not ", scores.numel(), " ", to_string(scores.dtype()), " and ", samples,
         " ", to_string(labels.dtype()));
  }
  if (weights.defined() && (weights.dtype() != DType::kFloat32 || weights.numel() != samples))
    fail(Code::kInvalidArgument, "metrics need as many float32 weights as labels, not ", weights.numel(), " ",
         to_string(weights.dtype()), " for ", samples);
  if (samples == 0) return;
  const std::span<const float> s(scores.data<float>(), static_cast<size_t>(scores.numel()));
  const std::span<const float> y(labels.data<float>(), static_cast<size_t>(samples));
  const auto broken = std::find_if(s.begin(), s.end(), [](float v) { return std::isnan(v); });
  if (broken != s.end()) fail(Code::kInvalidArgument, "score ", broken - s.begin(), " of this batch is not a number");
  if (*classes_ > 0 && !std::all_of(s.begin(), s.end(), [](float v) { return std::isfinite(v); }))
    fail(Code::kInvalidArgument, "metrics of classes need finite scores, but one of this batch is infinite");
  keep_keys(columns, samples);
  const std::span<const float> w = weights.defined() ? weights.span<float>() : std::span<const float>();
  add_any(s, y, w);
  samples_ += samples;
  if (!keeps_) return;
  keep_weights(w, y.size());
  kept_.scores.insert(kept_.scores.end(), s.begin(), s.end());
  kept_.labels.insert(kept_.labels.end(), y.begin(), y.end());
}

void MetricSet::keep_weights(std::span<const float> weights, size_t samples) {
  if (weights.empty() && kept_.weights.empty()) return;
  kept_.weights.resize(kept_.labels.size(), 1.0f);
  if (weights.empty()) kept_.weights.resize(kept_.labels.size() + samples, 1.0f);
  kept_.weights.insert(kept_.weights.end(), weights.begin(), weights.end());
}

void MetricSet::add_any(std::span<const float> scores, std::span<const float> labels, std::span<const float> weights) {
  std::optional<Wide> wide;
  for (One& one : metrics_) {
    if (one.metric->info().pieces != Pieces::kAny) continue;
    if (!wide) wide.emplace(scores, labels, weights, logits_ && *classes_ == 0);
    MetricSamples samples = wide->samples();
    samples.classes = *classes_;
    one.metric->add(samples, one.sums);
  }
}

void MetricSet::keep_keys(const KeyedJaggedTensor* columns, int64_t samples) {
  for (size_t k = 0; k < keys_.size(); ++k) {
    if (!columns) fail(Code::kInvalidArgument, "metrics by the column \"", keys_[k], "\" need the samples' columns");
    const JaggedTensor bags = (*columns)[keys_[k]];
    if (bags.lengths().numel() != samples)
      fail(Code::kInvalidArgument, "there are ", samples, " scores, but ", bags.lengths().numel(),
           " samples with the column \"", keys_[k], '"');
    bags.values().dtype() == DType::kInt64 ? add_first_ids<int64_t>(bags, kept_.keys[k])
                                           : add_first_ids<int32_t>(bags, kept_.keys[k]);
  }
}

MetricValues MetricSet::values() const { return values_of(metrics_, kept_, samples_); }

MetricValues MetricSet::values(const ProcessGroup& group) const {
  if (group.world_size() == 1) return values();
  std::vector<double> sums = {static_cast<double>(samples_)};
  for (const One& one : metrics_) sums.insert(sums.end(), one.sums.begin(), one.sums.end());
  const Tensor all = Tensor::from(sums);
  group.all_reduce(all, ReduceOp::kSum, "sums of metrics").wait();
  const auto merged = all.span<double>();
  std::vector<One> metrics = metrics_;
  size_t at = 1;
  for (One& one : metrics) {
    for (double& sum : one.sums) sum = merged[at++];
  }
  return values_of(metrics, keeps_ ? gathered(group) : Kept(), static_cast<int64_t>(merged[0]));
}

MetricSet::Kept MetricSet::gathered(const ProcessGroup& group) const {
  // The number of samples on each rank, and a flag if some have weights.
  const Tensor counted = Tensor::zeros({group.world_size() + 1}, DType::kInt64);
  counted.data<int64_t>()[group.rank()] = std::ssize(kept_.labels);
  counted.data<int64_t>()[group.world_size()] = kept_.weights.empty() ? 0 : 1;
  group.all_reduce(counted, ReduceOp::kSum, "samples of metrics").wait();
  const Tensor counts = counted.first({group.world_size()});
  const bool weighted = counted.data<int64_t>()[group.world_size()] > 0;
  std::vector<int64_t> scores = counts.to_vector<int64_t>();
  for (int64_t& n : scores) n *= std::max<int64_t>(1, classes_.value_or(0));
  Kept all;
  all.scores = gathered_values(group, kept_.scores, scores);
  all.labels = gathered_values(group, kept_.labels, counts.span<int64_t>());
  if (weighted) {
    std::vector<float> weights = kept_.weights;
    weights.resize(kept_.labels.size(), 1.0f);
    all.weights = gathered_values(group, weights, counts.span<int64_t>());
  }
  for (const std::vector<int64_t>& keys : kept_.keys)
    all.keys.push_back(gathered_values(group, keys, counts.span<int64_t>()));
  return all;
}

MetricValues MetricSet::values_of(const std::vector<One>& metrics, const Kept& kept, int64_t samples) const {
  MetricValues out{.samples = samples};
  std::optional<Wide> wide;
  for (size_t m = 0; m < metrics.size(); ++m) {
    const Metric& metric = *metrics[m].metric;
    std::vector<double> sums = metrics[m].sums;
    if (metric.info().pieces != Pieces::kAny) {
      if (!wide) wide.emplace(kept.scores, kept.labels, kept.weights, logits_ && classes_.value_or(0) == 0);
      sums.assign(static_cast<size_t>(metric.info().sums), 0.0);
    }
    if (metric.info().pieces == Pieces::kAll) {
      MetricSamples all = wide->samples();
      all.classes = classes_.value_or(0);
      metric.add(all, sums);
    }
    if (metric.info().pieces == Pieces::kGroup)
      for_each_group(*wide, kept.keys[metrics[m].key], [&](const Wide& group) { metric.add(group.samples(), sums); });
    out.values.emplace_back(names_[m], metric.value(sums));
  }
  return out;
}

void MetricSet::clear() {
  for (One& one : metrics_) std::fill(one.sums.begin(), one.sums.end(), 0.0);
  kept_ = {{}, {}, {}, std::vector<std::vector<int64_t>>(keys_.size())};
  samples_ = 0;
}

}  // namespace tessera
