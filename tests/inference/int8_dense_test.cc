// Tests packed models whose dense layers are in int8.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inference/packed_model.h"
#include "inference/test_model.h"
#include "tessera/config.h"
#include "tessera/predictor.h"

namespace tessera::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Int8Model : public testing::Test {
 protected:
  // The small model with wider layers, of which those with at least 32 rows and columns round.
  InferenceModel floats() {
    NamedTensors t = small_tensors();
    t.add_linear("dense_arch.model._mlp.0._linear", 64, kTestDense, 100);
    t.add_linear("dense_arch.model._mlp.1._linear", 40, 64, 102);
    t.add_linear("dense_arch.model._mlp.2._linear", kTestDim, 40, 108);
    t.add_linear("over_arch.model.0._mlp.0._linear", 72, kTestDim + 15, 104);
    t.add_linear("over_arch.model.0._mlp.1._linear", 50, 72, 110);
    t.add_linear("over_arch.model.1", 1, 50, 106);
    const std::string path = folder_.file("wide.safetensors");
    t.write(path);
    return open_float_model(path, {.tables = small_tables()}).model;
  }
  InferenceModel rounded(std::vector<DenseReport>* reports = nullptr) {
    InferenceModel model = floats();
    const auto all = round_dense_to_int8(runtime_, model);
    if (reports != nullptr) *reports = all;
    return model;
  }
  std::string packed() {
    pack_model(rounded(), folder_.file("model"), {.format = RowFormat::kFloat32});
    return folder_.file("model");
  }
  std::vector<float> scores(const Runtime& runtime, const std::string& model, int64_t batch) {
    const auto predictor = open_predictor(runtime, model);
    OwnInput input(predictor->model(), batch, 7);
    return scores_of(*predictor, input.view());
  }
  Runtime runtime_;
  ModelFolder folder_;
};

TEST_F(Int8Model, ReportsWhatRoundingLoses) {
  std::vector<DenseReport> reports;
  const InferenceModel before = floats(), after = rounded(&reports);
  EXPECT_THAT(after.int8_weights,
              ElementsAre("dense_arch.model._mlp.1._linear.weight", "over_arch.model.0._mlp.1._linear.weight"));
  ASSERT_EQ(reports.size(), 2u);
  for (const DenseReport& r : reports) {
    EXPECT_TRUE(r.int8);
    EXPECT_GT(r.worst_error, r.mean_error);
    EXPECT_GT(r.mean_error, 0);
    EXPECT_LT(r.worst_error, 0.01) << "half of a step of the largest weight";
  }
  EXPECT_EQ(reports[1].bytes_before - reports[1].bytes_after, 3 * 50 * 72 - 4 * 50);
  const std::string bias = "over_arch.model.0._mlp.1._linear.bias";
  EXPECT_EQ(after.dense.at(bias).to_vector<float>(), before.dense.at(bias).to_vector<float>());
}

TEST_F(Int8Model, IsStoredAsIntegers) {
  const InferenceModel model = rounded();
  const InferenceModel opened = open_packed_model(packed());
  EXPECT_EQ(opened.int8_weights, model.int8_weights);
  EXPECT_EQ(opened.description.dense_precision, "int8");
  ASSERT_EQ(opened.dense.size(), model.dense.size());
  for (const auto& [name, value] : model.dense)
    EXPECT_EQ(opened.dense.at(name).to_vector<float>(), value.to_vector<float>()) << name;
  pack_model(floats(), folder_.file("floats"), {.format = RowFormat::kFloat32});
  const auto bytes = [&](const char* name) {
    return static_cast<int64_t>(std::filesystem::file_size(folder_.file(name) + "/dense.safetensors"));
  };
  EXPECT_LT(bytes("model"), bytes("floats") - 15000) << "of 6160 weights in int8";
  verify_packed_model(folder_.file("model"));
  inference::copy_packed_model(opened, folder_.file("copy"));
  EXPECT_EQ(open_packed_model(folder_.file("copy")).int8_weights, model.int8_weights);
  EXPECT_EQ(read_file(folder_.file("copy") + "/dense.safetensors"),
            read_file(folder_.file("model") + "/dense.safetensors"));
}

