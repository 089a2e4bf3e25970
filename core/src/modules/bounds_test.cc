#include "modules/bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Feature "f" of table "t" with 4 rows: bags {0, 9}, {}, {-1, 3, 2}.
struct Batch {
  Tensor ids = Tensor::from<int64_t>({0, 9, -1, 3, 2});
  Tensor offsets = Tensor::from<int32_t>({0, 2, 2, 5});
  Tensor weights;
  std::vector<BoundsFeature> features{{"f", "t", 4, 0, 3}};
  bool always_copy = false;

  CheckedIds check(BoundsCheckMode mode) const {
    BoundsInput input{ids, offsets, weights, features, always_copy};
    return check_bounds(mode, input);
  }
};

std::string refusal(const Batch& batch) {
  return test::refusal(
      Code::kOutOfRange, [&] { (void)batch.check(BoundsCheckMode::kFatal); }, "");
}

TEST(BoundsTest, GoodBatchIsNotCopied) {
  Batch batch{.ids = Tensor::from<int32_t>({0, 1, 2, 3, 2})};
  for (const BoundsCheckMode mode : {BoundsCheckMode::kFatal, BoundsCheckMode::kIgnore, BoundsCheckMode::kWarning}) {
    const CheckedIds checked = batch.check(mode);
    EXPECT_TRUE(checked.clean);
    EXPECT_FALSE(checked.ids.defined());
    EXPECT_TRUE(checked.first.empty());
  }
}

TEST(BoundsTest, FatalNamesFeatureSampleIdAndBound) {
  const std::string text = refusal({});
  for (const char* word : {"\"f\"", "sample 0", "id 9", "\"t\"", "0 to 3"}) EXPECT_THAT(text, HasSubstr(word));
  Batch negative{.ids = Tensor::from<int64_t>({0, 0, -1, 3, 2})};
  EXPECT_THAT(refusal(negative), HasSubstr("sample 2: id -1"));
}

TEST(BoundsTest, IgnoreDropsButKeepsLengths) {
  Batch batch{.weights = Tensor::from<float>({1, 2, 3, 4, 5})};
  const CheckedIds checked = batch.check(BoundsCheckMode::kIgnore);
  ASSERT_FALSE(checked.clean);
  EXPECT_THAT(checked.ids.to_vector<int64_t>(), ElementsAre(0, 3, 2));
  EXPECT_THAT(checked.offsets.to_vector<int64_t>(), ElementsAre(0, 1, 1, 3));
  EXPECT_THAT(checked.weights.to_vector<float>(), ElementsAre(1, 4, 5));
  EXPECT_THAT(checked.positions.to_vector<int64_t>(), ElementsAre(0, 3, 4));
  EXPECT_THAT(checked.lengths.to_vector<int64_t>(), ElementsAre(2, 0, 3));
  EXPECT_THAT(checked.bad, ElementsAre(2));
  EXPECT_THAT(checked.first, HasSubstr("id 9"));
  EXPECT_THAT(batch.ids.to_vector<int64_t>(), ElementsAre(0, 9, -1, 3, 2));
}

TEST(BoundsTest, PaddingCountsNowhere) {
  Batch batch{.ids = Tensor::from<int64_t>({0, 2, 2, 3, 2})};
  batch.features[0].padding_idx = 2;
  const CheckedIds checked = batch.check(BoundsCheckMode::kFatal);
  ASSERT_FALSE(checked.clean);
  EXPECT_THAT(checked.ids.to_vector<int64_t>(), ElementsAre(0, 3));
  EXPECT_THAT(checked.lengths.to_vector<int64_t>(), ElementsAre(1, 0, 1));
  EXPECT_TRUE(checked.first.empty());
}

