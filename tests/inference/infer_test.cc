// infer.h: the same scores as C++, errors as codes with sentences, structs of older and newer callers.
#include "tessera/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "c_calls.h"
#include "inference/test_model.h"
#include "tessera/sdk/sized.h"

namespace tessera::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Infer : public testing::Test {
 protected:
  Infer() {
    err_.struct_size = sizeof(err_);
    pack_model(small_model(folder_).model, folder_.file("model"), {});
    EXPECT_EQ(tsr_model_open(folder_.file("model").c_str(), nullptr, &model_, &err_), TSR_OK) << err_.message;
  }
  ~Infer() override { tsr_model_close(model_); }

  static ModelBatch input_of(OwnInput& own) { return {own.values, own.lengths, own.dense, own.batch}; }
  // Predicts the first output.
  static tsr_code predict(tsr_model* model, const tsr_model_input* in, const DLTensor* scores, tsr_error* err) {
    return tsr_model_predict(model, in, &scores, 1, err);
  }
  ModelFolder folder_;
  tsr_error err_{};
  tsr_model* model_ = nullptr;
};

TEST_F(Infer, GivesTheScoresOfCpp) {
  const Runtime runtime;
  const auto predictor = open_predictor(runtime, folder_.file("model"));
  OwnInput own(predictor->model(), 20, 3);
  const ModelBatch in = input_of(own);
  std::vector<float> scores(20);
  View<float> out(scores, {20});
  ASSERT_EQ(predict(model_, &in.raw, &out, &err_), TSR_OK) << err_.message;
  EXPECT_EQ(scores, scores_of(*predictor, own.view()));
  auto stats = sdk::sized<tsr_model_stats>();
  ASSERT_EQ(tsr_model_get_stats(model_, &stats, &err_), TSR_OK);
  EXPECT_EQ(stats.predictions, 1u);
  EXPECT_EQ(stats.samples, 20u);
}

TEST_F(Infer, DescribesTheModel) {
  auto info = sdk::sized<tsr_model_info>();
  ASSERT_EQ(tsr_model_describe(model_, &info, &err_), TSR_OK);
  EXPECT_STREQ(info.name, "model");
  EXPECT_STREQ(info.type, "dlrm");
  EXPECT_EQ(strlen(info.version), 16u);
  EXPECT_EQ(info.dense_inputs, kTestDense);
  EXPECT_EQ(info.num_features, 5u);
  EXPECT_EQ(info.num_tables, 4u);
  EXPECT_EQ(info.num_outputs, 1u);
  auto feature = sdk::sized<tsr_model_feature>();
  ASSERT_EQ(tsr_model_get_feature(model_, 2, &feature, &err_), TSR_OK);
  EXPECT_STREQ(feature.name, "user");
  EXPECT_EQ(feature.ids, 23);
  EXPECT_EQ(tsr_model_get_feature(model_, 5, &feature, &err_), TSR_OUT_OF_RANGE);
  EXPECT_THAT(err_.message, HasSubstr("no feature 5"));
  auto table = sdk::sized<tsr_model_table>();
  ASSERT_EQ(tsr_model_get_table(model_, 3, &table, &err_), TSR_OK);
  EXPECT_STREQ(table.name, "genre");
  EXPECT_STREQ(table.format, "int8");
  EXPECT_EQ(table.bytes, 9 * 12);
}

TEST_F(Infer, OlderCallersHaveShorterStructs) {
  struct {
    tsr_model_info info;
    char after[8];
  } own;
  memset(&own, 0x55, sizeof(own));
  own.info.struct_size = offsetof(tsr_model_info, version);
  ASSERT_EQ(tsr_model_describe(model_, &own.info, &err_), TSR_OK);
  EXPECT_STREQ(own.info.name, "model");
  EXPECT_EQ(own.info.dense_inputs, 0x5555555555555555);
  tsr_error small{};
  small.struct_size = offsetof(tsr_error, message) + 16;
  EXPECT_EQ(tsr_model_open("/nowhere/at all", nullptr, &model_, &small), TSR_NOT_FOUND);
  EXPECT_STREQ(small.message, "there is no pac");
  EXPECT_EQ(model_, nullptr);
}

