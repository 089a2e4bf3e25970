// infer.h: the same scores as C++, errors as codes with sentences, structs of older and newer callers.
#include "tessera/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inference/test_model.h"

namespace tessera {
namespace {

using namespace test;
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

  struct Input {
    std::vector<tsr_model_ids> features;
    tsr_model_input raw{};
  };
  Input input_of(OwnInput& own) {
    Input in;
    for (size_t f = 0; f < own.values.size(); ++f) {
      in.features.push_back(
          {own.values[f].data(), own.lengths[f].data(), nullptr, static_cast<int64_t>(own.values[f].size())});
    }
    in.raw = {sizeof(tsr_model_input), static_cast<uint32_t>(in.features.size()), own.batch, own.dense.data(),
              in.features.data()};
    return in;
  }
  ModelFolder folder_;
  tsr_error err_{};
  tsr_model* model_ = nullptr;
};

TEST_F(Infer, GivesTheScoresOfCpp) {
  const Runtime runtime;
  const auto predictor = open_predictor(runtime, folder_.file("model"));
  OwnInput own(predictor->model(), 20, 3);
  const Input in = input_of(own);
  std::vector<float> scores(20);
  ASSERT_EQ(tsr_model_predict(model_, &in.raw, scores.data(), &err_), TSR_OK) << err_.message;
  EXPECT_EQ(scores, scores_of(*predictor, own.view()));
  tsr_model_stats stats{};
  stats.struct_size = sizeof(stats);
  ASSERT_EQ(tsr_model_get_stats(model_, &stats, &err_), TSR_OK);
  EXPECT_EQ(stats.predictions, 1u);
  EXPECT_EQ(stats.samples, 20u);
}

TEST_F(Infer, DescribesTheModel) {
  tsr_model_info info{};
  info.struct_size = sizeof(info);
  ASSERT_EQ(tsr_model_describe(model_, &info, &err_), TSR_OK);
  EXPECT_STREQ(info.name, "model");
  EXPECT_STREQ(info.type, "dlrm");
  EXPECT_EQ(strlen(info.version), 16u);
  EXPECT_EQ(info.dense_inputs, kTestDense);
  EXPECT_EQ(info.num_features, 5u);
  EXPECT_EQ(info.num_tables, 4u);
  EXPECT_EQ(info.num_outputs, 1u);
  tsr_model_feature feature{};
  feature.struct_size = sizeof(feature);
  ASSERT_EQ(tsr_model_get_feature(model_, 2, &feature, &err_), TSR_OK);
  EXPECT_STREQ(feature.name, "user");
  EXPECT_EQ(feature.ids, 23);
  EXPECT_EQ(tsr_model_get_feature(model_, 5, &feature, &err_), TSR_OUT_OF_RANGE);
  EXPECT_THAT(err_.message, HasSubstr("no feature 5"));
  tsr_model_table table{};
  table.struct_size = sizeof(table);
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

TEST_F(Infer, WrongCallsAreCodes) {
  tsr_model* none = nullptr;
  EXPECT_EQ(tsr_model_open(nullptr, nullptr, &none, &err_), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(tsr_model_open(folder_.file("model").c_str(), nullptr, nullptr, &err_), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(tsr_model_open("nowhere", nullptr, &none, nullptr), TSR_NOT_FOUND) << "no error struct is no error";
  const tsr_model_options bad{sizeof(bad), 0, nullptr, "no-such-kernel"};
  EXPECT_EQ(tsr_model_open(folder_.file("model").c_str(), &bad, &none, &err_), TSR_NOT_FOUND);
  EXPECT_THAT(err_.message, HasSubstr("no-such-kernel"));

  OwnInput own(small_model(folder_).model.description, 3, 1);
  Input in = input_of(own);
  float scores[3];
  EXPECT_EQ(tsr_model_predict(nullptr, &in.raw, scores, &err_), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(tsr_model_predict(model_, nullptr, scores, &err_), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(tsr_model_predict(model_, &in.raw, nullptr, &err_), TSR_INVALID_ARGUMENT);
  in.raw.num_features = 4;
  EXPECT_EQ(tsr_model_predict(model_, &in.raw, scores, &err_), TSR_INVALID_ARGUMENT);
  EXPECT_THAT(err_.message, HasSubstr("there are 4 features, and the model takes 5"));
  in = input_of(own);
  in.raw.batch = -1;
  EXPECT_EQ(tsr_model_predict(model_, &in.raw, scores, &err_), TSR_INVALID_ARGUMENT);
  in = input_of(own);
  in.features[1].num_values = -4;
  EXPECT_EQ(tsr_model_predict(model_, &in.raw, scores, &err_), TSR_INVALID_ARGUMENT);
  own.values[0] = {41};
  own.lengths[0] = {0, 1, 0};
  in = input_of(own);
  EXPECT_EQ(tsr_model_predict(model_, &in.raw, scores, &err_), TSR_OUT_OF_RANGE);
  EXPECT_THAT(err_.message, AllOf(HasSubstr("\"film\", sample 1: id 41"), HasSubstr("0 to 40")));
  EXPECT_EQ(err_.code, TSR_OUT_OF_RANGE);
  tsr_model_close(nullptr);
}

}  // namespace
}  // namespace tessera
