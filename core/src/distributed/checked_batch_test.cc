// The bounds on what a step counts in int32, on counts that no machine holds.
#include "distributed/checked_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"
namespace tessera {
namespace {

constexpr int64_t kMost = 2147483647;

std::string refusal(const std::vector<FeatureBags>& bags, const std::vector<int64_t>& lengths, bool sequence = false) {
  std::vector<TableFeature> table_features(bags.size());
  for (size_t s = 0; s < table_features.size(); ++s) table_features[s].feature = str_cat("f", s);
  int64_t ids = 0;
  for (const int64_t n : lengths) ids += n;
  return test::refusal(
      Code::kOutOfRange, [&] { check_counts(table_features, bags, Tensor::from(lengths), ids, sequence); }, "");
}

TEST(CheckCounts, BoundsTheIdsOfABag) {
  const std::vector<FeatureBags> bags = {{0, 2, 0, 0}, {2, 2, 0, 0}};
  EXPECT_EQ(refusal(bags, {3, kMost, kMost, 1}), "");
  EXPECT_EQ(refusal(bags, {3, 0, 7, kMost + 1}),
            "feature \"f1\" has 2147483648 ids in sample 1, but at most 2147483647 can be in a rank's batch: make it "
            "smaller");
}

TEST(CheckCounts, BoundsTheSamplesOfAFeature) {
  EXPECT_EQ(refusal({{0, kMost, 0, 0}}, {}), "");
  EXPECT_THAT(refusal({{0, 1, 0, 0}, {1, kMost + 1, 0, 0}}, {1}),
              testing::HasSubstr("feature \"f1\" has 2147483648 samples, but"));
}

TEST(CheckCounts, BoundsTheIdsOfASequenceFeature) {
  const std::vector<FeatureBags> bags = {{0, 1, 0, 0}, {1, 2, 0, 0}};
  EXPECT_EQ(refusal(bags, {kMost, kMost, 1}), "");
  EXPECT_EQ(refusal(bags, {kMost, kMost - 1, 1}, true), "");
  EXPECT_THAT(refusal(bags, {1, kMost, 1}, true), testing::HasSubstr("\"f1\" has 2147483648 ids in a sequence batch"));
}

}  // namespace
}  // namespace tessera
