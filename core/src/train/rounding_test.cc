// Tests tables with rounding = "stochastic", on one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"
#include "train/test_job.h"

namespace tessera {
namespace {

using testing::HasSubstr;

const char* const kRoundedJob = R"(
job = {seed = 3}
model = {embedding_dim = 8, bottom_mlp = [8], top_mlp = [1]}
dense_optimizer = {name = "sgd", learning_rate = 0.0}
table_defaults = {data_type = "bfloat16", init_range = 1.0, optimizer = {name = "exact_sgd", learning_rate = 0.02}}
data = {reader = "synthetic", columns = 2, rows = [5, 5], dense = 3, samples = 4000, test_samples = 400, batch = 20}
)";

class RoundingTest : public test::JobTest {
 protected:
  RoundingTest() : JobTest(kRoundedJob, {"cpu"}) {}
  std::vector<double> losses(const std::string& kernel, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> set = {"job.kernel_plugin=" + kernel};
    set.insert(set.end(), more.begin(), more.end());
    return losses_of(*trained({}, set));
  }
  std::string refused(const std::vector<std::string>& set) const {
    return test::refusal([&] { (void)losses("cpu", set); }, "nothing was refused");
  }
};

double mean_of_last(const std::vector<double>& losses) {
  double sum = 0;
  for (size_t i = losses.size() / 2; i < losses.size(); ++i) sum += losses[i];
  return sum / static_cast<double>(losses.size() - losses.size() / 2);
}

const std::string kStochastic = "table_defaults.rounding=stochastic";

TEST_F(RoundingTest, SmallUpdatesAreNotLost) {
  for (const char* type : {"bfloat16", "float16"}) {
    const std::string narrow = std::string("table_defaults.data_type=") + type;
    const double exact = mean_of_last(losses("cpu", {"table_defaults.data_type=float32"}));
    const double nearest = mean_of_last(losses("cpu", {narrow}));
    const double stochastic = mean_of_last(losses("cpu", {narrow, kStochastic}));
    EXPECT_LT(std::abs(stochastic - exact), std::abs(nearest - exact) + 1e-4) << type;
    if (narrow.ends_with("bfloat16")) {
      EXPECT_LT(std::abs(stochastic - exact), 0.5 * std::abs(nearest - exact)) << type;
    }
  }
}

TEST_F(RoundingTest, RepeatsUnderEveryKernelAndNumberOfThreads) {
  const std::vector<double> once = losses("cpu", {kStochastic});
  EXPECT_EQ(losses("cpu", {kStochastic}), once);
  EXPECT_EQ(losses("cpu", {"table_defaults.compute_kernel=fused?rounding=stochastic"}), once);
  EXPECT_NE(losses("cpu"), once);
  const std::vector<double> reference = losses("reference", {kStochastic});
  ASSERT_EQ(reference.size(), once.size());
  for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(reference[i], once[i], 1e-2 * once[i]) << i;
}

TEST_F(RoundingTest, WhatCannotBeIsRefused) {
  EXPECT_THAT(refused({kStochastic, "table_defaults.data_type=float32"}),
              HasSubstr("rounding = \"stochastic\" is for rows of 16 bits"));
  EXPECT_THAT(refused({kStochastic, "table_defaults.compute_kernel=dense"}), HasSubstr("names others"));
  EXPECT_THAT(refused({"table_defaults.compute_kernel=fused?rounding=up"}), HasSubstr("must be nearest or stochastic"));
}

}  // namespace
}  // namespace tessera
