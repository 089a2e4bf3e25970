#include "metrics/ranking.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

namespace tessera::metrics {
namespace {

using Best = Metric::Best;
using Pieces = Metric::Pieces;

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// Sorts samples by descending score. Equal ones keep their order.
std::vector<size_t> by_score(std::span<const double> scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  return order;
}

// Returns the end of the equal scores that begin at order[i].
size_t end_of_ties(std::span<const double> scores, const std::vector<size_t>& order, size_t i) {
  size_t end = i + 1;
  while (end < order.size() && scores[order[end]] == scores[order[i]]) ++end;
  return end;
}

// Counts positives and negatives by descending prediction, and the pairs that positives win.
struct Pairs {
  double hits = 0, misses = 0, won = 0;
  void add(double hit, double miss) {
    won += miss * (hits + hit / 2);
    hits += hit;
    misses += miss;
  }
  double area() const { return hits == 0 || misses == 0 ? kUndefined : won / (hits * misses); }
};

class Auc : public Metric {
 public:
  explicit Auc(bool as_torchrec) : Metric({Pieces::kAll, Best::kLargest, 1}), as_torchrec_(as_torchrec) {}
  void add(const MetricSamples& s, std::span<double> sums) const override {
    const double area = area_under_curve(s, as_torchrec_);
    sums[0] = as_torchrec_ && std::isnan(area) ? 0.5 : area;
  }
  double value(std::span<const double> sums) const override { return sums[0]; }

 private:
  bool as_torchrec_;
};

class BinnedAuc : public Metric {
 public:
  explicit BinnedAuc(int64_t bins) : Metric({Pieces::kAny, Best::kLargest, 2 * bins}), bins_(bins) {}
  void add(const MetricSamples& s, std::span<double> sums) const override {
    require_labels_to_one(s, "auc");
    for (size_t i = 0; i < s.labels.size(); ++i) {
      const double place = std::clamp(s.predictions[i], 0.0, 1.0) * static_cast<double>(bins_);
      const size_t bin = 2 * static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(place), bins_ - 1));
      sums[bin] += s.weights[i] * s.labels[i];
      sums[bin + 1] += s.weights[i] * (1 - s.labels[i]);
    }
  }
  double value(std::span<const double> sums) const override {
    Pairs pairs;
    for (size_t bin = sums.size(); bin > 0; bin -= 2) pairs.add(sums[bin - 2], sums[bin - 1]);
    return pairs.area();
  }

 private:
  int64_t bins_;
};

// The mean of a value over groups: sums[0] / sums[1].
class OverGroups : public Metric {
 public:
  explicit OverGroups(bool any_labels = false) : Metric({Pieces::kGroup, Best::kLargest, 2, any_labels}) {}
  double value(std::span<const double> sums) const override { return sums[1] == 0 ? kUndefined : sums[0] / sums[1]; }
};

class Gauc : public OverGroups {
 public:
  void add(const MetricSamples& s, std::span<double> sums) const override {
    const double area = area_under_curve(s, false);
    if (std::isnan(area)) return;
    const double weight = std::accumulate(s.weights.begin(), s.weights.end(), 0.0);
    sums[0] += weight * area;
    sums[1] += weight;
  }
};

// Uses the samples in the first k places by score. If equal scores cross the border, each order is equally likely.
class AtK : public OverGroups {
 public:
  AtK(const char* name, int64_t k, bool grades = false) : OverGroups(grades), name_(name), k_(static_cast<size_t>(k)) {}
  void add(const MetricSamples& s, std::span<double> sums) const final {
    if (!info().any_labels) require_labels_to_one(s, name_);
    if (std::none_of(s.labels.begin(), s.labels.end(), [](double y) { return y > 0; })) return;
    sums[0] += of_group(s, by_score(s.scores));
    sums[1] += 1;
  }

 protected:
  virtual double of_group(const MetricSamples& s, const std::vector<size_t>& order) const = 0;
  // Calls body(begin, end) for each run of equal scores that begins in the first k places.
  template <class Body>
  void for_each_tie(const MetricSamples& s, const std::vector<size_t>& order, const Body& body) const {
    for (size_t i = 0; i < std::min(k_, order.size());) {
      const size_t end = end_of_ties(s.scores, order, i);
      body(i, end);
      i = end;
    }
  }
  static double labels_of(const MetricSamples& s, const std::vector<size_t>& order, size_t begin, size_t end) {
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += std::max(s.labels[order[i]], 0.0);
    return sum;
  }
  size_t places(size_t begin, size_t end) const { return std::min(end, k_) - begin; }

  const char* name_;
  size_t k_;
};

double discount(size_t place) { return 1 / std::log2(static_cast<double>(place) + 2); }

// Labels may be grades, such as stars. Labels below 0 are worth nothing.
class Ndcg : public AtK {
 public:
  explicit Ndcg(int64_t k) : AtK("ndcg", k, true) {}

 protected:
  double of_group(const MetricSamples& s, const std::vector<size_t>& order) const override {
    double gain = 0, best = 0;
    for_each_tie(s, order, [&](size_t begin, size_t end) {
      const double mean = labels_of(s, order, begin, end) / static_cast<double>(end - begin);
      for (size_t place = begin; place < std::min(end, k_); ++place) gain += mean * discount(place);
    });
    std::vector<double> labels(s.labels.begin(), s.labels.end());
    std::sort(labels.begin(), labels.end(), std::greater<>());
    for (size_t place = 0; place < std::min(k_, labels.size()); ++place)
      best += std::max(labels[place], 0.0) * discount(place);
    return gain / best;
  }
};

class RecallAtK : public AtK {
 public:
  explicit RecallAtK(int64_t k) : AtK("recall_at_k", k) {}

 protected:
  double of_group(const MetricSamples& s, const std::vector<size_t>& order) const override {
    double found = 0;
    for_each_tie(s, order, [&](size_t begin, size_t end) {
      found +=
          labels_of(s, order, begin, end) * static_cast<double>(places(begin, end)) / static_cast<double>(end - begin);
    });
    return found / std::accumulate(s.labels.begin(), s.labels.end(), 0.0);
  }
};

class HitRate : public AtK {
 public:
  explicit HitRate(int64_t k) : AtK("hit_rate", k) {}

 protected:
  double of_group(const MetricSamples& s, const std::vector<size_t>& order) const override {
    double miss = 1;
    for_each_tie(s, order, [&](size_t begin, size_t end) {
      double left = static_cast<double>(end - begin), wrong = left;
      for (size_t i = begin; i < end; ++i) wrong -= s.labels[order[i]] >= 0.5 ? 1 : 0;
      for (size_t place = places(begin, end); place > 0; --place) miss *= std::max(wrong--, 0.0) / left--;
    });
    return 1 - miss;
  }
};

// Metrics of ranks. Each sample is one item that a user wants: without groups it is the only one.
class OfRanks : public Metric {
 public:
  enum class Kind { kHitRate, kMrr, kNdcg, kRecall };
  OfRanks(std::string name, Kind kind, double k, bool by_group)
      : Metric({by_group ? Pieces::kGroup : Pieces::kAny, Best::kLargest, 2, true}),
        name_(std::move(name)),
        kind_(kind),
        k_(k) {}
  void add(const MetricSamples& s, std::span<double> sums) const override {
    if (info().pieces == Pieces::kGroup) return add_user(s.predictions, 1, sums);
    for (size_t i = 0; i < s.predictions.size(); ++i) add_user(s.predictions.subspan(i, 1), s.weights[i], sums);
  }
  double value(std::span<const double> sums) const override { return sums[1] == 0 ? kUndefined : sums[0] / sums[1]; }

