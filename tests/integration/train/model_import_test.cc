// `tessera model import` makes a job of an ONNX file that `tessera model export` has written, and refuses other files.
// scripts/dev/test_onnx compares files of many operators with onnxruntime.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
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
  std::vector<double> predictions(const std::string& preset, const std::string& model, const Arguments& more) const {
    const Arguments predict = {"predict", "--model", model, "--config", file(preset + ".toml"), "--part", "test"};
    std::vector<double> out;
    for (const std::string& line : lines_of(succeed(predict + kShort + more))) {
      const std::string last = line.substr(line.rfind(',') + 1);
      char* end = nullptr;
      const double value = std::strtod(last.c_str(), &end);
      if (end != last.c_str()) out.push_back(value);
    }
    return out;
  }

  TestDirectory folder_;
};

// A file of the tensors of two files.
void join(const std::string& a, const std::string& b, const std::string& to) {
  const checkpoint::SafetensorsReader first(checkpoint::InputFile{a}), second(checkpoint::InputFile{b});
  checkpoint::StoredTensors all = first.tensors();
  for (const auto& [name, tensor] : second.tensors()) all[name] = tensor;
  checkpoint::SafetensorsWriter writer(to, all);
  for (const auto& [name, tensor] : all) writer.write(name, (second.find(name) ? second : first).read(name));
}

// Messages of protobuf, as ONNX files have them: a field of bytes, and one of a number below 128.
std::string field(int number, const std::string& bytes) {
  return str_cat(static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size()), bytes);
}
std::string field(int number, int value) { return str_cat(static_cast<char>(number << 3), static_cast<char>(value)); }

struct OnnxNode {
  std::string op;
  std::vector<std::string> inputs;
  std::string output;
};

// A graph from dense [batch, 2] to out [batch, 1], with the float32 tensors [2, columns] of these names and columns.
std::string onnx_file(const std::vector<OnnxNode>& nodes, const std::vector<std::pair<std::string, int>>& weights) {
  constexpr int kFloat = 1;
  std::string graph;
  for (const OnnxNode& n : nodes) {
    std::string node = field(2, n.output) + field(4, n.op);
    for (const std::string& input : n.inputs) node = field(1, input) + node;
    graph += field(1, node);
  }
  for (const auto& [name, columns] : weights) {
    const std::string ones(static_cast<size_t>(columns) * 2 * sizeof(float), '\x3d');
    graph += field(5, field(1, 2) + field(1, columns) + field(2, kFloat) + field(8, name) + field(9, ones));
  }
  for (const auto& [number, name, width] : {std::tuple(11, "dense", 2), {12, "out", 1}}) {
    const std::string shape = field(1, field(2, std::string("batch"))) + field(1, field(1, width));
    graph += field(number, field(1, std::string(name)) + field(2, field(1, field(1, kFloat) + field(2, shape))));
  }
  // The graph has more than 127 bytes, so its length takes two.
  std::string model = field(1, 9) + field(8, field(2, 18));
  model += str_cat(static_cast<char>(7 << 3 | 2), static_cast<char>((graph.size() & 0x7f) | 0x80),
                   static_cast<char>(graph.size() >> 7), graph);
  return model;
}

TEST_F(ModelImport, NamesWeightsThatSeveralNodesTake) {
  const std::string tied = folder_.write("tied.onnx", onnx_file({{"MatMul", {"K", "dense"}, "x"},
                                                                 {"Relu", {"x"}, "y"},
                                                                 {"MatMul", {"K", "y"}, "h"},
                                                                 {"MatMul", {"A", "h"}, "z"},
                                                                 {"Sigmoid", {"z"}, "out"}},
                                                                {{"K", 2}, {"A", 1}}));
  const std::string said = succeed({"model", "import", "--onnx", tied, "--save", file("tied")});
  EXPECT_THAT(said, AllOf(HasSubstr("several nodes take the weight \"K\", and each of their layers has a"),
                          Not(HasSubstr("weight \"A\"")), HasSubstr("dense.safetensors")));
}

TEST_F(ModelImport, NamesNoWeightsIfThereAreNone) {
  const std::string tanh = folder_.write("tanh.onnx", onnx_file({{"Tanh", {"dense"}, "out"}}, {}));
  const std::string said = succeed({"model", "import", "--onnx", tanh, "--save", file("none")});
  EXPECT_THAT(said, Not(HasSubstr("--start")));
  EXPECT_FALSE(std::filesystem::exists(file("none/dense.safetensors")));
  EXPECT_THAT(contents(file("none/job.toml")), Not(HasSubstr("--start")));
  succeed(Arguments{"train", "--config", file("none/job.toml")} + kShort);
}

class RoundTrip : public ModelImport, public testing::WithParamInterface<const char*> {};

TEST_P(RoundTrip, AnExportedModelPredictsTheSame) {
  const std::string preset = GetParam(), job = file("job");
  // Its other head compares with the rest of a batch.
  const Arguments head = preset == "two_tower" ? Arguments{"--head", "click"} : Arguments{};
  train_and_export(preset, Arguments{"--tables", "input"} + head);
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
  const std::vector<double> before = predictions(preset, file(preset), head),
                            after = predictions(preset, file("same"), head);
  ASSERT_EQ(before.size(), 64U);
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-5) << i;
  EXPECT_GT(*std::max_element(before.begin(), before.end()), *std::min_element(before.begin(), before.end()) + 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Presets, RoundTrip,
                         testing::Values("autoint", "dcn_v2", "dcn_v2_stacked", "deepfm", "dlrm", "dlrm_dcn", "esmm",
                                         "fibinet", "final_mlp", "masknet", "mmoe", "pepnet", "ple", "simple_deepfm",
                                         "two_tower", "wide_and_deep", "xdeepfm"),
                         [](const auto& preset) { return std::string(preset.param); });

TEST_F(ModelImport, RefusesWhatAJobCannotHave) {
  const auto refused = [&](const std::string& onnx, const Arguments& more, const std::string& sentence) {
    expect_refused(Arguments{"model", "import", "--onnx", onnx, "--save", file("no")} + more, HasSubstr(sentence));
    EXPECT_FALSE(std::filesystem::exists(file("no"))) << sentence;
  };
  train_and_export("autodis", {"--tables", "input"});
  refused(file("autodis.onnx"), {}, "the operator Mul of node \"Mul_4\" (inputs \"Reshape_3\", \"Reshape_1\")");
  refused(file("autodis.onnx"), {"--dense", "numbers"}, "--dense numbers: the file has no such input");
  succeed({"model", "export", file("autodis"), "--onnx", file("tables.onnx")});
  refused(file("tables.onnx"), {}, "the input \"c0\" must be float32 and is INT64, which the operator ");
  train_and_export("din", {"--tables", "input"});
  refused(file("din.onnx"), {}, "the input \"item.c1.lengths\" must be float32 and is INT64, which the operator ");
  refused(folder_.write("text.onnx", "no protobuf"), {}, "text.onnx is no ONNX file");
  refused(file("none.onnx"), {}, "cannot open " + file("none.onnx") + ": No such file or directory");
  expect_refused({"model", "import", "--onnx", file("autodis.onnx")}, HasSubstr("import --onnx FILE --save DIR"));
  train_and_export("wide_and_deep", {"--tables", "input"});
  expect_refused({"model", "import", "--onnx", file("wide_and_deep.onnx"), "--save", file("autodis")},
                 HasSubstr("autodis exists: --save takes a new directory"));
}

}  // namespace
}  // namespace tessera::test::model_import_test
