#include "metrics/classes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "metrics/ranking.h"

namespace tessera::metrics {
namespace {

using Best = Metric::Best;
using Pieces = Metric::Pieces;
using Sums = std::span<const double>;

constexpr double kNoClassValue = std::numeric_limits<double>::quiet_NaN();

// A sample of a call: its scores, one for each class, its class and its weight.
struct ClassSample {
  std::span<const double> scores;
  size_t label;
  double weight;
};

class OfClasses : public Metric {
 public:
  OfClasses(std::string name, Info info) : Metric(info), name_(std::move(name)) {}
  void add(const MetricSamples& s, std::span<double> sums) const override {
    const auto classes = static_cast<size_t>(s.classes);
    for (size_t i = 0; i < s.labels.size(); ++i) {
      const double y = s.labels[i];
      if (!(y >= 0 && y < static_cast<double>(classes)) || y != std::floor(y))
        fail(Code::kInvalidArgument, "the metric ", name_, " needs the number of a class as label, from 0 to ",
             s.classes - 1, ", but one is ", y);
      add_sample({s.scores.subspan(i * classes, classes), static_cast<size_t>(y), s.weights[i]}, sums);
    }
  }

 protected:
  static Info info_of(Best best, int64_t sums, int64_t sums_of_class, int64_t least_classes = 2) {
    return {Pieces::kAny, best, sums, true, least_classes, sums_of_class};
  }
  virtual void add_sample(const ClassSample& s, std::span<double> sums) const = 0;

 private:
  std::string name_;
};

// The share of samples whose class is among the k with the greatest scores. If equal scores cross the border, each
// order is equally likely. Sums: weights of hits and of all samples.
class TopClasses : public OfClasses {
 public:
  TopClasses(const std::string& name, int64_t k)
      : OfClasses(name, info_of(Best::kLargest, 2, 0, k + 1)), k_(static_cast<double>(k)) {}
  double value(Sums sums) const override { return sums[1] == 0 ? kNoClassValue : sums[0] / sums[1]; }

 private:
  void add_sample(const ClassSample& s, std::span<double> sums) const override {
    const double own = s.scores[s.label];
    double greater = 0, equal = 0;
    for (const double score : s.scores) {
      greater += score > own ? 1 : 0;
      equal += score == own ? 1 : 0;
    }
    sums[0] += s.weight * std::clamp((k_ - greater) / equal, 0.0, 1.0);
    sums[1] += s.weight;
  }
  double k_;
};

// The mean of -ln p of the labels, p the softmax of the scores; `normalized`: divided by the entropy of the labels'
// shares. Sums: the weighted sum of -ln p, and the weights of each class.
class ClassLogloss : public OfClasses {
 public:
  ClassLogloss(const std::string& name, bool normalized)
      : OfClasses(name, info_of(Best::kSmallest, 1, 1)), normalized_(normalized) {}
  double value(Sums sums) const override {
    double all = 0, entropy = 0;
    for (const double w : sums.subspan(1)) all += w;
    if (all == 0) return kNoClassValue;
    if (!normalized_) return sums[0] / all;
    for (const double w : sums.subspan(1)) entropy -= w > 0 ? w / all * std::log(w / all) : 0;
    return entropy == 0 ? kNoClassValue : sums[0] / all / entropy;
  }

 private:
  void add_sample(const ClassSample& s, std::span<double> sums) const override {
    const double largest = *std::max_element(s.scores.begin(), s.scores.end());
    double sum = 0;
    for (const double score : s.scores) sum += std::exp(score - largest);
    sums[0] += s.weight * (std::log(sum) + largest - s.scores[s.label]);
    sums[1 + s.label] += s.weight;
  }
  bool normalized_;
};

// The mean of a value over the classes that occur, as a label or as the class with the greatest score. Sums of each
// class: weights of hits, of samples predicted to have it, and of those that have it.
class Macro : public OfClasses {
 public:
  enum class Kind { kPrecision, kRecall, kF1 };
  Macro(const std::string& name, Kind kind) : OfClasses(name, info_of(Best::kLargest, 0, 3)), kind_(kind) {}
  double value(Sums sums) const override {
    double all = 0, classes = 0;
    for (size_t c = 0; c < sums.size(); c += 3) {
      const double hits = sums[c], predicted = sums[c + 1], labels = sums[c + 2];
      if (predicted == 0 && labels == 0) continue;
      const double divisor = kind_ == Kind::kPrecision ? predicted
                             : kind_ == Kind::kRecall  ? labels
                                                       : (predicted + labels) / 2;
      all += divisor == 0 ? 0 : hits / divisor;
      ++classes;
    }
    return classes == 0 ? kNoClassValue : all / classes;
  }

