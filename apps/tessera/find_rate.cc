#include "find_rate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "command.h"
#include "tessera/train_job.h"

namespace tessera::cli {
namespace {

constexpr double kLeast = 1e-3, kMost = 1e3;  // factors of the config's rates
constexpr double kSmooth = 0.9;               // of the losses
constexpr double kWorse = 3;                  // the run ends if the loss is this many times its least
constexpr size_t kLines = 20;

double rate_of_tables(const Config& config) {
  const auto options = nlohmann::json::parse(config.table_defaults.optimizer.options);
  return options.value("learning_rate", 0.0);
}

void print_curve(const std::vector<RateLoss>& curve, const char* what) {
  std::printf("%14s  loss\n", what);
  const size_t every = std::max<size_t>(1, (curve.size() + kLines - 1) / kLines);
  for (size_t i = every - 1; i < curve.size(); i += every) std::printf("%14.3g  %.5f\n", curve[i].rate, curve[i].loss);
}

// The factor of the rates that rise. Those of the other kind keep factor 1.
double rising_factor(const TrainProgress& p, const std::string& of) {
  return of == "dense" ? p.dense_rate : p.table_rate;
}

// Fails if the suggestion would not reach all that the run trains.
void require_shared_rates(const Config& config, const std::string& of) {
  const auto refuse = [&](const char* what, const std::string& name, const char* why) {
    throw UsageError(str_cat("--find-rate ", of, ": the ", what, " \"", name, "\" ", why,
                             ", so a rate for all would not be its own: leave that out while you look for a rate"));
  };
  if (of != "dense") {
    for (const TableConfig& t : config.tables) {
      if (!(t.optimizer == config.table_defaults.optimizer)) refuse("table", t.name, "has an optimizer of its own");
    }
  }
  if (of != "tables") {
    for (const LayerConfig& l : config.layers) {
      if (l.optimizer.json != PartOptions().json) refuse("layer", l.name, "has an optimizer of its own");
    }
  }
  const auto frozen = [](const auto& entries) {
    return !entries.empty() && std::none_of(entries.begin(), entries.end(), [](const auto& e) { return e.trainable; });
  };
  if ((of == "tables" && frozen(config.tables)) || (of == "dense" && frozen(config.layers)))
    throw UsageError(str_cat("--find-rate ", of, ": all of them have trainable = false, so no rate changes the loss"));
}

// The losses of a run over `steps` batches whose rates (`of`: tables, dense or all) rise from kLeast to kMost times
// those of the config. `rate` is the rate at factor 1.
std::vector<RateLoss> rising(const Config& config, const std::string& of, double rate, int64_t steps) {
  const Runtime runtime({config.plugins.path, config.plugins.require});
  auto group = ProcessGroup::connect(runtime, {});
  TrainJob job(runtime, config, {.max_steps = steps}, std::move(group));
  std::vector<RateLoss> out;
  double mean = 0, weight = 0, least = INFINITY;
  bool worse = false;
  TrainWatch watch;
  watch.due = [](int64_t) { return true; };
  watch.stop = [&] { return worse; };
  watch.report = [&](const TrainProgress& p) {
    mean = kSmooth * mean + (1 - kSmooth) * p.loss;
    weight = kSmooth * weight + (1 - kSmooth);
    out.push_back({rate * rising_factor(p, of), mean / weight});
    least = std::min(least, out.back().loss);
    worse = out.size() > 10 && std::isfinite(least) && out.back().loss > kWorse * std::abs(least);
  };
  try {
    job.train(watch);
  } catch (const Error& e) {
    if (e.code() != Code::kFailedPrecondition) throw;  // it has diverged
  }
  return out;
}

}  // namespace

std::optional<double> steepest(const std::vector<RateLoss>& curve) {
  if (curve.empty()) return std::nullopt;
  const auto least = std::min_element(curve.begin(), curve.end(),
                                      [](const RateLoss& a, const RateLoss& b) { return a.loss < b.loss; });
  const auto last = static_cast<size_t>(least - curve.begin());
  constexpr size_t kSpan = 5;  // batches over which a slope is taken
  std::optional<double> out;
  double fastest = 0;
  for (size_t i = kSpan; i <= last; ++i) {
    const RateLoss &a = curve[i - kSpan], &b = curve[i];
    const double slope = (b.loss - a.loss) / std::log(b.rate / a.rate);
    if (slope < fastest) fastest = slope, out = std::sqrt(a.rate * b.rate);
  }
  return out;
}

int find_rate(Config config, const std::string& of, int64_t steps) {
  if (of != "all" && of != "tables" && of != "dense")
    throw UsageError("--find-rate " + of + ": it takes all, tables or dense");
  if (steps < 30) throw UsageError("--find-rate needs 30 steps or more, to see the loss fall and rise");
  steps *= config.job.accumulate;  // an update is a step of the search
  if (config.data.epochs < 1) throw UsageError("--find-rate trains, but data.epochs is 0");
  require_shared_rates(config, of);
  const double dense = config.dense_optimizer.learning_rate, tables = rate_of_tables(config);
  if (of != "dense" && !(tables > 0))
    throw UsageError("--find-rate " + of + ": table_defaults.optimizer has no learning_rate above 0 to start from");
  if (of != "tables" && !(dense > 0))
    throw UsageError("--find-rate " + of + ": dense_optimizer.learning_rate must be above 0, to start from");
  char stage[80];
  std::snprintf(stage, sizeof(stage), "exponential?from=%g&gamma=%.12g", kLeast,
                std::pow(kMost / kLeast, 1 / static_cast<double>(steps)));
  config.schedule = {};
  if (of != "dense") config.schedule.tables = {stage};
  if (of != "tables") config.schedule.dense = {stage};
  config.validation = {};
  config.publish = {};
  config.report = {};
  config.metrics.training.clear();
  config.data.epochs = 1000000;
  const char* const what = of == "tables" ? "tables' rate" : of == "dense" ? "dense rate" : "factor";
  const std::vector<RateLoss> curve = rising(config, of, of == "tables" ? tables : of == "dense" ? dense : 1, steps);
  print_curve(curve, what);
  const std::optional<double> rate = steepest(curve);
  if (!rate) {
    std::printf("no suggestion: the loss does not fall at any rate\n");
    return 1;
  }
  std::printf("the loss falls fastest at %.2g; try\n", *rate);
  if (of != "tables")
    std::printf("  --set dense_optimizer.learning_rate=%.2g\n", of == "dense" ? *rate : *rate * dense);
  if (of != "dense")
    std::printf("  --set table_defaults.optimizer.learning_rate=%.2g\n", of == "tables" ? *rate : *rate * tables);
  return 0;
}

}  // namespace tessera::cli