 private:
  void add_user(std::span<const double> ranks, double weight, std::span<double> sums) const {
    double wanted = 0, found = 0, gain = 0, best = 0;  // `best`: 1 / the least rank
    for (const double rank : ranks) {
      if (rank != std::floor(rank) || rank < -1)
        fail(Code::kInvalidArgument, "the metric ", name_, " needs ranks, which the layer item_ranks gives, but a ",
             "prediction is ", rank);
      if (rank < 0) continue;
      ++wanted;
      if (rank == 0 || rank > k_) continue;
      ++found;
      gain += discount(static_cast<size_t>(rank) - 1);
      best = std::max(best, 1 / rank);
    }
    if (wanted == 0) return;
    double ideal = 0;
    for (size_t place = 0; static_cast<double>(place) < std::min(wanted, k_); ++place) ideal += discount(place);
    const double value = kind_ == Kind::kHitRate ? std::min(found, 1.0)
                         : kind_ == Kind::kMrr   ? best
                         : kind_ == Kind::kNdcg  ? gain / ideal
                                                 : found / wanted;
    sums[0] += weight * value;
    sums[1] += weight;
  }
  std::string name_;
  Kind kind_;
  double k_;
};

}  // namespace

double area_under_curve(const MetricSamples& s, bool ties_as_they_came) {
  require_labels_to_one(s, "auc");
  const std::vector<size_t> order = by_score(s.scores);
  Pairs pairs;
  for (size_t i = 0; i < order.size();) {
    const size_t end = ties_as_they_came ? i + 1 : end_of_ties(s.scores, order, i);
    double hit = 0, miss = 0;
    for (; i < end; ++i) {
      hit += s.weights[order[i]] * s.labels[order[i]];
      miss += s.weights[order[i]] * (1 - s.labels[order[i]]);
    }
    pairs.add(hit, miss);
  }
  return pairs.area();
}

void require_labels_to_one(const MetricSamples& samples, const char* metric) {
  for (const double y : samples.labels) {
    if (!(y >= 0 && y <= 1))
      fail(Code::kInvalidArgument, "the metric ", metric, " needs labels from 0 to 1, but one is ", y);
  }
}

MetricPtr make_auc(int64_t bins, bool as_torchrec) {
  if (bins > 0) return std::make_shared<BinnedAuc>(bins);
  return std::make_shared<Auc>(as_torchrec);
}
MetricPtr make_of_ranks(const std::string& name, bool by_group) {
  using Kind = OfRanks::Kind;
  using Known = std::pair<std::string_view, Kind>;
  constexpr std::array kKinds = {Known{"hit_rate", Kind::kHitRate}, Known{"mrr", Kind::kMrr},
                                 Known{"ndcg", Kind::kNdcg}, Known{"recall", Kind::kRecall}};
  const size_t at = name.find('@');
  double k = std::numeric_limits<double>::infinity();
  for (const auto& [known, kind] : kKinds) {
    if (name.substr(0, at) != known) continue;
    if (at != std::string::npos) {
      int64_t places = 0;
      const auto [end, error] = std::from_chars(name.data() + at + 1, name.data() + name.size(), places);
      if (error != std::errc() || end != name.data() + name.size() || places < 1)
        fail(Code::kInvalidArgument, "the metric \"", name, "\" needs a number of places from 1 on: ", known, "@10");
      k = static_cast<double>(places);
    }
    return std::make_shared<OfRanks>(name, kind, k, by_group);
  }
  return nullptr;
}
MetricPtr make_gauc() { return std::make_shared<Gauc>(); }
MetricPtr make_ndcg(int64_t k) { return std::make_shared<Ndcg>(k); }
MetricPtr make_recall_at_k(int64_t k) { return std::make_shared<RecallAtK>(k); }
MetricPtr make_hit_rate(int64_t k) { return std::make_shared<HitRate>(k); }

}  // namespace tessera::metrics
