// Compares predictions from packed models with the modules that training uses.
#include "tessera/predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "inference/test_model.h"
#include "tessera/embedding_modules.h"

namespace tessera::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

const Runtime& runtime() {
  static const Runtime r;
  return r;
}

// The float path: an EmbeddingBagCollection and its graph of layers, with the content of a float32 model.
class FloatPath {
 public:
  explicit FloatPath(const InferenceModel& model)
      : collection_(runtime(), options(model)), layers_(runtime(), model.graph, {}), model_(model) {
    for (const QuantizedTable& t : model.tables)
      collection_.set_weight(t.config.name, dequantize_rows(t.rows, *t.config.row_format, t.config.embedding_dim));
    for (const ParameterPtr& p : layers_.parameters()) {
      const Tensor& from = model.dense.at(p->name);
      std::copy_n(from.data<float>(), from.numel(), p->value.data<float>());
    }
  }
  std::vector<float> scores(const PredictInput& input) {
    std::vector<std::string> keys;
    std::vector<int64_t> values;
    std::vector<int32_t> lengths;
    for (size_t f = 0; f < input.features.size(); ++f) {
      keys.push_back(model_.description.features[f].name);
      values.insert(values.end(), input.features[f].values.begin(), input.features[f].values.end());
      lengths.insert(lengths.end(), input.features[f].lengths.begin(), input.features[f].lengths.end());
    }
    const auto kjt = KeyedJaggedTensor::from_lengths_sync(keys, Tensor::from(values), Tensor::from(lengths));
    const KeyedTensor pooled = collection_.forward(kjt, nullptr);
    const Tensor logits =
        layers_.forward(Tensor::from<float>(input.dense, {input.batch, kTestDense}), pooled.values(), false)[0];
    std::vector<float> out;
    for (int64_t i = 0; i < input.batch; ++i) out.push_back(static_cast<float>(1 / (1 + std::exp(-logits.item(i)))));
    return out;
  }

 private:
  static CollectionOptions options(const InferenceModel& model) {
    CollectionOptions o;
    for (const QuantizedTable& t : model.tables) {
      o.tables.push_back(t.config);
      o.tables.back().row_format.reset();
    }
    o.train = false;
    o.bounds_check = BoundsCheckMode::kIgnore;
    return o;
  }
  EmbeddingBagCollection collection_;
  LayerGraph layers_;
  const InferenceModel& model_;
};

void expect_near(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << "sample " << i;
}

class Predicting : public testing::Test {
 protected:
  std::unique_ptr<Predictor> packed(const PackOptions& pack, FloatModelOptions options = {}) {
    const std::string path = folder_.file(str_cat("model", count_++));
    pack_model(small_model(folder_, std::move(options)).model, path, pack);
    return open_predictor(runtime(), path);
  }
  ModelFolder folder_;
  int count_ = 0;
};

TEST_F(Predicting, FloatsGiveWhatTrainingGives) {
  const auto predictor = packed({.format = RowFormat::kFloat32});
  const FloatModel model = small_model(folder_);
  FloatPath reference(model.model);
  for (const int64_t batch : {1, 2, 7, 64, 300}) {
    OwnInput input(predictor->model(), batch, static_cast<uint32_t>(batch));
    expect_near(scores_of(*predictor, input.view()), reference.scores(input.view()), 1e-6);
  }
}

TEST_F(Predicting, AModelNeedsNoPacking) {
  const FloatModel model = small_model(folder_);
  FloatPath reference(model.model);
  const auto predictor = make_predictor(runtime(), model.model);
  OwnInput input(predictor->model(), 33, 4);
  expect_near(scores_of(*predictor, input.view()), reference.scores(input.view()), 1e-6);
}

TEST_F(Predicting, QuantizedModelsDifferByTheirQuantizing) {
  const FloatModel model = small_model(folder_);
  FloatPath reference(model.model);
  const struct {
    RowFormat format;
    double tolerance;
  } cases[] = {{RowFormat::kFloat16, 1e-3}, {RowFormat::kInt8, 0.02}, {RowFormat::kInt4, 0.3}};
  for (const auto& c : cases) {
    const auto predictor = packed({.format = c.format});
    OwnInput input(predictor->model(), 100, 9);
    expect_near(scores_of(*predictor, input.view()), reference.scores(input.view()), c.tolerance);
    // Compares with the float path on the stored numbers: only rounding differs.
    const InferenceModel stored = open_packed_model(folder_.file(str_cat("model", count_ - 1)));
    FloatPath same(stored);
    expect_near(scores_of(*predictor, input.view()), same.scores(input.view()), 2e-6);
  }
}

TEST_F(Predicting, ASampleHasTheSameScoreInEveryBatch) {
  const auto predictor = packed({});
  OwnInput input(predictor->model(), 50, 3);
  const auto together = scores_of(*predictor, input.view());
  std::vector<size_t> at(input.values.size(), 0);
  for (size_t s = 0; s < 50; ++s) {
    OwnInput one(predictor->model(), 0, 0);
    one.batch = 1;
    one.dense.assign(input.dense.begin() + static_cast<int64_t>(s) * kTestDense,
                     input.dense.begin() + static_cast<int64_t>(s + 1) * kTestDense);
    for (size_t f = 0; f < at.size(); ++f) {
      const int32_t n = input.lengths[f][s];
      one.lengths[f] = {n};
      one.values[f].assign(input.values[f].begin() + static_cast<int64_t>(at[f]),
                           input.values[f].begin() + static_cast<int64_t>(at[f]) + n);
      at[f] += static_cast<size_t>(n);
    }
    EXPECT_EQ(scores_of(*predictor, one.view())[0], together[s]) << s;
  }
}

