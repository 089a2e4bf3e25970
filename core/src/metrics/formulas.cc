#include "metrics/formulas.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "metrics/classes.h"
#include "metrics/ranking.h"
#include "tessera/sdk/options.h"

namespace tessera::metrics {
namespace {

using Best = Metric::Best;
using Pieces = Metric::Pieces;
using Sums = std::span<const double>;

constexpr double kTiny = 1e-12;
constexpr double kOffOne = 0x1p-24;  // distance of 1 to the largest float32 below it, the largest score of a predictor
constexpr int64_t kMostBins = 1 << 24;

double kept_off_the_ends(double p) { return std::clamp(p, kTiny, 1 - kTiny); }

// Adds one sample to a metric's sums. ValueOf computes the metric from the sums; NaN: it is not defined.
using AddSample = void (*)(double p, double y, double w, double threshold, double* sums);
using ValueOf = double (*)(Sums sums, bool as_torchrec);

double ratio(Sums s, bool as_torchrec) {
  if (s[1] == 0) return as_torchrec ? 0.0 : std::numeric_limits<double>::quiet_NaN();
  return s[0] / s[1];
}
double root_of_ratio(Sums s, bool as_torchrec) { return std::sqrt(ratio(s, as_torchrec)); }

// Adds the cross-entropy in bits, and the weights of all samples, of positives and of negatives.
void add_entropy(double p, double y, double w, double, double* sums) {
  const double q = kept_off_the_ends(p);
  sums[0] += -w * (y * std::log2(q) + (1 - y) * std::log2(1 - q));
  sums[1] += w;
  sums[2] += w * y;
  sums[3] += w * (1 - y);
}
double normalized_entropy(Sums s, bool as_torchrec) {
  if (!as_torchrec && (s[2] == 0 || s[3] == 0)) return std::numeric_limits<double>::quiet_NaN();
  const double m = kept_off_the_ends(s[2] / std::max(s[1], kTiny));
  return s[0] / (-s[2] * std::log2(m) - s[3] * std::log2(1 - m));
}
double logloss(Sums s, bool as_torchrec) {
  if (as_torchrec) return s[0] / std::max(s[2] + s[3], kTiny);
  return ratio(s, as_torchrec) * std::log(2.0);
}

struct Formula {
  const char* name;
  Best best;
  int64_t sums;
  AddSample add;
  ValueOf value;
  bool any_labels = false, threshold = false, logs = false;
};

constexpr Formula kFormulas[] = {
    {"accuracy", Best::kLargest, 2,
     [](double p, double y, double w, double threshold, double* s) {
       s[0] += (p >= threshold) == (y >= 0.5) ? w : 0.0;
       s[1] += w;
     },
     ratio, false, true},
    {"calibration", Best::kOne, 2,
     [](double p, double y, double w, double, double* s) {
       s[0] += w * p;
       s[1] += w * y;
     },
     ratio},
    {"ctr", Best::kNone, 2,
     [](double, double y, double w, double, double* s) {
       s[0] += w * y;
       s[1] += w;
     },
     ratio, true},
    {"logloss", Best::kSmallest, 4, add_entropy, logloss, false, false, true},
    {"mae", Best::kSmallest, 2,
     [](double p, double y, double w, double, double* s) {
       s[0] += w * std::fabs(y - p);
       s[1] += w;
     },
     ratio, true},
    {"mse", Best::kSmallest, 2,
     [](double p, double y, double w, double, double* s) {
       s[0] += w * (y - p) * (y - p);
       s[1] += w;
     },
     ratio, true},
    {"ne", Best::kSmallest, 4, add_entropy, normalized_entropy, false, false, true},
    {"normalized_entropy", Best::kSmallest, 4, add_entropy, normalized_entropy, false, false, true},
    {"precision", Best::kLargest, 2,
     [](double p, double y, double w, double threshold, double* s) {
       s[0] += p >= threshold && y >= 0.5 ? w : 0.0;
       s[1] += p >= threshold ? w : 0.0;
     },
     ratio, false, true},
    {"recall", Best::kLargest, 2,
     [](double p, double y, double w, double threshold, double* s) {
       s[0] += p >= threshold && y >= 0.5 ? w : 0.0;
       s[1] += y >= 0.5 ? w : 0.0;
     },
     ratio, false, true},
    {"rmse", Best::kSmallest, 2,
     [](double p, double y, double w, double, double* s) {
       s[0] += w * (y - p) * (y - p);
       s[1] += w;
     },
     root_of_ratio, true},
    {"weighted_avg", Best::kNone, 2,
     [](double p, double, double w, double, double* s) {
       s[0] += w * p;
       s[1] += w;
     },
     ratio, true},
};

class FormulaMetric : public Metric {
 public:
  FormulaMetric(const Formula& formula, double threshold, bool as_torchrec)
      : Metric({Pieces::kAny, formula.best, formula.sums, formula.any_labels}),
        formula_(formula),
        threshold_(threshold),
        as_torchrec_(as_torchrec) {}
  void add(const MetricSamples& s, std::span<double> sums) const override {
    if (!info().any_labels) require_labels_to_one(s, formula_.name);
    // A float32 score and its logit are the same prediction and must count the same.
    const double off = formula_.logs && !as_torchrec_ ? kOffOne : 0;
    for (size_t i = 0; i < s.labels.size(); ++i) {
      const double p = off > 0 ? std::clamp(s.predictions[i], off, 1 - off) : s.predictions[i];
      formula_.add(p, s.labels[i], s.weights[i], threshold_, sums.data());
    }
  }
  double value(Sums sums) const override { return formula_.value(sums, as_torchrec_); }

