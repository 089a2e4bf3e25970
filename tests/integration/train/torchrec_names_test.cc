// Presets with TorchRec's names: a new run starts with a TorchRec model's whole state dict, and the packed model has it
// as well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "inference/test_model.h"
#include "tessera_program.h"

namespace tessera::test::torchrec_names_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const std::string kPresets = std::string(TESSERA_SOURCE_DIR) + "/configs/models/";
constexpr int64_t kRowsOf[] = {90, 70, 50, 30, 20, 10};
constexpr int64_t kPooled = 112;  // six tables and the dense values, 16 columns each
const std::vector<std::string> kSmall = {"--set", "data.rows=[90, 70, 50, 30, 20, 10]",
                                         "--set", "data.samples=512",
                                         "--set", "data.test_samples=200",
                                         "--set", "job.threads=1"};

NamedTensors with_tables(const std::string& before) {
  NamedTensors out;
  for (uint32_t t = 0; t < 6; ++t)
    out.add(str_cat(before, "sparse_arch.embedding_bag_collection.embedding_bags.c", t, ".weight"), {kRowsOf[t], 16},
            t);
  return out;
}

// Tensors of DLRM and DLRM_DCN; `width` is that of the interaction.
NamedTensors dlrm_of(const std::string& before, int64_t width) {
  NamedTensors out = with_tables(before);
  out.add_linear(before + "dense_arch.model._mlp.0._linear", 64, 8, 10);
  out.add_linear(before + "dense_arch.model._mlp.1._linear", 16, 64, 12);
  out.add_linear(before + "over_arch.model.0._mlp.0._linear", 64, width, 14);
  out.add_linear(before + "over_arch.model.0._mlp.1._linear", 32, 64, 16);
  out.add_linear(before + "over_arch.model.1", 1, 32, 18);
  return out;
}

NamedTensors dlrm_dcn_of(const std::string& before) {
  NamedTensors out = dlrm_of(before, kPooled);
  for (uint32_t k = 0; k < 3; ++k) {
    const std::string net = before + "inter_arch.crossnet.";
    out.add(str_cat(net, "V_kernels.", k), {16, kPooled}, 20 + k, 0.1f);
    out.add(str_cat(net, "W_kernels.", k), {kPooled, 16}, 30 + k, 0.1f);
    out.add(str_cat(net, "bias.", k), {kPooled}, 40 + k, 0.1f);
  }
  return out;
}

NamedTensors simple_deepfm_of(const std::string& before) {
  NamedTensors out = with_tables(before);
  out.add_linear(before + "dense_arch.model.0", 64, 8, 10);
  out.add_linear(before + "dense_arch.model.2", 16, 64, 12);
  out.add_linear(before + "inter_arch.deep_fm.dense_module.0", 32, kPooled, 14);
  out.add_linear(before + "over_arch.model.0", 1, 16 + 32 + 1, 16);
  return out;
}

class TorchRecNames : public testing::Test {
 protected:
  Finished train(const std::string& preset, const Arguments& more) const {
    return run_tessera(Arguments{"train", "--config", kPresets + preset + ".toml", "--set", "report.json=" + report_} +
                       kSmall + more);
  }
  Finished quantize(const std::string& preset, const std::string& from) const {
    std::filesystem::remove_all(packed_);
    std::vector<std::string> args = {"quantize", "--load", from, "--save", packed_, "--weights", "fp32"};
    if (!preset.empty()) args.insert(args.end(), {"--config", kPresets + preset + ".toml"});
    if (!preset.empty()) args.insert(args.end(), kSmall.begin(), kSmall.end());
    return run_tessera(args);
  }
  double test(const char* metric) const { return json::parse(contents(report_)).at("test").at(metric).get<double>(); }
  static double packed_test(const std::string& metric, const Finished& packed) {
    const size_t at = packed.output.find(metric + " ");
    return at == std::string::npos ? -1 : std::stod(packed.output.substr(at + metric.size() + 1));
  }
  // The new run has all of them, and the packed model is the same.
  void expect_taken(const std::string& preset, const NamedTensors& tensors, int parameters) const {
    SCOPED_TRACE(preset);
    for (auto& [name, tensor] : tensors.tensors) {  // no probability becomes 0 or 1
      for (float& v : tensor.span<float>()) v *= 0.4f;
    }
    tensors.write(file_);
    const std::string begun = succeed(train(preset, {"--start", file_, "--max-steps", "0"}));
    EXPECT_THAT(begun, HasSubstr(str_cat("--start: begins with 6 of 6 tables and ", parameters, " of ", parameters,
                                         " parameters from ", file_)));
    EXPECT_THAT(begun, Not(HasSubstr("nothing here")));
    const Finished packed = quantize(preset, file_);
    ASSERT_EQ(packed.status, 0) << packed.output;
    EXPECT_NEAR(packed_test("logloss", packed), test("logloss"), 2e-6) << packed.output;
    EXPECT_NEAR(packed_test("AUC", packed), test("auc"), 2e-6) << packed.output;
  }