TEST_F(Infer, NewerCallersGetNoLessThanTheyAskFor) {
  struct {
    tsr_model_options known{};
    uint64_t added = 0;
  } newer;
  newer.known.struct_size = sizeof(newer);
  tsr_model* model = nullptr;
  OK(tsr_model_open(folder_.file("model").c_str(), &newer.known, &model, &err));
  tsr_model_close(model);
  newer.added = 1;
  REFUSED(TSR_UNIMPLEMENTED, "options uses members that libtessera",
          tsr_model_open(folder_.file("model").c_str(), &newer.known, &model, &err));
  EXPECT_EQ(model, nullptr);
  EXPECT_EQ(tsr_version_number() / 1000000, static_cast<uint32_t>(std::stoi(tsr_version())));
  EXPECT_STREQ(tsr_code_name(TSR_OK), "TSR_OK");
  EXPECT_STREQ(tsr_code_name(TSR_DATA_LOSS), "TSR_DATA_LOSS");
  EXPECT_STREQ(tsr_code_name(-1), "TSR_INTERNAL");
  EXPECT_STREQ(tsr_code_name(99), "TSR_INTERNAL");
}

TEST_F(Infer, DenseProductsHaveAPrecision) {
  auto options = sdk::sized<tsr_model_options>();
  for (const char* precision : {"float32", "auto"}) {
    options.dense_precision = precision;
    tsr_model* model = nullptr;
    OK(tsr_model_open(folder_.file("model").c_str(), &options, &model, &err));
    tsr_model_close(model);
  }
  tsr_model* model = nullptr;
  options.dense_precision = "int8";
  REFUSED(TSR_INVALID_ARGUMENT, "pack it with tessera quantize --dense int8",
          tsr_model_open(folder_.file("model").c_str(), &options, &model, &err));
}

// Two models over one runtime, which may be closed before them.
TEST_F(Infer, ARuntimeServesSeveralModels) {
  tsr_runtime* runtime = nullptr;
  OK(tsr_runtime_open(nullptr, &runtime, &err));
  auto options = sdk::sized<tsr_model_options>();
  options.runtime = runtime;
  options.threads = 2;
  tsr_model *first = nullptr, *second = nullptr;
  REFUSED(TSR_INVALID_ARGUMENT, "have no effect with runtime",
          tsr_model_open(folder_.file("model").c_str(), &options, &first, &err));
  options.threads = 0;
  OK(tsr_model_open(folder_.file("model").c_str(), &options, &first, &err));
  OK(tsr_model_open(folder_.file("model").c_str(), &options, &second, &err));
  tsr_runtime_close(runtime);
  OwnInput own(small_model(folder_).model.description, 3, 1);
  const ModelBatch in = input_of(own);
  std::vector<float> scores(3), others(3);
  View<float> out(scores, {3}), other(others, {3});
  OK(predict(first, &in.raw, &out, &err));
  tsr_model_close(first);
  OK(predict(second, &in.raw, &other, &err));
  EXPECT_EQ(scores, others);
  tsr_model_close(second);
}

TEST_F(Infer, WarningsGoToTheCallersLog) {
  FloatModel lenient = small_model(folder_);
  lenient.model.description.bounds_check = BoundsCheckMode::kWarning;
  pack_model(lenient.model, folder_.file("lenient"), {});
  std::string lines;
  auto options = sdk::sized<tsr_model_options>();
  options.log = [](void* user, int32_t, const char* text) { *static_cast<std::string*>(user) += text; };
  options.log_user = &lines;
  tsr_model* model = nullptr;
  OK(tsr_model_open(folder_.file("lenient").c_str(), &options, &model, &err));
  OwnInput own(lenient.model.description, 2, 1);
  own.values[0] = {41};
  own.lengths[0] = {0, 1};
  const ModelBatch in = input_of(own);
  std::vector<float> scores(2);
  View<float> out(scores, {2});
  OK(predict(model, &in.raw, &out, &err));
  EXPECT_THAT(lines, HasSubstr("\"film\""));
  tsr_model_close(model);
}

