// Checks metrics: sums that add up, values that are numbers and are the same on every rank.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "tessera/abi/draft/metric.h"
#include "verify/check.h"
#include "verify/other_processes.h"
#include "verify/threads.h"

namespace tessera::cli::verify {
namespace {

// Predictions that are mostly right, labels 0 and 1, and weights above 0.
struct Samples {
  Samples(Random& random, size_t count) {
    std::normal_distribution<double> normal(0, 1.5);
    for (size_t i = 0; i < count; ++i) {
      scores.push_back(normal(random));
      predictions.push_back(1 / (1 + std::exp(-scores.back())));
      labels.push_back(static_cast<double>(random() % 1000) < 1000 * predictions.back() ? 1 : 0);
      weights.push_back(0.5 + static_cast<double>(random() % 64) / 64);
    }
  }
  tsr_metric_samples range(size_t begin, size_t end) const {
    return {sizeof(tsr_metric_samples),
            0,
            static_cast<int64_t>(end - begin),
            scores.data() + begin,
            predictions.data() + begin,
            labels.data() + begin,
            weights.data() + begin};
  }
  tsr_metric_samples all() const { return range(0, scores.size()); }
  Samples shuffled(Random& random) const {
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    Samples out = *this;
    for (size_t i = 0; i < order.size(); ++i) {
      out.scores[i] = scores[order[i]];
      out.predictions[i] = predictions[order[i]];
      out.labels[i] = labels[order[i]];
      out.weights[i] = weights[order[i]];
    }
    return out;
  }
  std::vector<double> scores, predictions, labels, weights;
};

struct Metric {
  explicit Metric(Subject& s) : subject(s), part(s.make()), api(part.api<tsr_metric>()), info(asked()) {}
  tsr_metric_info asked() const {
    auto out = sdk::sized<tsr_metric_info>();
    subject.asks("info", [&](tsr_error* err) { return api.info(part.self(), &out, err); });
    require(out.sums >= 1 && out.sums <= 1 << 24, "info says ", out.sums, " sums");
    return out;
  }
  std::vector<double> zeros() const { return std::vector<double>(static_cast<size_t>(info.sums), 0.0); }
  void add(const tsr_metric_samples& samples, std::vector<double>& sums) const {
    constexpr double kBehind = -7.25e30;
    sums.push_back(kBehind);
    subject.asks(str_cat("add of ", samples.count, " samples"),
                 [&](tsr_error* err) { return api.add(part.self(), &samples, sums.data(), err); });
    require(sums.back() == kBehind, "add writes past its ", info.sums, " sums");
    sums.pop_back();
  }
  double value(const std::vector<double>& sums) const {
    std::vector<double> given(sums.begin(), sums.end());  // the plugin may write there
    double out = std::numeric_limits<double>::quiet_NaN();
    subject.asks("value", [&](tsr_error* err) { return api.value(part.self(), given.data(), &out, err); });
    require(given == sums, "value changes the sums");
    return out;
  }
  std::vector<double> sums_of(const tsr_metric_samples& samples) const {
    std::vector<double> sums = zeros();
    add(samples, sums);
    return sums;
  }
  Subject& subject;
  Made part;
  const tsr_metric& api;
  const tsr_metric_info info;
};

void require_near(const std::vector<double>& got, const std::vector<double>& want, const std::string& what) {
  double largest = 0;
  for (const double w : want) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < want.size(); ++i) {
    const bool near = std::abs(got[i] - want[i]) <= 1e-9 * std::max(largest, 1.0);
    require(near || (std::isnan(got[i]) && std::isnan(want[i])), "sum ", i, " is ", got[i], " ", what, ", not ",
            want[i]);
  }
}

void check_metric_info(Subject& subject) {
  const Metric metric(subject), other(subject);
  require(metric.info.pieces >= TSR_METRIC_ANY && metric.info.pieces <= TSR_METRIC_ALL, "info says pieces ",
          metric.info.pieces, ", which do not exist");
  require(metric.info.best >= TSR_METRIC_BEST_NONE && metric.info.best <= TSR_METRIC_BEST_ONE, "info says best ",
          metric.info.best, ", which does not exist");
  Random random = subject.random();
  const Samples samples(random, 10);
  for (int i = 0; i < 3; ++i) {
    for (const tsr_metric_info& again : {metric.asked(), other.asked()}) {
      require(again.pieces == metric.info.pieces && again.best == metric.info.best && again.sums == metric.info.sums,
              "info gives another answer when it is asked again");
    }
    metric.sums_of(samples.all());
  }
  tsr_metric_samples told = samples.all();
  told.flags = 1u << 31;
  std::vector<double> sums = metric.zeros();
  subject.doing("add");
  Call call;
  call.fails(metric.api.add(metric.part.self(), &told, sums.data(), call.out()),
             "add with an unknown flag that must be understood");
}

void check_metric_sums(Subject& subject) {
  const Metric metric(subject), other(subject);
  Random random = subject.random(1);
  for (const size_t count : {size_t{40}, size_t{1000}, size_t{70001}}) {
    const Samples samples(random, count);
    const std::vector<double> once = metric.sums_of(samples.all());
    const double value = metric.value(once);
    require(std::isfinite(value), "the value is ", value, " for ", count,
            " samples with labels 0 and 1 and with weights above 0");
    require(metric.value(once) == value, "value gives another number for the same sums");
    std::vector<double> twice = once;
    metric.add(samples.all(), twice);
    std::vector<double> doubled = once;
    for (double& x : doubled) x *= 2;
    require_near(twice, doubled, "after the same samples were added twice");
    require_near(other.sums_of(samples.all()), once, "in another object");
    require_near(metric.sums_of(samples.shuffled(random).all()), once, "when the samples come in another order");
    if (metric.info.pieces != TSR_METRIC_ANY) continue;
    std::vector<double> pieces = metric.zeros();
    for (size_t begin = 0; begin < count;) {
      const size_t end = std::min(count, begin + 1 + random() % (count / 3));
      metric.add(samples.range(begin, end), pieces);
      begin = end;
    }
    require_near(pieces, once, "when the samples come in pieces");
  }
}

void check_metric_ranks(Subject& subject) {
  const std::vector<double> values = ask_in_processes(4, [&] {
    const Metric metric(subject);
    Random random = subject.random(2);
    const Samples samples(random, 500);
    return metric.value(metric.sums_of(samples.all()));
  });
  for (size_t rank = 1; rank < values.size(); ++rank) {
    require(std::bit_cast<uint64_t>(values[rank]) == std::bit_cast<uint64_t>(values[0]),
            "the value of the same samples is ", values[0], " in a process with RANK=0 and ", values[rank],
            " in one with RANK=", rank);
  }
}

void check_metric_threads(Subject& subject) {
  const Metric metric(subject);
  Random random = subject.random(3);
  const Samples samples(random, 500);
  const std::vector<double> want = metric.sums_of(samples.all());
  subject.doing("add on four threads at once");
  on_four_threads([&](int) {
    for (int i = 0; i < 300; ++i) {
      std::vector<double> sums = metric.zeros();
      Call call;
      const tsr_metric_samples all = samples.all();
      call.succeeds(metric.api.add(metric.part.self(), &all, sums.data(), call.out()), "add");
      require(sums == want, "on several threads at once it gives other sums than alone");
    }
  });
}

}  // namespace

std::span<const Check> metric_checks() {
  static constexpr const char* kKind = TSR_METRIC_KIND;
  static constexpr const char* kAdd = "abi/draft/metric.h, tsr_metric::add";
  static constexpr const char* kSame = "abi/draft/metric.h, keeps nothing between calls";
  static constexpr Check kChecks[] = {
      {"metric.info", 3, kKind, "abi/draft/metric.h, tsr_metric_info", 20, check_metric_info},
      {"metric.sums", 4, kKind, kAdd, 60, check_metric_sums},
      {"metric.ranks", 4, kKind, kSame, 30, check_metric_ranks},
      {"metric.threads", 5, kKind, kSame, 60, check_metric_threads},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify
