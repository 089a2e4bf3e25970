#include "tessera/rec_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/error.h"

namespace tessera {
namespace {

using Sums = std::span<const double>;
using Values = std::vector<std::pair<std::string, double>>;

constexpr double kTiny = 1e-12;

double kept_off_the_ends(double p) { return std::clamp(p, kTiny, 1 - kTiny); }
double ratio(double a, double b) { return b == 0 ? 0.0 : a / b; }

// Cross-entropy in bits, and the weights of all, of positives and of negatives.
void add_entropy(double p, double y, double w, double* sums) {
  const double q = kept_off_the_ends(p);
  sums[0] += -w * (y * std::log2(q) + (1 - y) * std::log2(1 - q));
  sums[1] += w;
  sums[2] += w * y;
  sums[3] += w * (1 - y);
}
Values ne_of(Sums s) {
  const double m = kept_off_the_ends(s[2] / std::max(s[1], kTiny));
  return {{"ne", s[0] / (-s[2] * std::log2(m) - s[3] * std::log2(1 - m))}};
}
Values logloss_of_sums(Sums s) { return {{"logloss", s[0] / std::max(s[2] + s[3], kTiny)}}; }

}  // namespace

// What a metric adds up of each sample, and what it makes of the sums.
struct RecMetric::Formula {
  const char* name;
  size_t sums;
  void (*add)(double p, double y, double w, double* sums);
  Values (*values)(Sums sums);
};

const RecMetric::Formula& RecMetric::formula_of(const std::string& name) {
  static const Formula kFormulas[] = {
      {"ne", 4, add_entropy, ne_of},
      {"logloss", 4, add_entropy, logloss_of_sums},
      {"calibration", 2,
       [](double p, double y, double w, double* s) {
         s[0] += w * p;
         s[1] += w * y;
       },
       [](Sums s) -> Values {
         return {{"calibration", s[1] <= 0 ? 0.0 : s[0] / s[1]}};
       }},
      {"ctr", 2,
       [](double, double y, double w, double* s) {
         s[0] += w * y;
         s[1] += w;
       },
       [](Sums s) -> Values {
         return {{"ctr", ratio(s[0], s[1])}};
       }},
      {"mse", 2,
       [](double p, double y, double w, double* s) {
         s[0] += w * (y - p) * (y - p);
         s[1] += w;
       },
       [](Sums s) -> Values {
         return {{"mse", ratio(s[0], s[1])}, {"rmse", std::sqrt(ratio(s[0], s[1]))}};
       }},
      {"mae", 2,
       [](double p, double y, double w, double* s) {
         s[0] += w * std::fabs(y - p);
         s[1] += w;
       },
       [](Sums s) -> Values {
         return {{"mae", ratio(s[0], s[1])}};
       }},
      {"weighted_avg", 2,
       [](double p, double, double w, double* s) {
         s[0] += w * p;
         s[1] += w;
       },
       [](Sums s) -> Values {
         return {{"weighted_avg", ratio(s[0], s[1])}};
       }},
      {"accuracy", 2,
       [](double p, double y, double w, double* s) {
         s[0] += (p >= 0.5) == (y >= 0.5) ? w : 0.0;
         s[1] += w;
       },
       [](Sums s) -> Values {
         return {{"accuracy", ratio(s[0], s[1])}};
       }},
      {"auc", 0, nullptr, nullptr},
  };
  for (const Formula& f : kFormulas) {
    if (name == f.name) return f;
  }
  fail(Code::kInvalidArgument, "there is no metric \"", name,
       "\": take ne, logloss, calibration, ctr, mse, mae, weighted_avg, accuracy or auc");
}

RecMetric::RecMetric(const std::string& name, int64_t window_size)
    : formula_(&formula_of(name)), window_size_(window_size), lifetime_(formula_->sums) {
  if (window_size < 1)
    fail(Code::kInvalidArgument, "a window of ", window_size, " samples is not possible: give 1 or more");
}

void RecMetric::update(std::span<const double> predictions, std::span<const double> labels,
                       std::span<const double> weights) {
  if (labels.size() != predictions.size() || (!weights.empty() && weights.size() != predictions.size())) {
    fail(Code::kInvalidArgument, "a batch has ", predictions.size(), " predictions, ", labels.size(), " labels and ",
         weights.size(), " weights, which must be as many");
  }
  Batch batch{static_cast<int64_t>(predictions.size()), std::vector<double>(formula_->sums)};
  for (size_t i = 0; i < predictions.size(); ++i) {
    const double w = weights.empty() ? 1.0 : weights[i];
    if (formula_->add)
      formula_->add(predictions[i], labels[i], w, batch.sums.data());
    else
      newest_.push_back({predictions[i], labels[i], w});
  }
  while (static_cast<int64_t>(newest_.size()) > window_size_) newest_.pop_front();
  for (size_t k = 0; k < lifetime_.size(); ++k) lifetime_[k] += batch.sums[k];
  window_.push_back(std::move(batch));
  int64_t samples = 0;
  for (const Batch& b : window_) samples += b.samples;
  for (; window_.size() > 1 && samples > window_size_; window_.pop_front()) samples -= window_.front().samples;
}

std::vector<double> RecMetric::window_sums() const {
  std::vector<double> sums(formula_->sums);
  for (const Batch& b : window_) {
    for (size_t k = 0; k < sums.size(); ++k) sums[k] += b.sums[k];
  }
  return sums;
}

std::vector<std::pair<std::string, double>> RecMetric::values_of(std::span<const double> sums) const {
  return formula_->values ? formula_->values(sums) : Values{};
}

std::vector<std::pair<std::string, double>> RecMetric::compute() const {
  Values out;
  for (const auto& [name, value] : values_of(lifetime_)) out.emplace_back("lifetime_" + name, value);
  for (const auto& [name, value] : values_of(window_sums())) out.emplace_back("window_" + name, value);
  if (!formula_->values) out.emplace_back("window_auc", auc());
  return out;
}

// The area below the curve of weighted true over false positives, by trapezoids between samples in descending order of
// their prediction, equal ones as they came; 0.5 where a class is missing.
double RecMetric::auc() const {
  std::vector<size_t> order(newest_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return newest_[a].prediction > newest_[b].prediction; });
  double hits = 0, misses = 0, area = 0;
  for (const size_t i : order) {
    const Sample& s = newest_[i];
    const double hit = s.weight * s.label, miss = s.weight * (1 - s.label);
    area += miss * (hits + hit / 2);
    hits += hit;
    misses += miss;
  }
  return hits == 0 || misses == 0 ? 0.5 : area / (hits * misses);
}

}  // namespace tessera
