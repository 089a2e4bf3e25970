#include "sparse/arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"
namespace tessera::sparse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class F>
std::string refusal(F call) {
  return test::refusal([&] { call(); }, "");
}

TEST(Arrays, OffsetsAndLengthsKeepTheirType) {
  const Tensor offsets = offsets_of(Tensor::from<int32_t>({2, 0, 3}));
  EXPECT_THAT(offsets.to_vector<int32_t>(), ElementsAre(0, 2, 2, 5));
  EXPECT_THAT(lengths_of(offsets).to_vector<int32_t>(), ElementsAre(2, 0, 3));
  EXPECT_THAT(offsets_of(Tensor::empty({0}, DType::kInt64)).to_vector<int64_t>(), ElementsAre(0));
  EXPECT_EQ(lengths_of(Tensor::empty({0}, DType::kInt64)).numel(), 0);
}

TEST(Arrays, SumsThatDoNotFitAreRefused) {
  EXPECT_THAT(refusal([] { offsets_of(Tensor::from<int32_t>({INT32_MAX, 1})); }), HasSubstr("int32"));
  EXPECT_THAT(refusal([] { offsets_of(Tensor::from<int64_t>({INT64_MAX, 1})); }), HasSubstr("int64"));
  EXPECT_THAT(refusal([] { cumulative({INT64_MAX, 1}); }), HasSubstr("int64"));
  EXPECT_THAT(refusal([] { sum_of(Tensor::from<int64_t>({INT64_MAX, 1}), 0, 2); }), HasSubstr("int64"));
}

TEST(Arrays, IntegersAreChecked) {
  EXPECT_THAT(refusal([] { checked_integers(Tensor::from<float>({1}), "lengths"); }), HasSubstr("lengths are float32"));
  EXPECT_THAT(refusal([] {
                checked_integers(Tensor::zeros({1, 1}, DType::kInt64), "offsets");
              }),
              HasSubstr("offsets have 2"));
  EXPECT_EQ(checked_integers(Tensor::from<uint8_t>({3}), "lengths").dtype(), DType::kInt32);
  EXPECT_EQ(checked_integers(Tensor::empty({0}), "lengths").dtype(), DType::kInt32);
  EXPECT_EQ(checked_integers(Tensor::from<int64_t>({3}), "lengths").dtype(), DType::kInt64);
}

TEST(Arrays, ConcatenatesAlongAnyDimension) {
  const Tensor a = Tensor::from<float>({1, 2, 3, 4}).reshape({2, 2}), b = Tensor::from<float>({5, 6}).reshape({2, 1});
  EXPECT_THAT(concat(std::vector{a, b}, 1).to_vector<float>(), ElementsAre(1, 2, 5, 3, 4, 6));
  EXPECT_THAT(concat(std::vector{a, b.reshape({1, 2})}, 0).to_vector<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(refusal([&] { concat(std::vector{a, b.reshape({1, 2})}, 1); }), HasSubstr("tensor 1 differs"));
  EXPECT_THAT(refusal([&] { concat(std::vector{a}, 2); }), HasSubstr("dimension 2"));
  EXPECT_THAT(refusal([&] { concat({}, 0); }), HasSubstr("no tensors"));
}

TEST(Arrays, ConcatPromotesTypes) {
  const Tensor i32 = Tensor::from<int32_t>({1}), i64 = Tensor::from<int64_t>({2}), f32 = Tensor::from<float>({0.5f});
  EXPECT_EQ(concat(std::vector{i32, i64}, 0).dtype(), DType::kInt64);
  EXPECT_EQ(concat(std::vector{i64, f32}, 0).dtype(), DType::kFloat32);
  EXPECT_EQ(concat(std::vector{f32.to(DType::kFloat16), f32.to(DType::kBFloat16)}, 0).dtype(), DType::kFloat32);
  EXPECT_EQ(concat(std::vector{i64, f32.to(DType::kFloat64)}, 0).dtype(), DType::kFloat64);
}

TEST(Arrays, EmptyVectorsFitEverything) {
  const Tensor rows = Tensor::zeros({2, 3});
  EXPECT_THAT(concat(std::vector{Tensor::empty({0}), rows, Tensor::empty({0})}, 0).shape(), ElementsAre(2, 3));
  EXPECT_THAT(concat(std::vector{Tensor::empty({0}), Tensor::empty({0})}, 0).shape(), ElementsAre(0));
}

TEST(Arrays, RowsOutsideAreNamed) {
  const Tensor t = Tensor::from<float>({1, 2, 3});
  EXPECT_THAT(rows_of(t, 1, 3, "values").to_vector<float>(), ElementsAre(2, 3));
  EXPECT_THAT(refusal([&] { rows_of(t, 1, 4, "values"); }), HasSubstr("values [1, 4), but there are 3"));
  EXPECT_NE(refusal([&] { rows_of(t, 2, 1, "values"); }), "");
  EXPECT_NE(refusal([&] { rows_of(t, -1, 1, "values"); }), "");
  EXPECT_THAT(refusal([] { span_of(Tensor::from<int64_t>({4, 1}), 0, 1); }), HasSubstr("descend"));
}

TEST(Arrays, UnknownKeysListWhatThereIs) {
  EXPECT_EQ(position_of("b", {"a", "b"}), 1);
  EXPECT_EQ(refusal([] { position_of("c", {"a", "b"}); }), "no key \"c\": the keys are \"a\", \"b\"");
  EXPECT_EQ(refusal([] { position_of("c", {}); }), "no key \"c\": there are no keys");
  EXPECT_THAT(refusal([] { position_of("c", std::vector<std::string>(15, "k")); }), HasSubstr("and 3 more"));
}

}  // namespace
}  // namespace tessera::sparse
