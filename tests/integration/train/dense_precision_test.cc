// Tests products in bfloat16 through the program: training on ranks and threads, predictions, and processors without.
#include <nlohmann/json.hpp>

#include "small_job.h"
#include "tessera_program.h"

namespace tessera::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

// oneDNN then reports no bfloat16.
void hide_bf16() { setenv("DNNL_MAX_CPU_ISA", "AVX512_CORE", 1); }

class Bf16Program : public testing::Test {
 protected:
  Bf16Program() : config_(folder_.write("job.toml", small_job({.samples = 640, .test_samples = 64, .epochs = 1}))) {}

  Finished train(const std::string& precision, const Arguments& more = {},
                 const std::function<void()>& in_child = {}) const {
    return run_program(
        Arguments{tessera_path(), "train", "--config", config_, "--set", "job.dense_precision=\"" + precision + "\"",
                  "--set", "report.json=\"" + report() + '"', "--set", "model.top_mlp=[64, 64, 1]"} +
            more,
        60, in_child);
  }
  std::string report() const { return folder_.file("report.json"); }
  nlohmann::json reported() const { return nlohmann::json::parse(contents(report())); }
  bool bf16() const { return train("bfloat16").status == 0; }

  TestDirectory folder_;
  std::string config_;
};

TEST_F(Bf16Program, LossesAreEqualOnThreadsAndNearlyOnRanks) {
  if (!bf16()) GTEST_SKIP() << "this processor has no products in bfloat16";
  succeed(train("bfloat16"));
  const auto losses = reported().at("losses");
  succeed(train("bfloat16", {"--set", "job.threads=3"}));
  EXPECT_EQ(reported().at("losses"), losses);
  succeed(train("bfloat16", {"--nproc", "2"}));
  const auto over_ranks = reported().at("losses");
  ASSERT_EQ(over_ranks.size(), losses.size());
  // Sums over ranks differ in the last bit, until a value is rounded the other way.
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(over_ranks[i], losses[i].get<double>(), i < 3 ? 1e-6 : 1e-2) << i;
}

TEST_F(Bf16Program, AProcessorWithoutIsNamed) {
  const Finished refused = train("bfloat16", {}, hide_bf16);
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(one_line(refused.output), HasSubstr("needs AMX or AVX512-BF16"));
  const Finished fell_back = train("auto", {"--nproc", "2"}, hide_bf16);
  succeed(fell_back);
  EXPECT_THAT(one_line(fell_back.output), HasSubstr("dense products are in float32: rank 0:"));
  EXPECT_EQ(reported().at("dense_precision"), "float32");
  EXPECT_THAT(reported().at("why_float32").get<std::string>(), HasSubstr("AVX512-BF16"));
}

TEST_F(Bf16Program, PredictionsRoundIfAskedTo) {
  const bool has = bf16();
  const std::string saved = folder_.file("saved"), model = folder_.file("model");
  succeed(train("float32", {"--save", saved}));
  succeed({"quantize", "--load", saved, "--save", model});
  const auto predict = [&](const std::string& precision, const std::function<void()>& in_child = {}) {
    return run_program({tessera_path(), "predict", "--model", model, "--config", config_, "--part", "test",
                        "--dense-precision", precision},
                       60, in_child);
  };
  const std::string exact = succeed(predict("float32"));
  const Finished refused = predict("bfloat16", hide_bf16);
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(one_line(refused.output), HasSubstr("needs AMX or AVX512-BF16"));
  EXPECT_THAT(one_line(predict("auto", hide_bf16).output), HasSubstr("dense products are in float32:"));
  EXPECT_NE(predict("fp8").status, 0);
  const Finished served = run_program(
      {tessera_path(), "serve", "--model", model, "--port", "0", "--dense-precision", "bfloat16"}, 30, hide_bf16);
  EXPECT_NE(served.status, 0);
  EXPECT_THAT(one_line(served.output), HasSubstr("needs AMX or AVX512-BF16"));
  if (!has) GTEST_SKIP() << "this processor has no products in bfloat16";
  const std::string rounded = succeed(predict("bfloat16"));
  EXPECT_THAT(rounded, Not(exact));
  EXPECT_THAT(succeed(predict("auto")), AnyOf(rounded, HasSubstr("times as fast as in float32")));
}

class Int8Program : public Bf16Program {};

TEST_F(Int8Program, PacksAndPredictsInInt8) {
  const std::string saved = folder_.file("saved"), floats = folder_.file("floats"), model = folder_.file("model");
  succeed(train("float32", {"--save", saved}));
  succeed({"quantize", "--load", saved, "--save", floats});
  EXPECT_THAT(one_line(succeed({"quantize", "--load", saved, "--save", model, "--config", config_, "--dense", "int8",
                                "--set", "model.top_mlp=[64, 64, 1]"})),
              testing::AllOf(HasSubstr(" int8 "), HasSubstr("others"), HasSubstr("layers that stay in float32: "),
                             HasSubstr("test: AUC ")));
  const auto predict = [&](const std::string& from, const Arguments& more) {
    return run_program(
        Arguments{tessera_path(), "predict", "--model", from, "--config", config_, "--part", "test"} + more, 60);
  };
  const std::string rounded = succeed(predict(model, {}));
  EXPECT_THAT(rounded, Not(succeed(predict(floats, {}))));
  EXPECT_EQ(succeed(predict(model, {"--batch", "7", "--threads", "2"})), rounded);
  const Finished other = predict(model, {"--dense-precision", "bfloat16"});
  EXPECT_NE(other.status, 0);
  EXPECT_THAT(one_line(other.output), HasSubstr("are in int8; leave it out"));
  EXPECT_THAT(one_line(predict(floats, {"--dense-precision", "int8"}).output),
              HasSubstr("pack it with tessera quantize --dense int8"));
  EXPECT_THAT(one_line(succeed({"model", "inspect", model})), HasSubstr("dense layers are in int8"));
}

TEST_F(Int8Program, DoesNotTrain) {
  const Finished refused = train("int8");
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(one_line(refused.output), HasSubstr("must be one of float32, bfloat16, auto"));
  const Finished word = run_program({tessera_path(), "quantize", "--load", "a", "--save", "b", "--dense", "int4"}, 30);
  EXPECT_EQ(word.status, 2);
  EXPECT_THAT(one_line(word.output), HasSubstr("--dense takes fp32 or int8, not \"int4\""));
}

}  // namespace
}  // namespace tessera::test
