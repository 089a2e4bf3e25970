// Metrics of classes by hand and against torchmetrics and TorchRec, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "config/test_refusal.h"
#include "metrics/rec_metrics.h"
#include "tessera/metrics.h"

namespace tessera {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kAllOfClasses = {"multiclass_accuracy",
                                                "multiclass_accuracy?k=2",
                                                "multiclass_recall?k=3",
                                                "multiclass_logloss",
                                                "multiclass_normalized_entropy",
                                                "macro_precision",
                                                "macro_recall",
                                                "macro_f1",
                                                "macro_auc"};

// Logits of four classes.
const std::vector<float> kScores = {-3.05f, -1.50f, -1.31f, -3.22f, -0.20f, -1.22f, -1.96f, -3.22f,
                                    -1.42f, 0.61f,  -1.55f, -0.50f, -0.44f, 3.37f,  0.46f,  0.94f,
                                    -1.39f, -2.32f, 1.40f,  0.40f,  1.73f,  0.49f,  -1.33f, 1.61f,
                                    2.20f,  -0.35f, -4.49f, -2.89f, 0.12f,  -1.24f, -1.60f, -0.26f};
const std::vector<float> kLabels = {0, 1, 2, 2, 0, 1, 1, 0}, kWeights = {1, 2, 1, 0.5f, 3, 1, 1, 2};

MetricValues of_classes(const std::vector<std::string>& names, int64_t classes, const std::vector<float>& scores,
                        const std::vector<float>& labels, const std::vector<float>& weights = {}) {
  MetricSet set(names, {.classes = classes});
  set.add(Tensor::from(scores).reshape({std::ssize(labels), classes}), Tensor::from(labels), nullptr,
          weights.empty() ? Tensor() : Tensor::from(weights));
  return set.values();
}

// Recorded: torchmetrics' multiclass_precision, multiclass_recall and multiclass_f1_score with average = "macro", its
// multiclass_accuracy with average = "micro" and top_k, and PyTorch's cross_entropy in float64.
TEST(ClassMetrics, AreThoseOfTorchmetrics) {
  const MetricValues m = of_classes(kAllOfClasses, 4, kScores, kLabels);
  EXPECT_EQ(m.samples, 8);
  EXPECT_DOUBLE_EQ(m["multiclass_accuracy"], 0.125);
  EXPECT_DOUBLE_EQ(m["multiclass_accuracy?k=2"], 0.375);
  EXPECT_DOUBLE_EQ(m["multiclass_recall?k=3"], 0.875);
  EXPECT_NEAR(m["multiclass_logloss"], 2.280964133715447, 1e-9);
  EXPECT_NEAR(m["multiclass_normalized_entropy"], 2.107719049286534, 1e-9);
  EXPECT_NEAR(m["macro_precision"], 0.0833333358, 1e-7);
  EXPECT_NEAR(m["macro_recall"], 0.1111111119, 1e-7);
  EXPECT_NEAR(m["macro_f1"], 0.0952380970, 1e-7);
}

// Recorded: TorchRec's compute_true_positives_at_k gives 2, 5, 10.5 and 11.5 for these weights.
TEST(ClassMetrics, WeightsAreThoseOfTorchRec) {
  const MetricValues m =
      of_classes({"multiclass_recall", "multiclass_recall?k=2", "multiclass_recall?k=3", "multiclass_logloss"}, 4,
                 kScores, kLabels, kWeights);
  EXPECT_DOUBLE_EQ(m["multiclass_recall"], 2 / 11.5);
  EXPECT_DOUBLE_EQ(m["multiclass_recall?k=2"], 5 / 11.5);
  EXPECT_DOUBLE_EQ(m["multiclass_recall?k=3"], 10.5 / 11.5);
  EXPECT_NEAR(m["multiclass_logloss"], 2.197743743265258, 1e-9);
}

// Recorded: the mean of scikit-learn's roc_auc_score of each class that occurs, from a softmax in float64.
TEST(ClassMetrics, MacroAucIsThatOfScikitLearn) {
  EXPECT_NEAR(of_classes({"macro_auc"}, 4, kScores, kLabels)["macro_auc"], 1.0 / 3, 1e-12);
  EXPECT_NEAR(of_classes({"macro_auc"}, 4, kScores, kLabels, kWeights)["macro_auc"], 0.3373737373737374, 1e-12);
  EXPECT_DOUBLE_EQ(of_classes({"macro_auc"}, 2, {0, 1, 3, 4, 0, 1}, {0, 1, 1})["macro_auc"], 0.5) << "p is equal";
  EXPECT_TRUE(std::isnan(of_classes({"macro_auc"}, 2, {0, 1, 3, 0}, {1, 1})["macro_auc"]));
}

TEST(ClassMetrics, MacroAucHasNoWindow) {
  EXPECT_THAT(test::refusal([] { RecMetric("macro_auc", make_metric("macro_auc"), 10, 3); }),
              HasSubstr("needs all samples of a head of classes, and a window keeps sums of these"));
}

// A model that always gives the same values must not look right because of the order of the classes.
TEST(ClassMetrics, EqualScoresCountAlike) {
  const MetricValues m =
      of_classes({"multiclass_accuracy", "multiclass_accuracy?k=2", "macro_recall", "macro_precision"}, 3,
                 {0, 0, 0, 1, 1, -1}, {0, 0});
  EXPECT_DOUBLE_EQ(m["multiclass_accuracy"], (1.0 / 3 + 1.0 / 2) / 2);
  EXPECT_DOUBLE_EQ(m["multiclass_accuracy?k=2"], (2.0 / 3 + 1) / 2);
  EXPECT_DOUBLE_EQ(m["macro_recall"], (5.0 / 12) / 3) << "three classes are predicted, one has labels";
  EXPECT_DOUBLE_EQ(m["macro_precision"], 1.0 / 3);
}

TEST(ClassMetrics, BatchesAddUpToTheWhole) {
  const MetricValues whole = of_classes(kAllOfClasses, 4, kScores, kLabels, kWeights);
  MetricSet parts(kAllOfClasses, {.classes = 4});
  for (size_t i = 0; i < kLabels.size(); i += 4) {
    const auto part = [&](const std::vector<float>& of, size_t each) {
      return Tensor::from(std::vector<float>(of.begin() + static_cast<int64_t>(each * i),
                                             of.begin() + static_cast<int64_t>(each * (i + 4))));
    };
    parts.add(part(kScores, 4), part(kLabels, 1), nullptr, part(kWeights, 1));
  }
  const MetricValues added = parts.values();
  EXPECT_EQ(added.samples, whole.samples);
  for (const auto& [name, value] : whole.values) EXPECT_NEAR(added[name], value, 1e-12) << name;
}

TEST(ClassMetrics, UndefinedValues) {
  for (const auto& [name, value] : MetricSet(kAllOfClasses, {.classes = 4}).values().values)
    EXPECT_TRUE(std::isnan(value)) << name;
  EXPECT_TRUE(std::isnan(
      of_classes({"multiclass_normalized_entropy"}, 2, {1, 2, 3, 4}, {1, 1})["multiclass_normalized_entropy"]));
}

TEST(ClassMetrics, RefuseWhatIsNoClass) {
  for (const float label : {-1.0f, 4.0f, 1.5f, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(test::refusal([&] {
                  of_classes({"macro_f1"}, 4, {1, 2, 3, 4}, {label});
                }),
                HasSubstr("the metric macro_f1 needs the number of a class as label, from 0 to 3, but one is "));
  }
  EXPECT_THAT(test::refusal([] { of_classes({"macro_f1"}, 2, {1, INFINITY}, {0}); }), HasSubstr("finite scores"));
  EXPECT_THAT(test::refusal([] { of_classes({"macro_f1"}, 2, {1, NAN}, {0}); }), HasSubstr("is not a number"));
  EXPECT_THAT(test::refusal([] {
                MetricSet set({"macro_f1"}, {.classes = 3});
                set.add(Tensor::from(std::vector<float>{1, 2}), Tensor::from(std::vector<float>{0}));
              }),
              HasSubstr("metrics need 3 times as many float32 scores as labels, not 2"));
}

TEST(ClassMetrics, RefuseHeadsThatTheyDoNotFit) {
  const Prediction click{"click", 0, true}, stars{"stars", 1, false}, kind{"kind", 2, false, std::nullopt, 3};
  const auto refused = [](const std::vector<Prediction>& heads, const std::string& name) {
    return test::refusal([&] { HeadMetrics(heads, {name}); });
  };
  EXPECT_THAT(refused({click}, "macro_f1"), HasSubstr("no head has a loss of classes, such as softmax_cross_entropy"));
  EXPECT_THAT(refused({click, kind}, "click.macro_f1"),
              HasSubstr("the head \"click\": the metric \"macro_f1\" needs a head of classes"));
  for (const char* name : {"auc", "rmse", "accuracy", "ndcg?key=user"}) {
    EXPECT_THAT(refused({kind}, name), HasSubstr("but the model predicts classes: take one of classes, such as "
                                                 "multiclass_accuracy"));
    EXPECT_THAT(refused({stars, kind}, std::string("kind.") + name),
                HasSubstr("judges one value for each sample, but here are 3 classes"));
  }
  EXPECT_THAT(refused({kind}, "multiclass_accuracy?k=3"), HasSubstr("is always 1 for 3 classes: take a k below 3"));
  EXPECT_THAT(refused({kind}, "multiclass_accuracy?k=0"), HasSubstr("k is 0, but must be between 1 and"));
  EXPECT_THAT(refused({kind}, "macro_f1?k=2"), HasSubstr("unknown option \"k\""));
  EXPECT_THAT(refused({kind}, "macro_f1?key=user"), HasSubstr("uses no groups"));
}

TEST(ClassMetrics, HeadsGetTheMetricsThatFit) {
  const std::vector<Prediction> heads = {{"click", 0, true}, {"stars", 1, false}, {"kind", 2, false, std::nullopt, 3}};
  const auto shown = [&](const std::vector<std::string>& names) {
    std::vector<std::string> out;
    for (const HeadMetric& m : head_metrics(heads, names)) out.push_back(m.shown);
    return out;
  };
  EXPECT_THAT(shown({"auc", "rmse", "macro_f1"}),
              testing::ElementsAre("click.auc", "click.rmse", "stars.rmse", "kind.macro_f1"));
  HeadMetrics usual({heads[2]});
  EXPECT_EQ(usual.shown(""), "multiclass_accuracy");
  EXPECT_LT(usual.cost("multiclass_accuracy", 0.9), usual.cost("multiclass_accuracy", 0.8));
  EXPECT_LT(usual.cost("multiclass_logloss", 0.8), usual.cost("multiclass_logloss", 0.9));
}

}  // namespace
}  // namespace tessera
