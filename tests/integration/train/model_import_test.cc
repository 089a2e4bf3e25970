// `tessera model import` makes a job of an ONNX file that `tessera model export` has written, and refuses other files.
// scripts/dev/test_onnx compares files of many operators with onnxruntime.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "checkpoint/safetensors.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::model_import_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Arguments kShort = {"--set", "data.samples=256", "--set", "data.test_samples=64"};

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class ModelImport : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path program = tessera_path();
    if (!std::filesystem::exists(program.parent_path() / "tessera-onnx"))
      GTEST_SKIP() << "this build has no tessera-onnx, which libonnx-dev is needed for";
  }
  std::string file(const std::string& name) const { return folder_.file(name); }
  // A checkpoint of one epoch of a preset, and its dense part as an ONNX file.
  void train_and_export(const std::string& preset, const Arguments& more) {
    folder_.write(preset + ".toml", succeed({"model", "new", preset}));
    succeed(Arguments{"train", "--config", file(preset + ".toml"), "--save", file(preset)} + kShort);
    succeed(Arguments{"model", "export", file(preset), "--onnx", file(preset + ".onnx")} + more);
  }
  // Probabilities of the test part of the preset's data.
  std::vector<double> predictions(const std::string& preset, const std::string& model) const {
    std::istringstream lines(
        succeed(Arguments{"predict", "--model", model, "--config", file(preset + ".toml"), "--part", "test"} + kShort));
    std::vector<double> out;
    for (std::string line; std::getline(lines, line);) {
      const std::string last = line.substr(line.rfind(',') + 1);
      char* end = nullptr;
      const double value = std::strtod(last.c_str(), &end);
      if (end != last.c_str()) out.push_back(value);
    }
    return out;
  }

  TestFolder folder_;
};

// A file of the tensors of two files.
void join(const std::string& a, const std::string& b, const std::string& to) {
  const checkpoint::SafetensorsReader first(checkpoint::InputFile{a}), second(checkpoint::InputFile{b});
  checkpoint::StoredTensors all = first.tensors();
  for (const auto& [name, tensor] : second.tensors()) all[name] = tensor;
  checkpoint::SafetensorsWriter writer(to, all);
  for (const auto& [name, tensor] : all) writer.write(name, (second.find(name) ? second : first).read(name));
}

class RoundTrip : public ModelImport, public testing::WithParamInterface<const char*> {};

TEST_P(RoundTrip, AnExportedModelPredictsTheSame) {
  const std::string preset = GetParam(), job = file("job");
  train_and_export(preset, {"--tables", "input"});
  const std::string said = succeed({"model", "import", "--onnx", file(preset + ".onnx"), "--save", job});
  EXPECT_THAT(said, AllOf(HasSubstr("c0 (table c0, 16 values)"), HasSubstr("heads: click (binary_cross_entropy)")));
  // The job trains as it is, from the file's weights.
  const Arguments train = {"train", "--config", job + "/job.toml", "--start"};
  EXPECT_THAT(succeed(train + Arguments{job + "/dense.safetensors"} + kShort),
              HasSubstr("--start: begins with 0 of 6"));
  // With the tables that the file left out it is the model that was exported.
  join(file(preset) + "/save-1/model.safetensors", job + "/dense.safetensors", file("all.safetensors"));
  succeed(train +
          Arguments{file("all.safetensors"), "--save", file("same"), "--max-steps", "0", "--set",
                    "data.rows=[20000, 5000, 1000, 300, 50, 10]"} +
          kShort);
  const std::vector<double> before = predictions(preset, file(preset)), after = predictions(preset, file("same"));
  ASSERT_EQ(before.size(), 64U);
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-5) << i;
  EXPECT_GT(*std::max_element(before.begin(), before.end()), *std::min_element(before.begin(), before.end()) + 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Presets, RoundTrip, testing::Values("dcn_v2", "deepfm", "dlrm", "masknet", "mmoe"),
                         [](const auto& preset) { return std::string(preset.param); });

TEST_F(ModelImport, RefusesWhatAJobCannotHave) {
  const auto refused = [&](const std::string& onnx, const Arguments& more, const std::string& sentence) {
    expect_refused(Arguments{"model", "import", "--onnx", onnx, "--save", file("no")} + more, HasSubstr(sentence));
    EXPECT_FALSE(std::filesystem::exists(file("no"))) << sentence;
  };
  train_and_export("esmm", {"--tables", "input"});
  refused(file("esmm.onnx"), {}, "of node \"Exp_31\" (inputs \"Neg_30\") has no counterpart");
  refused(file("esmm.onnx"), {"--dense", "numbers"}, "--dense numbers: the file has no such input");
  succeed({"model", "export", file("esmm"), "--onnx", file("tables.onnx")});
  refused(file("tables.onnx"), {}, "the input \"c0\" must be float32 and is INT64, which the operator ");
  train_and_export("din", {"--tables", "input"});
  refused(file("din.onnx"), {}, "must be [batch, width] and is [batch, ");
  refused(folder_.write("text.onnx", "no protobuf"), {}, "text.onnx is no ONNX file");
  refused(file("none.onnx"), {}, "cannot open " + file("none.onnx") + ": No such file or directory");
  expect_refused({"model", "import", "--onnx", file("esmm.onnx")}, HasSubstr("import --onnx FILE --save DIR"));
  train_and_export("wide_and_deep", {"--tables", "input"});
  expect_refused({"model", "import", "--onnx", file("wide_and_deep.onnx"), "--save", file("esmm")},
                 HasSubstr("esmm exists: --save takes a new directory"));
}

}  // namespace
}  // namespace tessera::test::model_import_test
