// Tests losses of a prediction and a label. Expected values were computed in Python, by PyTorch's formulas
// (cross_entropy, CosineEmbeddingLoss, MarginRankingLoss, with reduction "none") or those of the papers in
// label_losses.h.
#include <gmock/gmock.h>

#include <memory>
#include <numeric>

#include "test_layer.h"

namespace {

using testing::Each;
using testing::HasSubstr;
using testing::Pointwise;

MATCHER(NearlyEqual, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) < 2e-6f; }

// Makes a loss over predictions of `width` values, with labels, and with groups if they are not empty.
std::unique_ptr<Layer> loss_of(TestHost& host, const char* id, const char* options, int64_t width,
                               const std::vector<float>& values, const std::vector<float>& labels,
                               const std::vector<int64_t>& groups = {}) {
  auto made = std::make_unique<Layer>(host, id, options);
  Layer& loss = *made;
  EXPECT_EQ(loss.code, TSR_OK) << loss.error();
  const auto batch = static_cast<int64_t>(labels.size());
  std::vector<std::vector<int64_t>> shapes = {{batch, width}, {batch, 1}};
  if (!groups.empty()) {
    loss.ids = {2};
    shapes.push_back({batch, 1});
  }
  loss.with_inputs(shapes);
  loss.inputs[0].data = values;
  loss.inputs[1].data = labels;
  if (!groups.empty()) {
    loss.inputs[2].counts = groups;
    loss.grad_inputs[2].data.clear();  // integers have no gradient
  }
  return made;
}

void expect_values(const std::unique_ptr<Layer>& made, const std::vector<float>& expected) {
  Layer& loss = *made;
  loss.step();
  EXPECT_THAT(loss.output.data, Pointwise(NearlyEqual(), expected));
  EXPECT_THAT(loss.grad_inputs[1].data, Each(0.0f)) << "labels have no gradient";
  check_gradient(loss, loss.inputs[0], loss.grad_inputs[0], "prediction");
}

constexpr const char* kSmoothed = R"({"class_weights": [1, 2, 0.5], "label_smoothing": 0.1})";

TEST(LabelLosses, HaveTheValuesOfTheirFormulas) {
  TestHost host;
  expect_values(loss_of(host, "hinge", R"({"margin": 1.5})", 1, {0.3f, -1.2f, 2, 0.8f}, {1, 0, 0, 1}),
                {1.2f, 0.3f, 3.5f, 0.7f});
  expect_values(loss_of(host, "contrastive", R"({"margin": 0.2})", 1, {0.9f, 0.35f, -0.4f, 0.1f}, {1, 0, 0, 1}),
                {0.1f, 0.15f, 0, 0.9f});
  expect_values(loss_of(host, "contrastive", R"({"kind": "distance"})", 1, {0.5f, 0.2f, 1.4f, 0}, {1, 0, 0, 1}),
                {0.25f, 0.64f, 0, 0});
  const std::vector<float> logits = {0.2f, -0.5f, 1.1f, 2, 0.1f, -0.3f, -1, 0.4f, 0.3f};
  expect_values(loss_of(host, "softmax_cross_entropy", "{}", 3, logits, {2, 0, 1}),
                {0.475281f, 0.2230055f, 0.7661348f});
  expect_values(loss_of(host, "softmax_cross_entropy", kSmoothed, 3, logits, {2, 0, 1}),
                {0.4059926f, 0.3917223f, 1.5167583f});
  expect_values(loss_of(host, "jrc", R"({"alpha": 0.3})", 2, {0.1f, 0.7f, 0.5f, -0.2f, -0.3f, 0.4f, 0.9f, 0.6f, 0, -1},
                        {1, 0, 0, 1, 0}, {7, 7, 7, 9, 9}),
                {0.6662229f, 0.6468312f, 1.4168312f, 0.3850371f, 0.9627862f});
  // The mean over four samples must be the mean over two pairs, so each pair's loss is doubled.
  expect_values(loss_of(host, "pairwise_loss", R"({"kind": "hinge", "margin": 0.5})", 1, {1, 3, 0, 5}, {1, 0, 0, 1},
                        {1, 1, 2, 2}),
                {2 * 2.5f, 0, 0, 0});
  expect_values(loss_of(host, "bpr", "{}", 1, {1, 3, 0, 5}, {1, 0, 0, 1}, {1, 1, 2, 2}),
                {2 * 2.126928f, 0, 0, 2 * 0.00671535f});
}