  TestDirectory folder_;
  const std::string report_ = folder_.file("report.json"), file_ = folder_.file("model.safetensors"),
                    packed_ = folder_.file("packed");
};

TEST_F(TorchRecNames, ArePresets) {
  expect_taken("dlrm", dlrm_of("", 16 + 21), 10);
  expect_taken("dlrm_dcn", dlrm_dcn_of("model."), 19);
  expect_taken("simple_deepfm", simple_deepfm_of(""), 8);
}

TEST_F(TorchRecNames, AreSavedAndGoneOnWith) {
  const std::string saved = folder_.file("saved");
  succeed(train("dlrm_dcn", {"--save", saved, "--max-steps", "1", "--nproc", "2"}));
  const double loss = test("logloss");
  succeed(quantize("", saved));
  const Finished with_config = quantize("dlrm_dcn", saved);
  EXPECT_EQ(with_config.status, 0) << with_config.output;
  EXPECT_NEAR(packed_test("logloss", with_config), loss, 2e-6);
  succeed(train("dlrm_dcn", {"--load", saved, "--max-steps", "2"}));
  EXPECT_EQ(json::parse(contents(report_)).at("first_step"), 1);
}

// A model of the same sizes that only [model] describes.
TEST_F(TorchRecNames, AreThoseOfADlrm) {
  std::string job = contents(kPresets + "dlrm.toml");
  const size_t layers = job.find("\n[[layer]]");
  job.replace(layers, job.find("\n[table_defaults]") - layers, "");
  const Arguments args = Arguments{"train", "--config", folder_.write("job.toml", job), "--save"} +
                         Arguments{folder_.file("saved"), "--set", "report.json=" + report_} + kSmall;
  succeed(args);
  const double loss = test("logloss");
  const std::string begun = succeed(train("dlrm", {"--start", folder_.file("saved"), "--max-steps", "0"}));
  EXPECT_THAT(begun, HasSubstr("begins with 6 of 6 tables and 10 of 10 parameters"));
  EXPECT_NEAR(test("logloss"), loss, 1e-6);
}

TEST_F(TorchRecNames, WhatIsMissingOrTooMuchIsRefused) {
  NamedTensors tensors = dlrm_dcn_of("");
  tensors.tensors.erase("inter_arch.crossnet.bias.2");
  tensors.write(file_);
  expect_refused(quantize("dlrm_dcn", file_), HasSubstr("the model has no parameter \"inter_arch.crossnet.bias.2\""));
  tensors = dlrm_dcn_of("");
  tensors.add("inter_arch.crossnet.bias.3", {kPooled}, 1);
  tensors.write(file_);
  expect_refused(quantize("dlrm_dcn", file_), HasSubstr("no layer of the config has \"inter_arch.crossnet.bias.3\""));
  EXPECT_FALSE(std::filesystem::exists(packed_));
  expect_refused(quantize("", file_), HasSubstr("another interaction than the dot products of a DLRM: give a config"));
}

}  // namespace
}  // namespace tessera::test::torchrec_names_test