 private:
  void add_sample(const ClassSample& s, std::span<double> sums) const override {
    const double largest = *std::max_element(s.scores.begin(), s.scores.end());
    const auto equal = static_cast<double>(std::count(s.scores.begin(), s.scores.end(), largest));
    for (size_t c = 0; c < s.scores.size(); ++c) {
      if (s.scores[c] != largest) continue;
      sums[3 * c + 1] += s.weight / equal;
      if (c == s.label) sums[3 * c] += s.weight / equal;
    }
    sums[3 * s.label + 2] += s.weight;
  }
  Kind kind_;
};

// The mean over the classes of the AUC of p of the class, one against the rest: scikit-learn's roc_auc_score and
// torchmetrics' multiclass_auroc with average = "macro". A class that all samples have, or none, does not count.
class MacroAuc : public OfClasses {
 public:
  explicit MacroAuc(const std::string& name) : OfClasses(name, {Pieces::kAll, Best::kLargest, 1, true, 2}) {}
  void add(const MetricSamples& s, std::span<double> sums) const override {
    std::vector<double> none;
    OfClasses::add(s, none);  // checks the labels
    const auto classes = static_cast<size_t>(s.classes);
    std::vector<double> p(s.scores.begin(), s.scores.end());
    for (size_t at = 0; at < p.size(); at += classes) softmax(std::span(p).subspan(at, classes));
    std::vector<double> of_class(s.labels.size()), labels(s.labels.size());
    double all = 0, counted = 0;
    for (size_t c = 0; c < classes; ++c) {
      for (size_t i = 0; i < labels.size(); ++i) {
        of_class[i] = p[i * classes + c];
        labels[i] = s.labels[i] == static_cast<double>(c) ? 1 : 0;
      }
      const double area = area_under_curve({of_class, of_class, labels, s.weights}, false);
      if (std::isnan(area)) continue;
      all += area;
      ++counted;
    }
    sums[0] = counted == 0 ? kNoClassValue : all / counted;
  }
  double value(Sums sums) const override { return sums[0]; }

 private:
  void add_sample(const ClassSample&, std::span<double>) const override {}
  static void softmax(std::span<double> x) {
    const double largest = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (double& v : x) sum += v = std::exp(v - largest);
    for (double& v : x) v /= sum;
  }
};

int64_t places_of(sdk::Options& options) {
  constexpr int64_t kMost = int64_t{1} << 31;
  const int64_t k = options.integer("k", 1);
  if (k < 1 || k > kMost) sdk::fail(TSR_INVALID_ARGUMENT, "k is ", k, ", but must be between 1 and ", kMost);
  return k;
}

using MakeOfClasses = MetricPtr (*)(const std::string& name, sdk::Options& options);

MetricPtr top_classes(const std::string& name, sdk::Options& options) {
  return std::make_shared<TopClasses>(name, places_of(options));
}
template <bool kNormalized>
MetricPtr class_logloss(const std::string& name, sdk::Options&) {
  return std::make_shared<ClassLogloss>(name, kNormalized);
}
template <Macro::Kind kKind>
MetricPtr macro(const std::string& name, sdk::Options&) {
  return std::make_shared<Macro>(name, kKind);
}

MetricPtr macro_auc(const std::string& name, sdk::Options&) { return std::make_shared<MacroAuc>(name); }

constexpr std::pair<const char*, MakeOfClasses> kOfClasses[] = {
    {"macro_auc", macro_auc},
    {"macro_f1", macro<Macro::Kind::kF1>},
    {"macro_precision", macro<Macro::Kind::kPrecision>},
    {"macro_recall", macro<Macro::Kind::kRecall>},
    {"multiclass_accuracy", top_classes},
    {"multiclass_logloss", class_logloss<false>},
    {"multiclass_normalized_entropy", class_logloss<true>},
    {"multiclass_recall", top_classes},
};

}  // namespace

MetricPtr make_of_classes(const std::string& name, sdk::Options& options) {
  for (const auto& [known, make] : kOfClasses) {
    if (name == known) return make(name, options);
  }
  return nullptr;
}

std::vector<std::string> class_metric_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : kOfClasses) names.emplace_back(name);
  return names;
}

}  // namespace tessera::metrics
