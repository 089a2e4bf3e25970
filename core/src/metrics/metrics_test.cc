#include "tessera/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera {
namespace {

Predictions of(const std::vector<float>& logits, const std::vector<float>& labels) {
  Predictions p;
  p.add(Tensor::from(logits), Tensor::from(labels));
  return p;
}

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Metrics, AucByHand) {
  // Scores 0.1 n, 0.4 n, 0.35 p, 0.8 p: pairs won: 0.35>0.1, 0.8>0.1, 0.8>0.4; lost: 0.35<0.4. 3 of 4.
  EXPECT_DOUBLE_EQ(of({0.1f, 0.4f, 0.35f, 0.8f}, {0, 0, 1, 1}).metrics().auc, 0.75);
  EXPECT_DOUBLE_EQ(of({1, 2, 3, 4}, {0, 0, 1, 1}).metrics().auc, 1);
  EXPECT_DOUBLE_EQ(of({1, 2, 3, 4}, {1, 1, 0, 0}).metrics().auc, 0);
}

TEST(Metrics, TiesCountOneHalf) {
  EXPECT_DOUBLE_EQ(of({5, 5, 5, 5}, {0, 1, 0, 1}).metrics().auc, 0.5);
  // 2: one of each; 1: negative; 3: positive. Pairs: 2p-2n half, 2p-1n, 3p-2n, 3p-1n: 3.5 of 4.
  EXPECT_DOUBLE_EQ(of({2, 2, 1, 3}, {1, 0, 0, 1}).metrics().auc, 0.875);
  EXPECT_DOUBLE_EQ(of({-0.0f, 0.0f}, {1, 0}).metrics().auc, 0.5);
}

TEST(Metrics, LoglossEntropyAndCalibrationByHand) {
  // Probabilities 0.5, 0.75, 0.9 for labels 1, 0, 1.
  const BinaryMetrics m = of({0, std::log(3.0f), std::log(9.0f)}, {1, 0, 1}).metrics();
  EXPECT_EQ(m.samples, 3);
  EXPECT_EQ(m.positives, 2);
  const double loss = (std::log(2.0) + std::log(4.0) + std::log(10.0 / 9)) / 3;
  EXPECT_NEAR(m.logloss, loss, 1e-7);
  const double entropy = -(2.0 / 3) * std::log(2.0 / 3) - (1.0 / 3) * std::log(1.0 / 3);
  EXPECT_NEAR(m.normalized_entropy, loss / entropy, 1e-7);
  EXPECT_NEAR(m.calibration, (0.5 + 0.75 + 0.9) / 2, 1e-7);
}

TEST(Metrics, TheConstantGuessHasNormalizedEntropyOne) {
  const float logit = std::log(0.25f / 0.75f);
  const BinaryMetrics m = of({logit, logit, logit, logit}, {0, 0, 1, 0}).metrics();
  EXPECT_NEAR(m.normalized_entropy, 1, 1e-7);
  EXPECT_NEAR(m.calibration, 1, 1e-7);
}

TEST(Metrics, ExtremeLogitsStayFinite) {
  EXPECT_NEAR(logloss_of(800, true), 0, 1e-300);
  EXPECT_DOUBLE_EQ(logloss_of(800, false), 800);
  EXPECT_NEAR(logloss_of(-40, true), 40, 1e-9);
  const BinaryMetrics m = of({kInf, -kInf, 1e30f, -1e30f}, {1, 1, 0, 0}).metrics();
  EXPECT_DOUBLE_EQ(m.logloss, 50);  // two terms of 0, two cut to 100
  EXPECT_DOUBLE_EQ(m.calibration, 1);
  EXPECT_DOUBLE_EQ(m.auc, 0.5);
}

TEST(Metrics, WhatIsNotDefinedIsNaN) {
  const BinaryMetrics none = Predictions().metrics();
  EXPECT_TRUE(std::isnan(none.auc) && std::isnan(none.logloss) && std::isnan(none.normalized_entropy));
  const BinaryMetrics ones = of({1, 2}, {1, 1}).metrics();
  EXPECT_TRUE(std::isnan(ones.auc) && std::isnan(ones.normalized_entropy));
  EXPECT_FALSE(std::isnan(ones.logloss) || std::isnan(ones.calibration));
  EXPECT_TRUE(std::isnan(of({1, 2}, {0, 0}).metrics().calibration));
}

TEST(Metrics, MergingEqualsAddingEverythingAtOnce) {
  std::vector<float> logits, labels;
  Predictions left, right, merged;
  for (int i = 0; i < 1000; ++i) {
    logits.push_back(static_cast<float>((i * 7919) % 101) / 10 - 5);
    labels.push_back(static_cast<float>((i * 31 + i / 7) % 3 == 0));
  }
  left.add(Tensor::from(std::vector<float>(logits.begin(), logits.begin() + 300)),
           Tensor::from(std::vector<float>(labels.begin(), labels.begin() + 300)));
  right.add(Tensor::from(std::vector<float>(logits.begin() + 300, logits.end())),
            Tensor::from(std::vector<float>(labels.begin() + 300, labels.end())));
  for (const Predictions* part : {&right, &left})
    merged.add(Tensor::from(part->logits()), Tensor::from(part->labels()));
  const BinaryMetrics a = merged.metrics(), b = of(logits, labels).metrics();
  EXPECT_EQ(a.samples, b.samples);
  EXPECT_DOUBLE_EQ(a.auc, b.auc);
  EXPECT_NEAR(a.logloss, b.logloss, 1e-12);

  double won = 0, pairs = 0;  // the definition, pair by pair
  for (int i = 0; i < 1000; ++i) {
    for (int j = 0; j < 1000; ++j) {
      if (labels[i] != 1 || labels[j] != 0) continue;
      pairs += 1;
      won += logits[i] > logits[j] ? 1 : logits[i] == logits[j] ? 0.5 : 0;
    }
  }
  EXPECT_DOUBLE_EQ(a.auc, won / pairs);
}

TEST(Metrics, RefusesWrongInput) {
  Predictions p;
  EXPECT_THROW(p.add(Tensor::from({1.0f, 2.0f}), Tensor::from({1.0f})), Error);
  EXPECT_THROW(p.add(Tensor::from({1.0}), Tensor::from({1.0f})), Error);
  EXPECT_THROW(p.add(Tensor::from({1.0f}), Tensor::from({0.5f})), Error);
  EXPECT_THROW(p.add(Tensor::from({std::nanf("")}), Tensor::from({1.0f})), Error);
  EXPECT_EQ(p.size(), 0);
}

TEST(Metrics, ByName) {
  BinaryMetrics m;
  m.auc = 0.7, m.logloss = 0.5, m.normalized_entropy = 0.9, m.calibration = 1.2;
  EXPECT_EQ(metric_value(m, "auc"), 0.7);
  EXPECT_EQ(metric_value(m, "normalized_entropy"), 0.9);
  EXPECT_EQ(metric_cost(m, "auc"), -0.7);
  EXPECT_EQ(metric_cost(m, "logloss"), 0.5);
  EXPECT_NEAR(metric_cost(m, "calibration"), 0.2, 1e-12);
  m.auc = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(metric_cost(m, "auc"), std::numeric_limits<double>::infinity());
  EXPECT_THROW(metric_value(m, "acu"), Error);
}

}  // namespace
}  // namespace tessera
