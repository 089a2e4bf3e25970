#include "tessera/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tessera {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLargestLoss = 100;

// The Mann-Whitney statistic: pairs in which the positive is above, ties half.
double area_under_curve(const std::vector<float>& logits, const std::vector<float>& labels, int64_t positives) {
  const auto n = static_cast<int64_t>(logits.size());
  const int64_t negatives = n - positives;
  if (positives == 0 || negatives == 0) return kNaN;
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return logits[a] < logits[b]; });
  int64_t negatives_below = 0;
  double pairs = 0;
  for (int64_t begin = 0; begin < n;) {
    int64_t end = begin, tied_positives = 0;
    for (; end < n && logits[order[end]] == logits[order[begin]]; ++end) tied_positives += labels[order[end]] > 0.5f;
    const int64_t tied_negatives = end - begin - tied_positives;
    pairs += static_cast<double>(tied_positives) *
             (static_cast<double>(negatives_below) + 0.5 * static_cast<double>(tied_negatives));
    negatives_below += tied_negatives;
    begin = end;
  }
  return pairs / (static_cast<double>(positives) * static_cast<double>(negatives));
}

double sigmoid(double z) { return z >= 0 ? 1 / (1 + std::exp(-z)) : std::exp(z) / (1 + std::exp(z)); }

double entropy(double p) { return -p * std::log(p) - (1 - p) * std::log1p(-p); }

}  // namespace

double metric_value(const BinaryMetrics& m, const std::string& name) {
  if (name == "auc") return m.auc;
  if (name == "logloss") return m.logloss;
  if (name == "normalized_entropy") return m.normalized_entropy;
  if (name == "calibration") return m.calibration;
  fail(Code::kInvalidArgument, "there is no metric \"", name,
       "\"; there are auc, logloss, normalized_entropy and calibration");
}

double metric_cost(const BinaryMetrics& m, const std::string& name) {
  const double value = metric_value(m, name);
  if (std::isnan(value)) return std::numeric_limits<double>::infinity();
  return name == "auc" ? -value : name == "calibration" ? std::abs(value - 1) : value;
}

double logloss_of(double logit, bool label) {
  const double z = label ? -logit : logit;
  return std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z)));
}

void Predictions::add(const Tensor& logits, const Tensor& labels) {
  if (logits.dtype() != DType::kFloat32 || labels.dtype() != DType::kFloat32 || logits.numel() != labels.numel()) {
    fail(Code::kInvalidArgument, "metrics need as many float32 logits as labels, not ", logits.numel(), " ",
         to_string(logits.dtype()), " and ", labels.numel(), " ", to_string(labels.dtype()));
  }
  for (int64_t i = 0; i < logits.numel(); ++i) {
    const float logit = logits.data<float>()[i], label = labels.data<float>()[i];
    if (std::isnan(logit)) fail(Code::kInvalidArgument, "logit ", i, " of this batch is not a number");
    if (label != 0 && label != 1) fail(Code::kInvalidArgument, "label ", i, " is ", label, ", but must be 0 or 1");
  }
  const auto l = logits.span<float>(), y = labels.span<float>();
  logits_.insert(logits_.end(), l.begin(), l.end());
  labels_.insert(labels_.end(), y.begin(), y.end());
}

BinaryMetrics Predictions::metrics() const {
  BinaryMetrics m;
  m.samples = size();
  double loss = 0, predicted = 0;
  for (size_t i = 0; i < logits_.size(); ++i) {
    const bool label = labels_[i] > 0.5f;
    m.positives += label;
    loss += std::min(logloss_of(logits_[i], label), kLargestLoss);
    predicted += sigmoid(logits_[i]);
  }
  const auto n = static_cast<double>(m.samples), positives = static_cast<double>(m.positives);
  m.auc = area_under_curve(logits_, labels_, m.positives);
  m.logloss = m.samples == 0 ? kNaN : loss / n;
  m.normalized_entropy = m.positives == 0 || m.positives == m.samples ? kNaN : m.logloss / entropy(positives / n);
  m.calibration = m.positives == 0 ? kNaN : predicted / positives;
  return m;
}

}  // namespace tessera