 private:
  const Formula& formula_;
  double threshold_;
  bool as_torchrec_;
};

int64_t whole(sdk::Options& options, const char* key, int64_t otherwise, int64_t least, int64_t most) {
  const int64_t n = options.integer(key, otherwise);
  if (n < least || n > most)
    sdk::fail(TSR_INVALID_ARGUMENT, key, " is ", n, ", but must be between ", least, " and ", most);
  return n;
}

using Make = MetricPtr (*)(sdk::Options& options, bool as_torchrec);
constexpr int64_t kMostPlaces = int64_t{1} << 31;
constexpr std::pair<const char*, Make> kRankings[] = {
    {"auc", [](sdk::Options& o, bool as_torchrec) { return make_auc(whole(o, "bins", 0, 0, kMostBins), as_torchrec); }},
    {"gauc", [](sdk::Options&, bool) { return make_gauc(); }},
    {"hit_rate", [](sdk::Options& o, bool) { return make_hit_rate(whole(o, "k", 10, 1, kMostPlaces)); }},
    {"ndcg", [](sdk::Options& o, bool) { return make_ndcg(whole(o, "k", 10, 1, kMostPlaces)); }},
    {"recall_at_k", [](sdk::Options& o, bool) { return make_recall_at_k(whole(o, "k", 10, 1, kMostPlaces)); }},
};

MetricPtr made(const std::string& name, sdk::Options& options, bool as_torchrec) {
  for (const auto& [known, make] : kRankings) {
    if (name == known) return make(options, as_torchrec);
  }
  if (MetricPtr metric = make_of_classes(name, options)) return metric;
  for (const Formula& f : kFormulas) {
    if (name != f.name) continue;
    const double threshold = f.threshold ? options.number("threshold", 0.5) : 0.5;
    return std::make_shared<FormulaMetric>(f, threshold, as_torchrec);
  }
  const bool of_ranks = !as_torchrec && (name == "mrr" || name.find('@') != std::string::npos);
  return of_ranks ? make_of_ranks(name, options.flag("by_group", false)) : nullptr;
}

}  // namespace

MetricPtr make_formula(const std::string& name, const std::string& options, bool as_torchrec) {
  try {
    sdk::Options given(options);
    MetricPtr metric = made(name, given, as_torchrec);
    if (metric) given.finish();
    return metric;
  } catch (const sdk::Failure& e) {
    fail(Code::kInvalidArgument, "the metric ", name, ": ", e.what());
  }
}

double sigmoid(double z) { return z >= 0 ? 1 / (1 + std::exp(-z)) : std::exp(z) / (1 + std::exp(z)); }

std::vector<std::string> formula_names() {
  std::vector<std::string> names = class_metric_names();
  for (const char* of_ranks : {"hit_rate@10", "mrr", "mrr@10", "ndcg@10", "recall@10"}) names.emplace_back(of_ranks);
  for (const auto& [name, make] : kRankings) names.emplace_back(name);
  for (const Formula& f : kFormulas) names.emplace_back(f.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tessera::metrics