TEST(LabelLosses, RefuseLabelsThatTheyDoNotKnow) {
  TestHost host;
  const auto refusal = [](const std::unique_ptr<Layer>& loss) {
    EXPECT_EQ(loss->forward(), TSR_INVALID_ARGUMENT);
    return loss->error();
  };
  for (const char* id : {"hinge", "contrastive"})
    EXPECT_THAT(
        refusal(loss_of(host, id, "{}", 1, {1, 2}, {1, 4})),
        HasSubstr("takes the labels 0 and 1, but sample 1 of a batch has 4: give the label's column a threshold"));
  EXPECT_THAT(refusal(loss_of(host, "bpr", "{}", 1, {1, 2}, {3, 1}, {1, 1})),
              HasSubstr("bpr takes the labels 0 and 1, but sample 0 of a batch has 3"));
  for (const float label : {3.0f, -1.0f, 0.5f, NAN})
    EXPECT_THAT(refusal(loss_of(host, "softmax_cross_entropy", "{}", 3, {1, 2, 3}, {label})),
                HasSubstr("takes the number of a class for a label, from 0 to 2, but sample 0 of a batch has"));
}

TEST(LabelLosses, RefuseInputsAndOptionsWithoutMeaning) {
  TestHost host;
  const auto widths = [&](const char* id, const char* options, const std::vector<int64_t>& given) {
    Layer loss(host, id, options);
    EXPECT_EQ(loss.width_of(given), TSR_INVALID_ARGUMENT);
    return loss.error();
  };
  EXPECT_THAT(widths("hinge", "{}", {2, 1}),
              HasSubstr("hinge takes a prediction of 1 value for each sample, not of 2"));
  EXPECT_THAT(widths("softmax_cross_entropy", "{}", {1, 1}), HasSubstr("takes a prediction of 2 or more values"));
  EXPECT_THAT(widths("softmax_cross_entropy", kSmoothed, {4, 1}),
              HasSubstr("option \"class_weights\" has 3 numbers, but there are 4 classes: give each one"));
  EXPECT_THAT(widths("jrc", "{}", {2, 1}), HasSubstr("set groups, a column of ids, for its head"));
  EXPECT_THAT(widths("bpr", "{}", {1, 1}), HasSubstr("bpr compares the items of one user: set groups"));
  const std::tuple<const char*, const char*, const char*> all[] = {
      {"hinge", R"({"margin": 0})", "option \"margin\" must be above 0, not 0"},
      {"contrastive", R"({"margin": 1})", "option \"margin\" of similarity must be at least -1 and below 1, not 1"},
      {"contrastive", R"({"kind": "cosine"})", "option \"kind\" is \"cosine\", but must be similarity or distance"},
      {"jrc", R"({"alpha": 2})", "option \"alpha\" must be from 0 to 1, not 2"},
      {"softmax_cross_entropy", R"({"class_weights": [1, -1]})", "must list numbers of at least 0, not -1"},
      {"softmax_cross_entropy", R"({"label_smoothing": 1})", "at least 0 and below 1, not 1"},
      {"pairwise_loss", R"({"margin": 1})", "belongs to the kind \"hinge\": \"logistic\" has none"},
      {"mse", R"({"class_weights": [1, 2]})", "unknown option \"class_weights\""}};
  for (const auto& [id, options, text] : all) {
    const Layer loss(host, id, options);
    EXPECT_EQ(loss.code, TSR_INVALID_ARGUMENT) << id << options;
    EXPECT_THAT(loss.error(), HasSubstr(text));
  }
}

// Small batches may have no pairs, but training on large ones without any would learn nothing.
TEST(LabelLosses, BprEndsIfBatchesHaveNoPairs) {
  TestHost host;
  std::vector<float> values(64, 0.5f), labels(64, 1);
  std::vector<int64_t> groups(64, 3);
  const auto made = loss_of(host, "bpr", "{}", 1, values, labels, groups);
  Layer& loss = *made;
  for (int batch = 0; batch < 9; ++batch) EXPECT_EQ(loss.forward(), TSR_OK);
  loss.inputs[1].data[0] = 0;
  EXPECT_EQ(loss.forward(), TSR_OK) << "pairs begin the count anew";
  loss.inputs[1].data[0] = 1;
  for (int batch = 0; batch < 9; ++batch) EXPECT_EQ(loss.forward(), TSR_OK);
  EXPECT_EQ(loss.forward(), TSR_INVALID_ARGUMENT);
  EXPECT_THAT(loss.error(), HasSubstr("no two samples of one group with the labels 1 and 0 in 10 batches"));
  loss.trains = false;
  EXPECT_EQ(loss.forward(), TSR_OK) << "an evaluation learns nothing anyway";
}

// There are four candidates, one of which is dropped because it is the item itself.
std::unique_ptr<Layer> gbce_of(TestHost& host, const char* options) {
  auto made = std::make_unique<Layer>(host, "item_loss", options);
  Layer& loss = *made;
  EXPECT_EQ(loss.code, TSR_OK) << loss.error();
  loss.ids = {3, 4};
  loss.all_bounds = {{}, {}, {0, 4}, {}, {0, 4}};
  loss.with_inputs({{1, 1}, {1, 1}, {4, 1}, {1, 1}, {4, 1}});
  loss.inputs[0].data = {1};
  loss.inputs[1].data = {0.5f};
  loss.inputs[2].data = {0.1f, 0.5f, -0.3f, 0.2f};
  loss.inputs[3].counts = {2};
  loss.inputs[4].counts = {1, 2, 3, 4};
  return made;
}