TEST_F(Predicting, IdsOutOfRangeAreLeftOutAndCounted) {
  const auto predictor = packed({.format = RowFormat::kFloat32}, {.bounds_check = BoundsCheckMode::kIgnore});
  const FloatModel model = small_model(folder_);
  FloatPath reference(model.model);  // drops ids by the same policy
  OwnInput input(predictor->model(), 40, 5);
  ASSERT_GT(input.values[0].size(), 3u);
  input.values[0][1] = 41;
  input.values[0][2] = -7;
  input.values[3][0] = int64_t{1} << 60;  // tag, a mean: keeps its length
  input.values[3][4] = 17;
  EXPECT_EQ(predictor->why_not(input.view()), "");
  expect_near(scores_of(*predictor, input.view()), reference.scores(input.view()), 1e-6);
  EXPECT_THAT(predictor->stats().bad_ids, ElementsAre(2, 0, 2, 0));
  EXPECT_EQ(predictor->stats().predictions, 1u);
  EXPECT_EQ(predictor->stats().samples, 40u);
}

TEST_F(Predicting, WeightsScaleRows) {
  const auto weighted = packed({.format = RowFormat::kFloat32}, {.is_weighted = true});
  OwnInput input(weighted->model(), 30, 6), twice = input;
  // Each id twice with half the weight gives the same sum, and the same mean of half as much twice.
  for (size_t f = 0; f < input.values.size(); ++f) {
    twice.values[f].clear();
    size_t at = 0;
    for (int32_t& n : twice.lengths[f]) {
      for (int32_t i = 0; i < n; ++i, ++at) {
        for (int k = 0; k < 2; ++k) {
          twice.values[f].push_back(input.values[f][at]);
          twice.weights[f].push_back(f == 3 ? 1.0f : 0.5f);
        }
      }
      n *= 2;
    }
  }
  expect_near(scores_of(*weighted, twice.view()), scores_of(*weighted, input.view()), 1e-6);
  for (auto& w : twice.weights) std::fill(w.begin(), w.end(), 0.0f);
  OwnInput none(weighted->model(), 30, 6);
  for (size_t f = 0; f < none.values.size(); ++f) {
    none.values[f].clear();
    std::fill(none.lengths[f].begin(), none.lengths[f].end(), 0);
  }
  expect_near(scores_of(*weighted, twice.view()), scores_of(*weighted, none.view()), 1e-7);
}

TEST_F(Predicting, WhatIsWrongIsSaidInASentence) {
  const auto predictor = packed({});
  const auto check = [&](const std::function<void(OwnInput&)>& spoil, const char* sentence, Code code) {
    OwnInput input(predictor->model(), 4, 1);
    for (auto& v : input.values) v = {0, 1, 2, 3};
    for (auto& l : input.lengths) l = {1, 1, 1, 1};
    ASSERT_EQ(predictor->why_not(input.view()), "");
    spoil(input);
    EXPECT_THAT(predictor->why_not(input.view()), HasSubstr(sentence));
    EXPECT_THAT(failure_of([&] { scores_of(*predictor, input.view()); }), Pair(HasSubstr(sentence), code));
  };
  check([](OwnInput& i) { i.values[1][2] = 41; },
        "feature \"seen\", sample 2: id 41 is not in table \"film\", whose ids are 0 to 40", Code::kOutOfRange);
  check([](OwnInput& i) { i.values[4][0] = -1; }, "feature \"genre\", sample 0: id -1", Code::kOutOfRange);
  check(
      [](OwnInput& i) {
        i.lengths[2] = {1, 1, 1};
      },
      "\"user\" has lengths for 3 samples, but the batch has 4", Code::kInvalidArgument);
  check(
      [](OwnInput& i) {
        i.lengths[2] = {1, 1, 1, 2};
      },
      "\"user\" has 4 values, but its lengths add up to 5", Code::kInvalidArgument);
  check(
      [](OwnInput& i) {
        i.lengths[2] = {1, 5, -3, 1};
      },
      "\"user\", sample 2: its length is -3", Code::kInvalidArgument);
  check([](OwnInput& i) { i.dense[7] = NAN; }, "dense input 2 of sample 1 is not finite", Code::kInvalidArgument);
  check([](OwnInput& i) { i.dense.pop_back(); }, "there are 19 dense values, and 4 samples have 20",
        Code::kInvalidArgument);
  check(
      [](OwnInput& i) {
        i.weights[0] = {1, 1, 1, 1};
      },
      "\"film\" has weights, but this model takes none", Code::kInvalidArgument);
  check([](OwnInput& i) { i.values.pop_back(); }, "there are 4 features, but the model takes 5",
        Code::kInvalidArgument);
  EXPECT_EQ(predictor->stats().predictions, 0u);
}

TEST_F(Predicting, NothingGivesNothing) {
  const auto predictor = packed({});
  OwnInput input(predictor->model(), 0, 1);
  EXPECT_TRUE(scores_of(*predictor, input.view()).empty());
}

TEST_F(Predicting, ParametersThatDoNotFitAreNamed) {
  InferenceModel model = small_model(folder_).model;
  model.dense.erase("over_arch.model.1.bias");
  EXPECT_THAT(failure_of([&] { make_predictor(runtime(), model); }),
              Pair(HasSubstr("no parameter \"over_arch.model.1.bias\""), Code::kInvalidArgument));
}

}  // namespace
}  // namespace tessera::test
