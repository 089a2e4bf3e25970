// A predictor in this process: any number of threads, with one workspace each.
#include <atomic>
#include <memory>
#include <utility>

#include "inference/counts.h"
#include "inference/input_check.h"
#include "inference/int8_dense.h"
#include "inference/mapped_file.h"
#include "inference/pool.h"
#include "inference/workspace.h"
#include "tessera/predictor.h"

namespace tessera {
namespace inference {
namespace {

class LocalPredictor : public Predictor {
 public:
  LocalPredictor(const Runtime& runtime, InferenceModel model, const PredictorOptions& options,
                 std::shared_ptr<PredictorCounts> counts)
      : runtime_(runtime),
        model_(served(std::move(model))),
        precision_(prediction_precision(runtime_, model_, options.dense_precision)),
        table_features_(table_features_of(model_, options.kernel)),
        counts_(std::move(counts)),
        workspaces_(
            [this] { return std::make_unique<Workspace>(runtime_, model_, table_features_, precision_.type); }) {
    TESSERA_CHECK(counts_->bad_ids.size() == model_.tables.size(), "a count for each table");
    model_.description.dense_precision = precision_.type;
    model_.description.why_float32 = precision_.why;
    model_.description.outputs = workspaces_.take()->outputs();  // fails here if it cannot be served
  }

  const ModelDescription& model() const override { return model_.description; }
  std::string why_not(const PredictInput& input) const override { return problem_with(model(), input).sentence; }

  void predict_outputs(const PredictInput& input, std::span<const std::span<float>> outputs) override {
    const Problem problem = problem_with(model(), input);
    if (problem.code != Code::kOk) throw Error(problem.code, problem.sentence);
    if (input.batch > 0) {
      const auto workspace = workspaces_.take();
      workspace->predict(input, outputs);
      if (!usable()) {
        fail(Code::kUnavailable, "a file of model ", model().name,
             " cannot be read any more: an I/O error, or it was made shorter; open the model again");
      }
      count_bad(workspace->bad_ids());
    }
    counts_->predictions.fetch_add(1, std::memory_order_relaxed);
    counts_->samples.fetch_add(static_cast<uint64_t>(input.batch), std::memory_order_relaxed);
  }

  bool usable() const override { return lost_pages() == lost_before_; }
  PredictorStats stats() const override { return totals(*counts_); }

 private:
  static InferenceModel served(InferenceModel model) {
    keep_served_heads(model);
    return model;
  }
  void count_bad(std::span<const uint64_t> bad) {
    for (size_t t = 0; t < bad.size(); ++t) {
      if (bad[t] == 0) continue;
      counts_->bad_ids[t].fetch_add(bad[t], std::memory_order_relaxed);
      if (model().bounds_check == BoundsCheckMode::kWarning && !warned_.exchange(true)) warn(t);
    }
  }
  void warn(size_t table) {
    const tsr_host* host = runtime_.host();
    host->log(host, TSR_LOG_WARNING,
              str_cat("table \"", model().tables[table].name,
                      "\": ids out of range were left out of a prediction; further ones are only counted")
                  .c_str());
  }

  const Runtime& runtime_;
  const uint64_t lost_before_ = lost_pages();
  InferenceModel model_;  // constant after the constructor
  const DensePrecision precision_;
  const TableFeatures table_features_;
  const std::shared_ptr<PredictorCounts> counts_;
  std::atomic<bool> warned_{false};
  Pool<Workspace> workspaces_;
};

}  // namespace

PredictorStats totals(const PredictorCounts& counts) {
  PredictorStats out{
      counts.predictions.load(std::memory_order_relaxed), counts.samples.load(std::memory_order_relaxed), {}};
  for (const auto& bad : counts.bad_ids) out.bad_ids.push_back(bad.load(std::memory_order_relaxed));
  return out;
}

std::unique_ptr<Predictor> make_predictor(const Runtime& runtime, InferenceModel model, const PredictorOptions& options,
                                          std::shared_ptr<PredictorCounts> counts) {
  return std::make_unique<LocalPredictor>(runtime, std::move(model), options, std::move(counts));
}

}  // namespace inference

std::unique_ptr<Predictor> make_predictor(const Runtime& runtime, InferenceModel model,
                                          const PredictorOptions& options) {
  auto counts = std::make_shared<inference::PredictorCounts>(model.tables.size());
  return inference::make_predictor(runtime, std::move(model), options, std::move(counts));
}

std::unique_ptr<Predictor> open_predictor(const Runtime& runtime, const std::string& directory,
                                          const PredictorOptions& options) {
  return make_predictor(runtime, open_packed_model(directory), options);
}

}  // namespace tessera
