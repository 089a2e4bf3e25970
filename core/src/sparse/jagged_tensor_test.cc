// Cases that tests/conformance/sparse.json does not have: sharing, limits, the texts of errors.
#include "tessera/jagged_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"
namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <class F>
std::string refusal(F call, Code code = Code::kInvalidArgument) {
  return test::refusal(
      code, [&] { call(); }, "");
}

JaggedTensor three_rows() {
  return JaggedTensor({.values = Tensor::from<float>({1, 2, 3}), .lengths = Tensor::from<int64_t>({2, 0, 1})});
}

KeyedJaggedTensor two_keys(Tensor weights = {}) {
  return KeyedJaggedTensor::from_lengths_sync({"product", "user"},
                                              Tensor::from<int64_t>(std::vector<int64_t>{1, 2, 1, 5, 2, 3, 4, 1}),
                                              Tensor::from<int64_t>({3, 1, 2, 2}), std::move(weights));
}

TEST(JaggedTensor, RowsShareTheValues) {
  const JaggedTensor jt = three_rows();
  const auto rows = jt.to_dense();
  ASSERT_EQ(rows.size(), 3u);
  rows[0].data<float>()[0] = 9;
  EXPECT_EQ(jt.values().item(0), 9);
  EXPECT_EQ(jt.size(), 3);
}

TEST(JaggedTensor, PaddingWithoutRowsIsEmpty) {
  const auto jt = JaggedTensor({.values = Tensor::empty({0}), .lengths = Tensor::empty({0}, DType::kInt64)});
  EXPECT_THAT(jt.to_padded_dense().shape(), ElementsAre(0, 0));
  EXPECT_THAT(refusal([&] { jt.to_padded_dense(-1); }), HasSubstr("-1"));
}

TEST(JaggedTensor, ValuesOfThreeDimensionsPrint) {
  const auto jt =
      JaggedTensor({.values = Tensor::from<int64_t>({1, 2}).reshape({1, 1, 2}), .lengths = Tensor::from<int64_t>({1})});
  EXPECT_EQ(jt.str(), "JaggedTensor({\n    [[[[1, 2]]]]\n})\n");
}

TEST(JaggedTensor, DamagedLengthsAreErrorsNotReads) {
  const auto long_row = JaggedTensor({.values = Tensor::from<float>({1}), .lengths = Tensor::from<int64_t>({5})});
  EXPECT_THAT(refusal([&] { long_row.to_dense(); }, Code::kOutOfRange), HasSubstr("values [0, 5), but there are 1"));
  EXPECT_NE(refusal([&] { long_row.to_padded_dense(); }, Code::kOutOfRange), "");
  EXPECT_EQ(long_row.str(), "JaggedTensor({\n    [[1.0]]\n})\n");
  const auto negative =
      JaggedTensor({.values = Tensor::from<float>({1}), .offsets = Tensor::from<int64_t>({0, -3, 1})});
  EXPECT_NE(refusal([&] { negative.to_dense(); }, Code::kOutOfRange), "");
  EXPECT_THAT(refusal(
                  [] {
                    JaggedTensor::from_dense_lengths(Tensor::zeros({2, 3}), Tensor::from<int64_t>({4, -2}));
                  },
                  Code::kOutOfRange),
              HasSubstr("row 0 has length 4"));
}

TEST(JaggedTensor, Refuses) {
  EXPECT_THAT(refusal([] { JaggedTensor({.values = Tensor::from<float>({1})}); }), HasSubstr("lengths or offsets"));
  EXPECT_THAT(refusal([] { three_rows().weights(); }), HasSubstr("no weights"));
  EXPECT_THAT(refusal([] { JaggedTensor::from_dense({}); }), HasSubstr("at least one row"));
}

TEST(KeyedJaggedTensor, DefaultIsEmpty) {
  const KeyedJaggedTensor kjt;
  EXPECT_EQ(kjt.str(), "KeyedJaggedTensor()\n");
  EXPECT_EQ(kjt.lengths().numel(), 0);
  EXPECT_THAT(kjt.offset_per_key(), ElementsAre(0));
  EXPECT_THAT(kjt.to_dict(), IsEmpty());
}

TEST(KeyedJaggedTensor, PartsShareTheValues) {
  const KeyedJaggedTensor kjt = two_keys();
  EXPECT_EQ(kjt["user"].values().data<int64_t>(), kjt.values().data<int64_t>() + 4);
  EXPECT_EQ(kjt.split({1, 1})[1].values().data<int64_t>(), kjt.values().data<int64_t>() + 4);
  EXPECT_THAT(kjt["user"].offsets().to_vector<int64_t>(), ElementsAre(0, 2, 4));
}