TEST_F(Int8Model, PredictsNearlyAsInFloat32) {
  const auto exact = make_predictor(runtime_, floats()), predictor = make_predictor(runtime_, rounded());
  EXPECT_EQ(exact->model().dense_precision, "float32");
  EXPECT_EQ(predictor->model().dense_precision, "int8");
  OwnInput input(exact->model(), 300, 7);
  const std::vector<float> a = scores_of(*exact, input.view()), b = scores_of(*predictor, input.view());
  EXPECT_NE(a, b);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 0.03) << i;
}

TEST_F(Int8Model, PredictsTheSameForAnyBatchAndThreads) {
  const std::string model = packed();
  const auto predictor = open_predictor(runtime_, model);
  OwnInput input(predictor->model(), 300, 7);
  const PredictInput all = input.view();
  const std::vector<float> whole = scores_of(*predictor, all);
  EXPECT_EQ(scores_of(*make_predictor(runtime_, rounded()), all), whole) << "as before it was packed";
  RuntimeOptions three{.threads = 3};
  EXPECT_EQ(scores(Runtime(three), model, 300), whole);
  for (const int64_t first : {0, 1, 151, 299}) {
    std::vector<PredictInput::Feature> features;
    for (const PredictInput::Feature& f : all.features) {
      int64_t at = 0;
      for (int64_t s = 0; s < first; ++s) at += f.lengths[static_cast<size_t>(s)];
      const auto one = f.lengths.subspan(static_cast<size_t>(first), 1);
      features.push_back({f.values.subspan(static_cast<size_t>(at), static_cast<size_t>(one[0])), one, {}});
    }
    const auto dense = all.dense.subspan(static_cast<size_t>(first * kTestDense), kTestDense);
    EXPECT_EQ(scores_of(*predictor, {1, dense, features})[0], whole[static_cast<size_t>(first)]) << first;
  }
}

TEST_F(Int8Model, HasNoOtherPrecision) {
  const std::string model = packed();
  for (const char* own : {"", "int8", "auto"})
    EXPECT_EQ(open_predictor(runtime_, model, {.dense_precision = own})->model().dense_precision, "int8");
  for (const char* other : {"float32", "bfloat16"}) {
    const auto [text, code] = failure_of([&] { open_predictor(runtime_, model, {.dense_precision = other}); });
    EXPECT_EQ(code, Code::kInvalidArgument);
    EXPECT_THAT(text, AllOf(HasSubstr(other), HasSubstr("are in int8; leave it out")));
  }
  const auto [text, code] = failure_of([&] { make_predictor(runtime_, floats(), {.dense_precision = "int8"}); });
  EXPECT_EQ(code, Code::kInvalidArgument);
  EXPECT_THAT(text, HasSubstr("pack it with tessera quantize --dense int8"));
}

TEST_F(Int8Model, NeedsALayerThatHasIt) {
  InferenceModel narrow = small_model(folder_).model;
  const auto [text, code] = failure_of([&] { round_dense_to_int8(runtime_, narrow); });
  EXPECT_EQ(code, Code::kInvalidArgument);
  EXPECT_THAT(text, HasSubstr("at least 32 rows and columns"));
}

TEST_F(Int8Model, IsNotOpenedWithoutItsScales) {
  const std::string model = packed();
  InferenceModel opened = open_packed_model(model);
  // Its description still says int8, but no weight is.
  opened.int8_weights.clear();
  inference::copy_packed_model(opened, folder_.file("other"));
  std::filesystem::copy_file(model + "/dense.safetensors", folder_.file("other") + "/dense.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(failure_of([&] { open_packed_model(folder_.file("other")); }).second, Code::kDataLoss);
}

}  // namespace
}  // namespace tessera::test
