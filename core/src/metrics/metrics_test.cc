#include "tessera/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "config/test_refusal.h"

namespace tessera {
namespace {

using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

MetricValues of(const std::vector<float>& logits, const std::vector<float>& labels,
                const std::vector<std::string>& names = kUsualMetrics) {
  MetricSet set(names);
  set.add(Tensor::from(logits), Tensor::from(labels));
  return set.values();
}

// The k-th sample belongs to group keys[k].
double of_groups(const std::string& name, const std::vector<float>& scores, const std::vector<float>& labels,
                 const std::vector<int64_t>& keys, const std::vector<float>& weights = {}) {
  MetricSet set({name});
  const auto columns = KeyedJaggedTensor::from_lengths_sync({"user"}, Tensor::from(keys),
                                                            Tensor::from(std::vector<int32_t>(keys.size(), 1)));
  set.add(Tensor::from(scores), Tensor::from(labels), &columns, weights.empty() ? Tensor() : Tensor::from(weights));
  return set.values()[name];
}

std::string error_of(const std::vector<std::string>& names) {
  return test::refusal([&] { const MetricSet set(names); });
}

TEST(Metrics, AucByHand) {
  // Scores are 0.1 n, 0.4 n, 0.35 p, 0.8 p. Pairs won: 0.35>0.1, 0.8>0.1, 0.8>0.4; lost: 0.35<0.4. That is 3 of 4.
  EXPECT_DOUBLE_EQ(of({0.1f, 0.4f, 0.35f, 0.8f}, {0, 0, 1, 1})["auc"], 0.75);
  EXPECT_DOUBLE_EQ(of({1, 2, 3, 4}, {0, 0, 1, 1})["auc"], 1);
  EXPECT_DOUBLE_EQ(of({1, 2, 3, 4}, {1, 1, 0, 0})["auc"], 0);
}

TEST(Metrics, TiesCountOneHalf) {
  EXPECT_DOUBLE_EQ(of({5, 5, 5, 5}, {0, 1, 0, 1})["auc"], 0.5);
  // Score 2 has one of each, 1 a negative, 3 a positive. Pairs: 2p-2n half, 2p-1n, 3p-2n, 3p-1n. That is 3.5 of 4.
  EXPECT_DOUBLE_EQ(of({2, 2, 1, 3}, {1, 0, 0, 1})["auc"], 0.875);
  EXPECT_DOUBLE_EQ(of({-0.0f, 0.0f}, {1, 0})["auc"], 0.5);
}

TEST(Metrics, LoglossEntropyAndCalibrationByHand) {
  // Probabilities are 0.5, 0.75, 0.9 for labels 1, 0, 1.
  const MetricValues m = of({0, std::log(3.0f), std::log(9.0f)}, {1, 0, 1});
  EXPECT_EQ(m.samples, 3);
  const double loss = (std::log(2.0) + std::log(4.0) + std::log(10.0 / 9)) / 3;
  EXPECT_NEAR(m["logloss"], loss, 1e-7);
  const double entropy = -(2.0 / 3) * std::log(2.0 / 3) - (1.0 / 3) * std::log(1.0 / 3);
  EXPECT_NEAR(m["normalized_entropy"], loss / entropy, 1e-7);
  EXPECT_NEAR(m["calibration"], (0.5 + 0.75 + 0.9) / 2, 1e-7);
}

// A sample of weight 3 counts as three samples, one of weight 0 as none.
TEST(Metrics, WeightsOfSamples) {
  const std::vector<std::string> names = {"auc", "auc?bins=100", "logloss", "ne", "calibration", "rmse", "accuracy"};
  MetricSet weighted(names), repeated(names);
  weighted.add(Tensor::from<float>({0.5f, -1, 2}), Tensor::from<float>({1, 0, 0}), nullptr,
               Tensor::from<float>({3, 1, 0}));
  weighted.add(Tensor::from<float>({0.25f}), Tensor::from<float>({0}));
  repeated.add(Tensor::from<float>({0.5f, 0.5f, 0.5f, -1, 0.25f}), Tensor::from<float>({1, 1, 1, 0, 0}));
  EXPECT_EQ(weighted.values().samples, 4);
  for (const std::string& name : names) EXPECT_NEAR(weighted.values()[name], repeated.values()[name], 1e-12) << name;
  EXPECT_THROW(
      weighted.add(Tensor::from<float>({1, 2}), Tensor::from<float>({1, 0}), nullptr, Tensor::from<float>({1})), Error);
}

TEST(HeadMetrics, FitTheHeads) {
  const std::vector<Prediction> heads = {{"click", 1, true}, {"stars", 0, false}};
  const auto shown = [&](const std::vector<std::string>& names) {
    std::vector<std::string> out;
    for (const HeadMetric& m : head_metrics(heads, names)) out.push_back(m.shown);
    return out;
  };
  EXPECT_EQ(shown({"auc", "rmse"}), (std::vector<std::string>{"click.auc", "click.rmse", "stars.rmse"}));
  EXPECT_EQ(shown({"stars.auc", "click.gauc?key=user"}),
            (std::vector<std::string>{"stars.auc", "click.gauc?key=user"}));
  const auto error = [](const std::vector<Prediction>& of, const std::vector<std::string>& names) {
    return test::refusal([&] { const HeadMetrics metrics(of, names); });
  };
  EXPECT_THAT(error({heads[1]}, {"ne"}), HasSubstr("\"stars.ne\" asks for it"));
  EXPECT_EQ(error(heads, {"clicks.auc?bins=9"}),
            "there is no metric \"clicks.auc?bins=9\": no head of the model that metrics judge is called \"clicks\"; "
            "the nearest is \"click\"");
  EXPECT_THAT(error(heads, {"click.auk"}), HasSubstr("there is no metric \"auk\"; the nearest is \"auc\""));
  EXPECT_THAT(error(heads, {"acme.lift"}), HasSubstr("there is no metric \"acme.lift\"; the nearest is "));
  EXPECT_THAT(error(heads, {"auc", "click.auc"}), HasSubstr("\"auc\" is asked for twice"));

  // A head whose value is a loss has only metrics that are asked for.
  const Prediction loss = {.head = "loss", .logits = false, .usual = false};
  EXPECT_EQ(HeadMetrics({heads[0], loss}).shown(""), "click.auc");
  EXPECT_EQ(HeadMetrics({heads[0], loss}, {"loss.mae"}).shown(""), "loss.mae");
  EXPECT_THAT(test::refusal([&] {
                (void)HeadMetrics({heads[0], loss}).shown("loss.rmse");
              }),
              HasSubstr("there is no metric \"loss.rmse\" here"));
  EXPECT_THAT(
      test::refusal([&] { (void)HeadMetrics({loss}).shown(""); }),
      HasSubstr("no head of the model has a metric: a head whose value is a loss or a rank has none by default"));

  HeadMetrics metrics(heads);
  Batch batch;
  batch.labels = Tensor::from<float>({3, 5});
  batch.further_labels = Tensor::from<float>({1, 0}).reshape({1, 2});
  metrics.add({Tensor::from<float>({2, -2}), Tensor::from<float>({4, 4})}, batch);
  const MetricValues values = metrics.values();
  EXPECT_DOUBLE_EQ(values["click.auc"], 1);
  EXPECT_DOUBLE_EQ(values["stars.rmse"], 1);
  EXPECT_EQ(values.samples, 2);
  EXPECT_EQ(metrics.shown(""), "click.auc");
  EXPECT_EQ(metrics.shown("mae"), "stars.mae");
  EXPECT_EQ(metrics.cost("stars.mae", 2), 2);
  EXPECT_EQ(metrics.cost("click.auc", 0.75), -0.75);
}

TEST(Metrics, ErrorsAndCountsByHand) {
  // Probabilities are 0.5, 0.75, 0.1, 0.9 for labels 1, 0, 0, 1.
  const MetricValues m = of({0, std::log(3.0f), -std::log(9.0f), std::log(9.0f)}, {1, 0, 0, 1},
                            {"mse", "rmse", "mae", "accuracy", "precision", "recall", "accuracy?threshold=0.8",
                             "precision?threshold=0.8", "recall?threshold=0.8", "ctr", "weighted_avg"});
  const double squares = 0.25 + 0.5625 + 0.01 + 0.01;
  EXPECT_NEAR(m["mse"], squares / 4, 1e-7);
  EXPECT_NEAR(m["rmse"], std::sqrt(squares / 4), 1e-7);
  EXPECT_NEAR(m["mae"], (0.5 + 0.75 + 0.1 + 0.1) / 4, 1e-7);
  EXPECT_DOUBLE_EQ(m["accuracy"], 0.75);
  EXPECT_DOUBLE_EQ(m["precision"], 2.0 / 3);
  EXPECT_DOUBLE_EQ(m["recall"], 1);
  EXPECT_DOUBLE_EQ(m["accuracy?threshold=0.8"], 0.75);
  EXPECT_DOUBLE_EQ(m["precision?threshold=0.8"], 1);
  EXPECT_DOUBLE_EQ(m["recall?threshold=0.8"], 0.5);
  EXPECT_DOUBLE_EQ(m["ctr"], 0.5);
  EXPECT_NEAR(m["weighted_avg"], 2.25 / 4, 1e-7);
}

TEST(Metrics, OfScoresThatAreNoLogits) {
  MetricSet set({"mae"}, {.logits = false});
  set.add(Tensor::from({3.0f, 4.5f}), Tensor::from({2.0f, 5.0f}));
  EXPECT_DOUBLE_EQ(set.values()["mae"], 0.75);
}

TEST(Metrics, TheConstantGuessHasNormalizedEntropyOne) {
  const float logit = std::log(0.25f / 0.75f);
  const MetricValues m = of({logit, logit, logit, logit}, {0, 0, 1, 0});
  EXPECT_NEAR(m["normalized_entropy"], 1, 1e-7);
  EXPECT_NEAR(m["calibration"], 1, 1e-7);
}

TEST(Metrics, ExtremeLogitsStayFinite) {
  const MetricValues m = of({kInf, -kInf, 1e30f, -1e30f}, {1, 1, 0, 0});
  EXPECT_NEAR(m["logloss"], 24 * std::log(2.0) / 2, 1e-4);  // two terms are 0, two are clamped
  EXPECT_DOUBLE_EQ(m["calibration"], 1);
  EXPECT_DOUBLE_EQ(m["auc"], 0.5);
  EXPECT_DOUBLE_EQ(of({60, 50, 55}, {1, 0, 0})["auc"], 1) << "equal in double as probabilities, not as logits";
}

// Training has logits; a predictor has float32 scores, whose largest value is 2^-24 below 1.
TEST(Metrics, SaturatedLogitsCountAsTheirScoresDo) {
  const std::vector<float> logits = {40, -40, 20, -20, 90, -90, 1}, labels = {0, 1, 1, 0, 0, 1, 0};
  std::vector<float> scores;
  for (const float logit : logits)
    scores.push_back(std::clamp(1 / (1 + std::exp(-logit)), std::numeric_limits<float>::min(), 1 - 0x1p-24f));
  for (const char* name : {"logloss", "normalized_entropy"}) {
    MetricSet trained({name}), predicted({name}, {.logits = false});
    trained.add(Tensor::from(logits), Tensor::from(labels));
    predicted.add(Tensor::from(scores), Tensor::from(labels));
    EXPECT_NEAR(trained.values()[name], predicted.values()[name], 1e-6) << name;
  }
}

TEST(Metrics, WhatIsNotDefinedIsNaN) {
  for (const std::string& name : metric_names()) {
    const std::string refused = error_of({name});
    if (refused.find("needs a head of classes") != std::string::npos) continue;  // classes_test.cc
    const bool grouped = refused != "no error";
    const std::string full = grouped ? name + "?key=user" : name;
    EXPECT_TRUE(std::isnan(MetricSet({full}).values()[full])) << full;
  }
  const MetricValues ones = of({1, 2}, {1, 1});
  EXPECT_TRUE(std::isnan(ones["auc"]) && std::isnan(ones["normalized_entropy"]));
  EXPECT_FALSE(std::isnan(ones["logloss"]) || std::isnan(ones["calibration"]));
  EXPECT_TRUE(std::isnan(of({1, 2}, {0, 0})["calibration"]));
}

TEST(Metrics, AucIsTheDefinitionPairByPairAndBinsComeNear) {
  std::vector<float> logits, labels;
  for (int i = 0; i < 1000; ++i) {
    logits.push_back(static_cast<float>((i * 7919) % 101) / 10 - 5);
    labels.push_back(static_cast<float>((i * 31 + i / 7) % 3 == 0));
  }
  double won = 0, pairs = 0;
  for (int i = 0; i < 1000; ++i) {
    for (int j = 0; j < 1000; ++j) {
      if (labels[i] != 1 || labels[j] != 0) continue;
      pairs += 1;
      won += logits[i] > logits[j] ? 1 : logits[i] == logits[j] ? 0.5 : 0;
    }
  }
  const MetricValues m = of(logits, labels, {"auc", "auc?bins=100000", "auc?bins=1"});
  EXPECT_DOUBLE_EQ(m["auc"], won / pairs);
  EXPECT_NEAR(m["auc?bins=100000"], m["auc"], 1e-9) << "101 values, a bin each";
  EXPECT_DOUBLE_EQ(m["auc?bins=1"], 0.5);
}

// Batches of any size give the same result as all samples at once.
TEST(Metrics, BatchesAddUp) {
  const std::vector<float> scores = {0.3f, -1, 2, 0.3f, 0.7f, -0.2f}, labels = {1, 0, 1, 0, 0, 1};
  const std::vector<int64_t> users = {4, 9, 4, 4, 9, 9};
  const std::vector<std::string> names = {"auc", "gauc?key=user", "ndcg?k=2&key=user", "logloss", "recall"};
  const auto add = [&](MetricSet& set, size_t begin, size_t end) {
    const auto n = static_cast<int64_t>(end - begin);
    const auto columns = KeyedJaggedTensor::from_lengths_sync(
        {"user"}, Tensor::from(std::vector<int64_t>(users.begin() + begin, users.begin() + end)),
        Tensor::from(std::vector<int32_t>(end - begin, 1)));
    set.add(Tensor::from(std::span(scores).subspan(begin, end - begin), {n, 1}),
            Tensor::from(std::vector<float>(labels.begin() + begin, labels.begin() + end)), &columns);
  };
  MetricSet whole(names), parts(names);
  add(whole, 0, 6);
  for (const auto& [begin, end] : {std::pair<size_t, size_t>{3, 6}, {0, 1}, {1, 3}}) add(parts, begin, end);
  for (const std::string& name : names) EXPECT_NEAR(parts.values()[name], whole.values()[name], 1e-12) << name;
  EXPECT_EQ(whole.keys(), std::vector<std::string>{"user"});
  parts.clear();
  EXPECT_EQ(parts.values().samples, 0);
  add(parts, 0, 6);
  EXPECT_EQ(parts.values().values, whole.values().values);
}

TEST(Metrics, OverGroups) {
  const std::vector<int64_t> users = {1, 1, 1, 2, 2, 3, 3};
  // User 1 wins both pairs, user 2 loses, and user 3 has no negative.
  EXPECT_DOUBLE_EQ(of_groups("gauc?key=user", {3, 2, 1, 1, 2, 1, 2}, {1, 0, 0, 1, 0, 1, 1}, users), 3.0 / 5);
  // The positives are in places 2, 1 and 1; for user 3 every place is positive.
  const double second = 1 / std::log2(3.0);
  EXPECT_NEAR(of_groups("ndcg?key=user", {2, 3, 1, 2, 1, 1, 2}, {1, 0, 0, 1, 0, 1, 1}, users), (second + 1 + 1) / 3,
              1e-12);
  EXPECT_NEAR(of_groups("ndcg?k=1&key=user", {2, 3, 1, 2, 1, 1, 2}, {1, 0, 0, 1, 0, 1, 1}, users), 2.0 / 3, 1e-12);
  // Soft labels: 1 / log2(2) + 0.5 / log2(3) is the best order, and these are reversed.
  EXPECT_NEAR(of_groups("ndcg?key=user", {1, 2}, {1, 0.5f}, {1, 1}), (0.5 + second) / (1 + 0.5 * second), 1e-12);
  EXPECT_DOUBLE_EQ(of_groups("recall_at_k?k=1&key=user", {3, 2, 1, 1, 2, 1, 2}, {1, 1, 0, 1, 0, 1, 1}, users),
                   (0.5 + 0 + 0.5) / 3);
  EXPECT_DOUBLE_EQ(of_groups("hit_rate?k=1&key=user", {3, 2, 1, 1, 2, 1, 2}, {1, 1, 0, 1, 0, 1, 1}, users), 2.0 / 3);
  // A user without positives is not counted as a group.
  EXPECT_DOUBLE_EQ(of_groups("hit_rate?k=1&key=user", {1, 2, 1}, {0, 1, 0}, {1, 1, 2}), 1);
}

TEST(Metrics, SamplesOfWeightZeroTakeNoPlaceInAGroup) {
  const std::vector<float> scores = {9, 3, 2, 1, 5, 4}, labels = {1, 0, 1, 0, 0, 1}, weights = {0, 1, 1, 1, 1, 0};
  const std::vector<int64_t> users = {1, 1, 1, 1, 2, 2};
  for (const char* name : {"gauc", "ndcg?k=1", "ndcg", "recall_at_k?k=1", "recall_at_k?k=2", "hit_rate?k=1"}) {
    const std::string metric = str_cat(name, std::string(name).find('?') == std::string::npos ? "?" : "&", "key=user");
    EXPECT_DOUBLE_EQ(of_groups(metric, scores, labels, users, weights),
                     of_groups(metric, {3, 2, 1, 5}, {0, 1, 0, 0}, {1, 1, 1, 2}))
        << metric;
  }
}

// With stars as labels, the better of two is in the second place. Labels below 0 gain nothing.
TEST(Metrics, NdcgTakesGrades) {
  const double second = 1 / std::log2(3.0);
  EXPECT_NEAR(of_groups("ndcg?key=user", {2, 1}, {3, 5}, {1, 1}), (3 + 5 * second) / (5 + 3 * second), 1e-12);
  EXPECT_NEAR(of_groups("ndcg?key=user", {2, 1}, {-3, 5}, {1, 1}), second, 1e-12);
}

TEST(Metrics, EqualScoresAreInEachOrderAsLikely) {
  // Four scores are equal, with one positive and two places.
  EXPECT_DOUBLE_EQ(of_groups("recall_at_k?k=2&key=user", {1, 1, 1, 1}, {0, 0, 1, 0}, {1, 1, 1, 1}), 0.5);
  EXPECT_DOUBLE_EQ(of_groups("hit_rate?k=2&key=user", {1, 1, 1, 1}, {0, 0, 1, 0}, {1, 1, 1, 1}), 0.5);
  // With two positives, the probability of no hit in 2 places is 2/4 * 1/3.
  EXPECT_DOUBLE_EQ(of_groups("hit_rate?k=2&key=user", {1, 1, 1, 1}, {0, 1, 1, 0}, {1, 1, 1, 1}), 1 - 1.0 / 6);
  EXPECT_DOUBLE_EQ(of_groups("ndcg?k=2&key=user", {1, 1}, {0, 1}, {1, 1}), (1 + 1 / std::log2(3.0)) / 2);
  EXPECT_DOUBLE_EQ(of_groups("hit_rate?k=3&key=user", {1, 1}, {0, 1}, {1, 1}), 1) << "fewer than k";
}

TEST(Metrics, OfRanks) {
  const std::vector<std::string> names = {"hit_rate@3", "ndcg@3", "mrr@3", "mrr", "recall@3"};
  MetricSet each(names, {nullptr, false});
  const Tensor ranks = Tensor::from<float>({1, 3, 4, 0, -1}), labels = Tensor::from<float>({1, 1, 1, 1, 1});
  each.add(ranks, labels);
  const MetricValues one = each.values();
  EXPECT_DOUBLE_EQ(one["hit_rate@3"], 0.5);
  EXPECT_DOUBLE_EQ(one["recall@3"], 0.5);
  EXPECT_DOUBLE_EQ(one["ndcg@3"], (1 + 0.5) / 4);
  EXPECT_DOUBLE_EQ(one["mrr@3"], (1 + 1.0 / 3) / 4);
  EXPECT_DOUBLE_EQ(one["mrr"], (1 + 1.0 / 3 + 0.25) / 4);
  // The first user has three items, the second a miss, and the third none.
  const auto by_user = [](const char* name) { return str_cat(name, "?by_group=true&key=user"); };
  MetricSet users({by_user("recall@3"), by_user("ndcg@3"), by_user("mrr")}, {nullptr, false});
  const auto columns = KeyedJaggedTensor::from_lengths_sync({"user"}, Tensor::from<int64_t>({5, 5, 5, 6, 7}),
                                                            Tensor::from<int32_t>({1, 1, 1, 1, 1}));
  users.add(ranks, labels, &columns);
  EXPECT_DOUBLE_EQ(users.values()[by_user("recall@3")], (2.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(users.values()[by_user("ndcg@3")], 1.5 / (1.5 + 1 / std::log2(3)) / 2);
  EXPECT_DOUBLE_EQ(users.values()[by_user("mrr")], 0.5);
  EXPECT_THROW(each.add(Tensor::from<float>({0.5F}), Tensor::from<float>({1})), Error);
  for (const char* wrong : {"ndcg@", "ndcg@0", "ndcg@x", "auc@3"}) EXPECT_THROW(make_metric(wrong), Error) << wrong;
}

TEST(Metrics, AGroupIsTheFirstIdOfABag) {
  MetricSet set({"hit_rate?k=1&key=user"});
  // The bags are {7, 5}, {}, {7}, {}, so there are two groups.
  const auto columns = KeyedJaggedTensor::from_lengths_sync({"user"}, Tensor::from(std::vector<int32_t>{7, 5, 7}),
                                                            Tensor::from(std::vector<int32_t>{2, 0, 1, 0}));
  set.add(Tensor::from({2.0f, 1.0f, 1.0f, 2.0f}), Tensor::from({1.0f, 1.0f, 0.0f, 0.0f}), &columns);
  EXPECT_DOUBLE_EQ(set.values()["hit_rate?k=1&key=user"], 0.5);
}

TEST(Metrics, RefusesWrongInput) {
  MetricSet p;
  EXPECT_THROW(p.add(Tensor::from({1.0f, 2.0f}), Tensor::from({1.0f})), Error);
  EXPECT_THROW(p.add(Tensor::from({1.0}), Tensor::from({1.0f})), Error);
  EXPECT_THROW(p.add(Tensor::from({std::nanf("")}), Tensor::from({1.0f})), Error);
  EXPECT_THROW(p.add(Tensor::from({1.0f}), Tensor::from({2.0f})), Error) << "a logloss of label 2";
  EXPECT_EQ(p.values().samples, 0);
  MetricSet grouped({"gauc?key=user"});
  EXPECT_THROW(grouped.add(Tensor::from({1.0f}), Tensor::from({1.0f})), Error);
}

TEST(Metrics, WhatCannotBeAskedForIsNamed) {
  EXPECT_THAT(error_of({"loglos"}),
              HasSubstr("there is no metric \"loglos\"; the nearest is \"logloss\", and there are "));
  EXPECT_THAT(error_of({"gauc"}), HasSubstr("name their column, as in ?key=user"));
  EXPECT_THAT(error_of({"logloss?key=user"}), HasSubstr("uses no groups, so it takes no key"));
  EXPECT_THAT(error_of({"ndcg?k=0&key=user"}), HasSubstr("the metric ndcg: k is 0, but must be between 1 and "));
  EXPECT_THAT(error_of({"accuracy?treshold=0.1"}), HasSubstr("the nearest known one is \"threshold\""));
  EXPECT_THAT(error_of({"auc", "auc"}), HasSubstr("is asked for twice"));
  EXPECT_THROW(of({1}, {1})["ndcg"], Error);
}

TEST(Metrics, CostsGoDownWhereMetricsGetBetter) {
  const MetricSet set({"auc", "logloss", "calibration", "ctr"});
  EXPECT_EQ(set.cost("auc", 0.7), -0.7);
  EXPECT_EQ(set.cost("logloss", 0.5), 0.5);
  EXPECT_NEAR(set.cost("calibration", 1.2), 0.2, 1e-12);
  EXPECT_EQ(set.cost("auc", std::nan("")), std::numeric_limits<double>::infinity());
  EXPECT_THROW(set.cost("ctr", 0.5), Error);
  EXPECT_THROW(set.cost("mae", 0.5), Error);
}

}  // namespace
}  // namespace tessera
