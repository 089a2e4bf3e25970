// Tests job.dense_precision, on one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"
#include "tessera/layer_graph.h"
#include "tessera/predictor.h"
#include "train/test_job.h"

namespace tessera {
namespace {

using test::runtime;
using testing::HasSubstr;

class DensePrecisionTest : public test::JobTest {
 protected:
  DensePrecisionTest() : JobTest(test::kMlpJob) {}
  void SetUp() override {
    JobTest::SetUp();
    if (IsSkipped()) return;
    try {
      trained({}, {"job.dense_precision=bfloat16"});
    } catch (const Error& e) {
      if (e.code() != Code::kUnavailable) throw;
      GTEST_SKIP() << "this processor has no products in bfloat16";
    }
  }
  std::vector<double> losses(const std::vector<std::string>& set) const { return losses_of(*trained({}, set)); }
};

TEST_F(DensePrecisionTest, RoundsInputsOfProductsAndNothingElse) {
  const std::vector<double> exact = losses({}), rounded = losses({"job.dense_precision=bfloat16"});
  EXPECT_EQ(losses({"job.dense_precision=float32"}), exact);
  EXPECT_NE(rounded, exact);
  ASSERT_EQ(rounded.size(), exact.size());
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rounded[i], exact[i], 1e-2 * exact[i]) << i;
}

TEST_F(DensePrecisionTest, AutoTakesBfloat16IfItIsFaster) {
  const auto job = trained({}, {"job.dense_precision=auto"});
  const RunReport report = job->report(job->evaluate());
  EXPECT_EQ(losses_of(*job), losses({"job.dense_precision=" + report.dense_precision}));
  if (report.dense_precision == "bfloat16")
    EXPECT_EQ(report.why_float32, "");
  else
    EXPECT_THAT(report.why_float32, HasSubstr("times as fast as in float32 on this processor"));
}

TEST_F(DensePrecisionTest, ALayersOwnOptionWins) {
  // `top` has one output, which is too narrow to be rounded.
  EXPECT_EQ(
      losses({"job.dense_precision=bfloat16", R"(layer.deep.options={widths = [64, 32], precision = "float32"})"}),
      losses({}));
  EXPECT_EQ(losses({R"(layer.deep.options={widths = [64, 32], precision = "bfloat16"})"}),
            losses({"job.dense_precision=bfloat16"}));
}

TEST_F(DensePrecisionTest, TheReportSaysIt) {
  const auto job = trained({}, {"job.dense_precision=bfloat16"});
  const RunReport report = job->report(job->evaluate());
  EXPECT_EQ(report.dense_precision, "bfloat16");
  EXPECT_EQ(report.why_float32, "");
}

ModelGraph graph_of(const std::string& layer) {
  ModelGraph graph;
  graph.dense_width = 8, graph.pooled_width = 8;
  graph.inputs = {{"dense", GraphInput::kDense, 0, 8}, {"pooled", GraphInput::kPooled, 0, 8}};
  graph.layers = {{"top", layer, {"dense", "pooled"}}};
  graph.heads = {{"click", "top"}};
  return graph;
}

TEST_F(DensePrecisionTest, AModelWithoutProductsHasNone) {
  const DensePrecision chosen = choose_precision(runtime(), graph_of("sum"), "auto", nullptr);
  EXPECT_EQ(chosen.type, "float32");
  EXPECT_THAT(chosen.why, HasSubstr("no layer of the model has products in bfloat16"));
  const auto refused = [](const ModelGraph& graph, const char* wanted) -> std::string {
    return test::refusal([&] { (void)choose_precision(runtime(), graph, wanted, nullptr); }, "nothing was refused");
  };
  EXPECT_THAT(refused(graph_of("sum"), "bfloat16"), HasSubstr("no layer of the model has products in bfloat16"));
  EXPECT_THAT(refused(graph_of("linear"), "half"), HasSubstr("but must be float32, bfloat16 or auto"));
}

}  // namespace
}  // namespace tessera