TEST(BoundsTest, ColumnsOfTwoTablesWithDifferentRows) {
  Batch batch{.ids = Tensor::from<int64_t>({0, 4, 1, 3, 2}),
              .features = {{"f", "small", 4, 0, 3}, {"f", "large", 5, 0, 3}, {"f", "small", 4, 2, 1}}};
  const CheckedIds checked = batch.check(BoundsCheckMode::kIgnore);
  EXPECT_THAT(checked.bad, ElementsAre(1, 0, 0));
  EXPECT_THAT(checked.first_bag, ElementsAre(0, 3, 6));
  EXPECT_THAT(checked.begin, ElementsAre(0, 0, 2));
  EXPECT_THAT(checked.ids.to_vector<int64_t>(), ElementsAre(0, 1, 3, 2, 0, 4, 1, 3, 2, 1, 3, 2));
}

TEST(BoundsTest, AlwaysCopyIsNoFinding) {
  Batch batch{.ids = Tensor::from<int64_t>({0, 1, 1, 3, 2}), .always_copy = true};
  const CheckedIds checked = batch.check(BoundsCheckMode::kFatal);
  EXPECT_FALSE(checked.clean);
  EXPECT_TRUE(checked.first.empty());
  EXPECT_EQ(checked.ids.numel(), 5);
}

TEST(BoundsTest, BadOffsets) {
  Batch batch{.ids = Tensor::from<int64_t>({0, 1, 2, 3, 2}), .offsets = Tensor::from<int64_t>({0, 3, 2, 7})};
  EXPECT_THAT(refusal(batch), HasSubstr("last offset is 7"));
  const CheckedIds checked = batch.check(BoundsCheckMode::kWarning);
  EXPECT_EQ(checked.bad_offsets, 2);
  EXPECT_THAT(checked.offsets.to_vector<int64_t>(), ElementsAre(0, 3, 3, 5));
  EXPECT_THAT(checked.ids.to_vector<int64_t>(), ElementsAre(0, 1, 2, 3, 2));
  batch.offsets = Tensor::from<int64_t>({0, 3, 2, 5});
  EXPECT_THAT(refusal(batch), HasSubstr("\"f\", sample 1"));
  batch.offsets = Tensor::from<int64_t>({-1, 2, 2, 5});
  EXPECT_THAT(refusal(batch), HasSubstr("sample 0"));
}

TEST(BoundsTest, WrongTypesAreRefusedInEveryMode) {
  Batch batch{.ids = Tensor::zeros({5})};
  EXPECT_THROW((void)batch.check(BoundsCheckMode::kIgnore), Error);
  batch = {};
  batch.weights = Tensor::zeros({4});
  EXPECT_THROW((void)batch.check(BoundsCheckMode::kIgnore), Error);
  batch = {};
  batch.features[0].bags = 4;
  EXPECT_THROW((void)batch.check(BoundsCheckMode::kIgnore), Error);
}

TEST(BoundsTest, RowsBeyondTheIdType) {
  Batch batch{.ids = Tensor::from<int32_t>({0, INT32_MAX, 5, 3, 2})};
  batch.features[0].rows = int64_t{1} << 40;
  EXPECT_TRUE(batch.check(BoundsCheckMode::kFatal).clean);
  batch.ids = Tensor::from<int32_t>({0, -5, 5, 3, 2});
  EXPECT_THAT(refusal(batch), HasSubstr("id -5"));
  batch.features[0].rows = 0;
  EXPECT_THAT(refusal(batch), HasSubstr("no rows"));
}

TEST(BoundsTest, FbgemmRepair) {
  const int64_t rows[] = {4, 2};
  const auto out = bounds_check_indices(BoundsCheckMode::kWarning, rows, Tensor::from<int64_t>({5, -1, 1, 7}),
                                        Tensor::from<int32_t>({0, 1, 2, 3, 9}));
  EXPECT_THAT(out.indices.to_vector<int64_t>(), ElementsAre(0, -1, 1, 0));
  EXPECT_THAT(out.offsets.to_vector<int32_t>(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(out.warning_count, 3);
  EXPECT_THROW((void)bounds_check_indices(BoundsCheckMode::kFatal, rows, Tensor::from<int64_t>({5}),
                                          Tensor::from<int64_t>({0, 1, 1})),
               Error);
}

}  // namespace
}  // namespace tessera