TEST_F(Infer, WrongCallsAreCodes) {
  tsr_model* none = nullptr;
  EXPECT_EQ(tsr_model_open(nullptr, nullptr, &none, &err_), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(tsr_model_open(folder_.file("model").c_str(), nullptr, nullptr, &err_), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(tsr_model_open("nowhere", nullptr, &none, nullptr), TSR_NOT_FOUND) << "no error struct is no error";
  auto bad = sdk::sized<tsr_model_options>();
  bad.kernel = "no-such-kernel";
  EXPECT_EQ(tsr_model_open(folder_.file("model").c_str(), &bad, &none, &err_), TSR_NOT_FOUND);
  EXPECT_THAT(err_.message, HasSubstr("no-such-kernel"));

  OwnInput own(small_model(folder_).model.description, 3, 1);
  own.values[0] = {41};
  own.lengths[0] = {0, 1, 0};
  const ModelBatch in = input_of(own);
  std::vector<float> scores(3);
  View<float> out(scores, {3});
  EXPECT_EQ(predict(nullptr, &in.raw, &out, &err_), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(predict(model_, nullptr, &out, &err_), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(predict(model_, &in.raw, nullptr, &err_), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(tsr_model_predict(model_, &in.raw, nullptr, 1, &err_), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(predict(model_, &in.raw, &out, &err_), TSR_OUT_OF_RANGE);
  EXPECT_THAT(err_.message, AllOf(HasSubstr("\"film\", sample 1: id 41"), HasSubstr("0 to 40")));
  EXPECT_EQ(err_.code, TSR_OUT_OF_RANGE);
  tsr_model_close(nullptr);
}

// The input as tensors: int32 values, every second element of an array of int64 lengths, and dense values of float64
// whose samples are columns.
struct InTensors {
  explicit InTensors(const OwnInput& own) : batch(own.batch) {
    for (size_t f = 0; f < own.values.size(); ++f) {
      ids.emplace_back(own.values[f].begin(), own.values[f].end());
      counts.emplace_back();
      for (const int32_t n : own.lengths[f]) counts.back().insert(counts.back().end(), {n, -9});
    }
    for (int64_t d = 0; d < kTestDense; ++d) {
      for (int64_t b = 0; b < batch; ++b) dense.push_back(double{own.dense[static_cast<size_t>(b * kTestDense + d)]});
    }
    for (size_t f = 0; f < ids.size(); ++f) {
      views.push_back(std::make_unique<View<int32_t>>(ids[f], std::vector<int64_t>{std::ssize(ids[f])}));
      count_views.push_back(std::make_unique<View<int64_t>>(counts[f], std::vector<int64_t>{batch}));
      count_views.back()->tensor.strides = &two;
      values.push_back(&*views.back());
      lengths.push_back(&*count_views.back());
    }
    dense_view = std::make_unique<View<double>>(dense, std::vector<int64_t>{batch, kTestDense});
    dense_view->tensor.strides = columns;
  }
  tsr_model_input raw() {
    return {sizeof(tsr_model_input),
            static_cast<uint32_t>(values.size()),
            &*dense_view,
            values.data(),
            lengths.data(),
            nullptr};
  }
  int64_t batch, two = 2, columns[2] = {1, batch};
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<int64_t>> counts;
  std::vector<double> dense;
  std::vector<std::unique_ptr<View<int32_t>>> views;
  std::vector<std::unique_ptr<View<int64_t>>> count_views;
  std::unique_ptr<View<double>> dense_view;
  std::vector<const DLTensor*> values, lengths;
};

TEST_F(Infer, TensorsOfAnyTypeAndStridesGiveTheSameScores) {
  const Runtime runtime;
  const auto predictor = open_predictor(runtime, folder_.file("model"));
  OwnInput own(predictor->model(), 20, 3);
  const std::vector<float> expected = scores_of(*predictor, own.view());
  InTensors tensors(own);
  tsr_model_input in = tensors.raw();
  std::vector<float> scores(20), gaps(60, -1);
  View<float> out(scores, {20}), column(scores, {20, 1}), third(gaps, {20, 1});
  OK(predict(model_, &in, &out, &err));
  EXPECT_EQ(scores, expected);
  std::fill(scores.begin(), scores.end(), 0);
  OK(predict(model_, &in, &column, &err));
  EXPECT_EQ(scores, expected);
  int64_t strides[] = {3, 1};
  third.tensor.strides = strides;
  third.tensor.byte_offset = sizeof(float);
  OK(predict(model_, &in, &third, &err));
  for (size_t i = 0; i < gaps.size(); ++i) EXPECT_EQ(gaps[i], i % 3 == 1 ? expected[i / 3] : -1) << i;
}

TEST_F(Infer, WeightsAreTensorsToo) {
  pack_model(small_model(folder_, {.is_weighted = true}).model, folder_.file("weighted"), {});
  tsr_model* weighted = nullptr;
  OK(tsr_model_open(folder_.file("weighted").c_str(), nullptr, &weighted, &err));
  const Runtime runtime;
  const auto predictor = open_predictor(runtime, folder_.file("weighted"));
  OwnInput own(predictor->model(), 10, 5, true);
  own.weights[1].clear();  // all 1
  const std::vector<float> expected = scores_of(*predictor, own.view());
  InTensors tensors(own);
  std::vector<std::vector<double>> as_doubles;
  std::vector<std::unique_ptr<View<double>>> views;
  std::vector<const DLTensor*> weights;
  for (const std::vector<float>& w : own.weights) as_doubles.emplace_back(w.begin(), w.end());
  for (std::vector<double>& w : as_doubles) {
    views.push_back(std::make_unique<View<double>>(w, std::vector<int64_t>{std::ssize(w)}));
    weights.push_back(&*views.back());
  }
  weights[1] = nullptr;
  tsr_model_input in = tensors.raw();
  in.weights = weights.data();
  std::vector<float> scores(10);
  View<float> out(scores, {10});
  OK(predict(weighted, &in, &out, &err));
  EXPECT_EQ(scores, expected);
  REFUSED(TSR_INVALID_ARGUMENT, "this model takes none", predict(model_, &in, &out, &err));
  as_doubles[2][0] = std::numeric_limits<double>::quiet_NaN();
  REFUSED(TSR_INVALID_ARGUMENT, "feature \"user\"", predict(weighted, &in, &out, &err));
  weights[0] = tensors.values[0];
  REFUSED(TSR_INVALID_ARGUMENT, "weights of feature \"film\" must be of floats", predict(weighted, &in, &out, &err));
  tsr_model_close(weighted);
}

TEST_F(Infer, WrongTensorsAreRefusedByName) {
  const OwnInput own(small_model(folder_).model.description, 4, 1);
  std::vector<float> scores(8, -1);
  View<float> out(scores, {4});
  struct Wrong {
    const char* sentence;
    std::function<void(InTensors&, tsr_model_input&, DLTensor&)> make;
    tsr_code code = TSR_INVALID_ARGUMENT;
  };
  const Wrong cases[] = {
      {"lengths of feature \"seen\" holds 4294967296, which does not fit int32",
       [](InTensors& t, auto&, auto&) { t.counts[1][2] = int64_t{1} << 32; }},
      {"feature \"seen\", sample 1: its length is -1", [](InTensors& t, auto&, auto&) { t.counts[1][2] = -1; }},
      {"values of feature \"user\" has a type that is not supported: use int32, int64, float32 or float64",
       [](InTensors& t, auto&, auto&) { t.views[2]->tensor.dtype.bits = 16; }},
      {"values of feature \"user\" must be of whole numbers",
       [](InTensors& t, auto&, auto&) { t.views[2]->tensor.dtype.code = kDLFloat; }},
      {"values of feature \"user\" is on a device",
       [](InTensors& t, auto&, auto&) { t.views[2]->tensor.device.device_type = kDLCUDA; }, TSR_UNIMPLEMENTED},
      {"dense must be [4, 5]", [](InTensors& t, auto&, auto&) { t.dense_view->tensor.shape[1] = 4; }},
      {"dense has 1 dimensions", [](InTensors& t, auto&, auto&) { t.dense_view->tensor.ndim = 1; }},
      {"dense has no data", [](InTensors& t, auto&, auto&) { t.dense_view->tensor.data = nullptr; }},
      {"dense is NULL", [](InTensors&, tsr_model_input& in, auto&) { in.dense = nullptr; }},
      {"dense input 1 of sample 2 is not finite",
       [](InTensors& t, auto&, auto&) { t.dense[6] = std::numeric_limits<double>::infinity(); }},
      {"lengths of feature \"film\" must be [4]",
       [](InTensors& t, auto&, auto&) { t.count_views[0]->tensor.shape[0] = 3; }},
      {"values has no first dimension", [](InTensors& t, auto&, auto&) { t.views[0]->tensor.ndim = 0; }},
      {"values is NULL", [](InTensors& t, auto&, auto&) { t.values[3] = nullptr; }},
      {"input->lengths is NULL", [](InTensors&, tsr_model_input& in, auto&) { in.lengths = nullptr; }},
      {"there are 4 features, but the model takes 5",
       [](InTensors&, tsr_model_input& in, auto&) { in.num_features = 4; }},
      {"must be float32 [4, 1] or [4] in host memory", [](InTensors&, auto&, DLTensor& to) { to.dtype.bits = 64; }},
      {"output \"", [](InTensors&, auto&, DLTensor& to) { to.data = nullptr; }},
      {"the output has no first dimension", [](InTensors&, auto&, DLTensor& to) { to.ndim = 0; }},
  };
  for (const Wrong& wrong : cases) {
    SCOPED_TRACE(wrong.sentence);
    InTensors tensors(own);
    tsr_model_input in = tensors.raw();
    DLTensor to = out.tensor;
    wrong.make(tensors, in, to);
    REFUSED(wrong.code, wrong.sentence, predict(model_, &in, &to, &err));
  }
  EXPECT_THAT(scores, testing::Each(-1)) << "nothing was written";
  InTensors tensors(own);
  const tsr_model_input in = tensors.raw();
  OK(predict(model_, &in, &out, &err));
}

}  // namespace
}  // namespace tessera::test
