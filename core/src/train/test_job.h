// A job on one rank in the test's process, and a folder that is removed with the test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/test_directory.h"
#include "tessera/train_job.h"
#include "train/test_trainer.h"

namespace tessera::test {

// A job with the layers `deep`, `all` and `top`.
inline const char* const kMlpJob = R"(
job = {seed = 3, kernel_plugin = "reference"}
model = {embedding_dim = 16}
layer = [
  {name = "deep", type = "mlp", inputs = ["dense", "pooled"], options = {widths = [64, 32]}},
  {name = "all", type = "concat", inputs = ["deep", "pooled"]},
  {name = "top", type = "linear", inputs = ["all"]}]
head = [
  {name = "click", input = "top"}]
dense_optimizer = {name = "adam", learning_rate = 0.01}
data = {reader = "synthetic", columns = 2, rows = [50, 20], dense = 3, samples = 200, test_samples = 40, batch = 20}
)";

class JobTest : public testing::Test {
 protected:
  // `kernels`: compute kernels without which the test is skipped.
  explicit JobTest(const char* text, std::vector<const char*> kernels = {})
      : text_(text), kernels_(std::move(kernels)) {}
  void SetUp() override {
    if (!runtime().has(TSR_MODULE_KIND, "mlp")) GTEST_SKIP() << "no dense layers are built here";
    for (const char* kernel : kernels_) {
      if (!runtime().has(TSR_KERNEL_KIND, kernel)) GTEST_SKIP() << "no kernel " << kernel << " is built here";
    }
  }

  std::string file(const std::string& name) const { return directory_.file(name); }
  std::unique_ptr<TrainJob> job(const TrainJobOptions& options, const std::vector<std::string>& set = {}) const {
    return std::make_unique<TrainJob>(runtime(), parse_config(text_, "job.toml", set), options,
                                      ProcessGroup::connect(runtime(), {}));
  }
  std::unique_ptr<TrainJob> trained(const TrainJobOptions& options, const std::vector<std::string>& set = {}) const {
    auto out = job(options, set);
    out->train({});
    return out;
  }
  static std::vector<double> losses_of(TrainJob& job) { return job.report(job.evaluate()).losses; }

 private:
  const char* text_;
  std::vector<const char*> kernels_;
  const TestDirectory directory_;
};

}  // namespace tessera::test
