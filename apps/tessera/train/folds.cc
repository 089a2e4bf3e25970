#include "train/folds.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "command.h"
#include "tessera/train_loop.h"
#include "train/report_text.h"

namespace tessera::cli {
namespace {

// The validation that was the best, or the last one.
const TrainValidation& judged(const TrainResult& run) {
  const auto best =
      std::find_if(run.validations.rbegin(), run.validations.rend(), [](const TrainValidation& v) { return v.best; });
  return best == run.validations.rend() ? run.validations.back() : *best;
}

void print_spread(const std::vector<MetricValues>& folds) {
  for (size_t m = 0; m < folds[0].values.size(); ++m) {
    double sum = 0, squares = 0;
    for (const MetricValues& f : folds) sum += f.values[m].second;
    const double n = static_cast<double>(folds.size()), mean = sum / n;
    for (const MetricValues& f : folds) squares += (f.values[m].second - mean) * (f.values[m].second - mean);
    std::printf("%s: %.4f, standard deviation %.4f over %zu folds\n", folds[0].values[m].first.c_str(), mean,
                std::sqrt(squares / (n - 1)), folds.size());
  }
}

}  // namespace

void check_folds(const Config& config, const TrainJobOptions& options, const char* report) {
  if (config.validation.folds == 0) return;
  if (config.validation.fraction != 0)
    throw UsageError("validation.fraction has no effect: each of validation.folds is held out in its turn");
  if (config.validation.split != "random")
    throw UsageError("validation.split = \"" + config.validation.split +
                     "\", but validation.folds are random rows: leave it out");
  const auto refuse = [](bool given, const char* what) {
    if (given)
      throw UsageError(str_cat("validation.folds trains a model for each fold, only to judge the job, so ", what,
                               " has no meaning: leave it out, or set validation.folds=0"));
  };
  refuse(!options.save.empty(), "--save");
  refuse(!options.load.empty(), "--load");
  refuse(!options.save_best.empty(), "--save-best");
  refuse(!options.trace.empty(), "--trace");
  refuse(!config.publish.directory.empty(), "publish.directory");
  refuse(!config.report.json.empty(), "report.json");
  refuse(!config.report.metrics.empty(), "report.metrics");
  refuse(!config.report.tensorboard.empty(), "report.tensorboard");
  refuse(config.validation.restore_best, "validation.restore_best");
  refuse(report != nullptr, report);
}

int train_folds(const Runtime& runtime, Config config, TrainJobOptions options, std::shared_ptr<ProcessGroup> group) {
  const bool first = group->rank() == 0;
  std::vector<MetricValues> folds;
  for (int64_t fold = 0; fold < config.validation.folds; ++fold) {
    config.validation.fold = fold;
    TrainJob job(runtime, config, options, group);
    const TrainResult& run = job.train({.stop = StopSignals::requested});
    if (run.stopped) return kStoppedBySignal;
    if (run.validations.empty()) fail(Code::kInvalidArgument, "there was no validation: set data.epochs to 1 or more");
    folds.push_back(judged(run).metrics);
    if (first)
      std::printf("fold %lld of %lld: %s\n", static_cast<long long>(fold + 1),
                  static_cast<long long>(config.validation.folds), metrics_text(folds.back(), 4).c_str());
    std::fflush(stdout);
  }
  if (first) print_spread(folds);
  group->barrier("end");
  return 0;
}

}  // namespace tessera::cli