TEST(KeyedJaggedTensor, SplitAndConcatAreInverse) {
  const KeyedJaggedTensor kjt = two_keys(Tensor::zeros({8}));
  const KeyedJaggedTensor again = KeyedJaggedTensor::concat(kjt.split({1, 1}));
  EXPECT_EQ(again.str(), kjt.str());
  EXPECT_EQ(again.stride(), 2);
}

TEST(KeyedJaggedTensor, EmptySegmentOfWeightedKeepsWeights) {
  const auto parts = two_keys(Tensor::zeros({8})).split({0, 2});
  EXPECT_EQ(parts[0].weights().numel(), 0);
  EXPECT_EQ(parts[0].stride(), 2);
  EXPECT_EQ(parts[0].offsets().numel(), 0);
}

TEST(KeyedJaggedTensor, VariableStrideStaysWithoutKeys) {
  const KeyedJaggedTensor kjt({.keys = {"a"},
                               .values = Tensor::from<int64_t>({7}),
                               .lengths = Tensor::from<int64_t>({1, 0}),
                               .stride_per_key_per_rank = {{2}}});
  const KeyedJaggedTensor none = kjt.split({0, 1})[0];
  EXPECT_TRUE(none.variable_stride_per_key());
  EXPECT_EQ(none.stride(), 2);
  EXPECT_THAT(none.stride_per_key_per_rank(), IsEmpty());
  EXPECT_TRUE(kjt.permute({}).variable_stride_per_key());
  EXPECT_EQ(KeyedJaggedTensor::concat({none, kjt}).str(), kjt.str());
  EXPECT_FALSE(two_keys().split({0, 2})[0].variable_stride_per_key());
}

TEST(KeyedJaggedTensor, PermuteToNothing) {
  const KeyedJaggedTensor none = two_keys().permute({});
  EXPECT_THAT(none.keys(), IsEmpty());
  EXPECT_EQ(none.stride(), 2);
  EXPECT_EQ(none.values().dtype(), DType::kInt64);
}

TEST(KeyedJaggedTensor, JaggedDictRoundTrip) {
  const KeyedJaggedTensor kjt = two_keys();
  EXPECT_EQ(KeyedJaggedTensor::from_jt_dict(kjt.to_dict()).str(), kjt.str());
  JaggedTensorDict mixed = kjt.to_dict();
  mixed[0].second = JaggedTensor({.values = Tensor::from<int64_t>({1}),
                                  .weights = Tensor::from<float>({1}),
                                  .lengths = Tensor::from<int64_t>({1, 0})});
  EXPECT_THAT(refusal([&] { KeyedJaggedTensor::from_jt_dict(mixed); }), HasSubstr("give all of them weights"));
}

TEST(KeyedJaggedTensor, RefusesWhatDoesNotFit) {
  const auto make = [](const KeyedJaggedTensor::Options& o) { return [o] { KeyedJaggedTensor kjt(o); }; };
  const Tensor v = Tensor::from<int64_t>({1, 2, 3}), l = Tensor::from<int64_t>({1, 1, 1});
  EXPECT_THAT(refusal(make({.keys = {"a", "b"}, .values = v, .lengths = l})), HasSubstr("3 lengths do not fit 2 keys"));
  EXPECT_THAT(refusal(make({.keys = {"a"}, .values = v})), HasSubstr("lengths or offsets"));
  EXPECT_THAT(refusal(make({.keys = {"a"}, .values = v, .lengths = l, .offsets = l})), HasSubstr("one more"));
  EXPECT_THAT(refusal(make({.keys = {"a"}, .values = v, .lengths = l, .stride_per_key_per_rank = {{1}, {2}}})),
              HasSubstr("2 rows for 1 keys"));
  EXPECT_THAT(refusal(make({.keys = {"a", "b"}, .values = v, .lengths = l, .stride_per_key_per_rank = {{1, 1}, {1}}})),
              HasSubstr("rows of 2 and 1 ranks"));
  EXPECT_THAT(refusal(make({.keys = {"a"}, .values = v, .lengths = l, .stride_per_key_per_rank = {{2}}})),
              HasSubstr("with these strides"));
  EXPECT_THAT(refusal(make({.keys = {"a"}, .values = v, .lengths = l, .stride = -1})), HasSubstr("-1"));
  EXPECT_THAT(
      refusal(make(
          {.keys = {"a"}, .values = v, .lengths = l, .inverse_indices = KeyedJaggedTensor::InverseIndices{{"a"}, l}})),
      HasSubstr("inverse indices are int64 of shape [1, batch]"));
}