TEST(ItemLossGbce, CountsOnlyNegativesThatAreThere) {
  TestHost host;
  const auto loss = gbce_of(host, R"({"kind": "gbce", "t": 0.75, "items": 5})");
  ASSERT_EQ(loss->forward(), TSR_OK) << loss->error();
  const auto softplus = [](double z) { return std::log1p(std::exp(z)); };
  const double beta = 1 - 0.75 * (1 - 3.0 / 4);
  EXPECT_NEAR(loss->output.data[0], (beta * softplus(-0.5) + softplus(0.1) + softplus(-0.3) + softplus(0.2)) / 4, 1e-6);
  EXPECT_EQ(gbce_of(host, R"({"kind": "gbce", "items": 4})")->forward(), TSR_OK) << "all others are negatives";
  const auto few = gbce_of(host, R"({"kind": "gbce", "items": 3})");
  EXPECT_EQ(few->forward(), TSR_INVALID_ARGUMENT);
  EXPECT_THAT(few->error(), HasSubstr("3 negatives for an item, but with items = 3 there are only 2 others"));
}

// Compares a softmax with sums in double. The candidates do not fit into one tile, and some are the rows' items.
TEST(ItemLossSoftmax, OverManyCandidatesInTiles) {
  static constexpr int64_t kRows = 200, kCandidates = 2600, kWidth = 70, kItems = 2500;
  TestHost one, three(3);
  const auto step = [](TestHost& host) {
    auto made = std::make_unique<Layer>(host, "item_loss", R"({"temperature": 0.5})");
    Layer& loss = *made;
    loss.ids = {3, 4};
    std::vector<int64_t> bounds(kRows + 1, kCandidates);
    bounds[0] = 0;
    loss.all_bounds = {{}, {}, bounds, {}, bounds};
    loss.with_inputs({{kRows, kWidth}, {kRows, kWidth}, {kCandidates, kWidth}, {kRows, 1}, {kCandidates, 1}});
    for (int64_t r = 0; r < kRows; ++r) loss.inputs[3].counts.push_back(r * 17 % (kItems + 50));
    for (int64_t c = 0; c < kCandidates; ++c) loss.inputs[4].counts.push_back(c % kItems);
    loss.grad_inputs[3].data.clear();
    loss.grad_inputs[4].data.clear();
    loss.step();
    EXPECT_EQ(host.lent > 0, host.threads > 1);
    return made;
  };
  const auto made = step(one);
  const Layer& loss = *made;
  std::vector<double> states(kRows * kWidth), candidates(kCandidates * kWidth);
  for (size_t r = 0; r < kRows; ++r) {
    const float *state = loss.inputs[0].data.data() + r * kWidth, *item = loss.inputs[1].data.data() + r * kWidth;
    const auto logit = [&](const float* row) { return 2 * std::inner_product(state, state + kWidth, row, 0.0); };
    std::vector<double> z;
    for (size_t c = 0; c < kCandidates; ++c) {
      const bool own = loss.inputs[3].counts[r] == loss.inputs[4].counts[c];
      z.push_back(own ? -INFINITY : logit(loss.inputs[2].data.data() + c * kWidth));
    }
    double sum = std::exp(logit(item));
    for (const double v : z) sum += std::exp(v);
    EXPECT_NEAR(loss.output.data[r], std::log(sum) - logit(item), 1e-5);
    const double grad = 2 * static_cast<double>(loss.grad_output.data[r]);
    for (size_t w = 0; w < kWidth; ++w) {
      states[r * kWidth + w] += grad * (std::exp(logit(item)) / sum - 1) * static_cast<double>(item[w]);
      for (size_t c = 0; c < kCandidates; ++c) {
        const double dz = grad * std::exp(z[c]) / sum;
        states[r * kWidth + w] += dz * static_cast<double>(loss.inputs[2].data[c * kWidth + w]);
        candidates[c * kWidth + w] += dz * static_cast<double>(state[w]);
      }
    }
  }
  EXPECT_THAT(loss.grad_inputs[0].data, Pointwise(testing::DoubleNear(1e-5), states));
  EXPECT_THAT(loss.grad_inputs[2].data, Pointwise(testing::DoubleNear(1e-5), candidates));
  const auto threaded = step(three);
  EXPECT_EQ(threaded->output.data, loss.output.data);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(threaded->grad_inputs[i].data, loss.grad_inputs[i].data) << "input " << i;
}

}  // namespace