TEST(KeyedJaggedTensor, RefusesWrongCuts) {
  const KeyedJaggedTensor kjt = two_keys();
  EXPECT_THAT(refusal([&] { kjt.split({2, 1}); }, Code::kOutOfRange), HasSubstr("there are 2 keys"));
  EXPECT_NE(refusal([&] { kjt.split({-1}); }, Code::kOutOfRange), "");
  EXPECT_NE(refusal([&] { kjt.permute({2}); }, Code::kOutOfRange), "");
  EXPECT_NE(refusal([&] { kjt.permute({-1}); }, Code::kOutOfRange), "");
  EXPECT_THAT(refusal([&] { (void)kjt["film"]; }, Code::kNotFound), HasSubstr("\"product\", \"user\""));
}

TEST(KeyedTensor, PartsAlongTheFirstDimension) {
  const auto kt =
      KeyedTensor::from_tensor_list({"a", "b"}, {Tensor::from<float>({1, 2}), Tensor::from<float>({3})}, 0, 0);
  EXPECT_THAT(kt["b"].to_vector<float>(), ElementsAre(3));
  EXPECT_EQ(kt.str(), "KeyedTensor({\n    \"a\": [1.0, 2.0],\n    \"b\": [3.0]\n})\n");
  EXPECT_THAT(KeyedTensor::regroup({kt}, {{"b", "a"}})[0].to_vector<float>(), ElementsAre(3, 1, 2));
}

TEST(KeyedTensor, LastInputWinsARepeatedKey) {
  const auto one = KeyedTensor::from_tensor_list({"a"}, {Tensor::from<float>({1}).reshape({1, 1})});
  const auto two = KeyedTensor::from_tensor_list({"a"}, {Tensor::from<float>({2}).reshape({1, 1})});
  EXPECT_EQ(KeyedTensor::regroup({one, two}, {{"a"}})[0].item(), 2);
}

TEST(KeyedTensor, GradientsOfRepeatedKeysAdd) {
  const auto kt = KeyedTensor::from_tensor_list({"a", "b"}, {Tensor::zeros({1, 1}), Tensor::zeros({1, 2})});
  const auto grads = KeyedTensor::regroup_backward(
      {kt}, {{"b"}, {"b", "a"}},
      {Tensor::from<float>({1, 2}).reshape({1, 2}), Tensor::from<float>({10, 20, 5}).reshape({1, 3})});
  EXPECT_THAT(grads[0].to_vector<float>(), ElementsAre(5, 11, 22));
}

TEST(KeyedTensor, Refuses) {
  const auto kt = KeyedTensor::from_tensor_list({"a"}, {Tensor::zeros({2, 3})});
  EXPECT_THAT(refusal([&] { KeyedTensor::regroup({kt}, {{"z"}}); }, Code::kNotFound), HasSubstr("\"z\""));
  EXPECT_THAT(refusal([&] { KeyedTensor::regroup({}, {}); }), HasSubstr("at least one"));
  EXPECT_THAT(refusal([&] { KeyedTensor::regroup_as_dict({kt}, {{"a"}}, {}); }), HasSubstr("0 names for 1 groups"));
  EXPECT_THAT(refusal([&] {
                KeyedTensor::regroup_backward({kt}, {{"a"}}, {Tensor::zeros({2, 2})});
              }),
              HasSubstr("gradient of group 0"));
  EXPECT_THAT(refusal([] { KeyedTensor({"a"}, {}, Tensor::zeros({1, 1})); }), HasSubstr("1 keys has 0 lengths"));
  EXPECT_THAT(refusal([] { KeyedTensor({"a"}, {1}, Tensor::zeros({1}), 1); }), HasSubstr("key dimension 1"));
  const KeyedTensor wide({"a"}, {5}, Tensor::zeros({1, 3}));
  EXPECT_NE(refusal([&] { (void)wide["a"]; }, Code::kOutOfRange), "");
  EXPECT_NE(refusal([&] { KeyedTensor::regroup({wide}, {{"a"}}); }), "");
}

}  // namespace
}  // namespace tessera
