// Cases that `tessera conformance` does not have for these operators: refusals, empty inputs, bags used several times.
#include "conformance/parity/jagged_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"
#include "conformance/parity/feature_processor.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class Body>
std::string message_of(const Body& body, Code code = Code::kOutOfRange) {
  return test::refusal(code, body);
}

Tensor ints(const std::vector<int64_t>& values) { return Tensor::from(values); }

TEST(JaggedOps, PaddingAndBackAreInverse) {
  const Tensor values = Tensor::from<float>({1, 2, 3, 4, 5}), offsets[] = {ints({0, 2, 2, 5})};
  const int64_t lengths[] = {3};
  const Tensor dense = jagged_to_padded_dense(values, offsets, lengths, -1);
  EXPECT_EQ(dense.shape(), Shape({3, 3}));
  EXPECT_THAT(dense.to_vector<float>(), ElementsAre(1, 2, -1, -1, -1, -1, 3, 4, 5));
  EXPECT_EQ(dense_to_jagged(dense, offsets).to_vector<float>(), values.to_vector<float>());
}

TEST(JaggedOps, NothingStaysNothing) {
  const Tensor offsets[] = {ints({0})};
  const int64_t lengths[] = {3};
  EXPECT_EQ(jagged_to_padded_dense(Tensor::zeros({0}), offsets, lengths).shape(), Shape({0, 3}));
  EXPECT_EQ(invert_permute(Tensor::zeros({0}, DType::kInt64)).numel(), 0);
  EXPECT_EQ(jagged_index_select(Tensor::zeros({0}), ints({0, 0}), ints({1, 1})).values.numel(), 0);
  EXPECT_EQ(asynchronous_inclusive_cumsum(Tensor::zeros({2, 0}, DType::kInt32)).shape(), Shape({2, 0}));
}

TEST(JaggedOps, WhatLeadsBeyondTheDataIsNamed) {
  const Tensor values = Tensor::from<float>({1, 2, 3});
  const Tensor too_far[] = {ints({0, 2, 4})}, down[] = {ints({0, 2, 1})};
  const int64_t lengths[] = {2};
  EXPECT_THAT(message_of([&] { jagged_to_padded_dense(values, too_far, lengths); }),
              HasSubstr("offsets lead to element 4, but there are 3"));
  EXPECT_THAT(message_of([&] { jagged_to_padded_dense(values, down, lengths); }), HasSubstr("not descend"));
  EXPECT_THAT(message_of([&] {
                jagged_index_select(values, ints({1, 2}), ints({2}));
              }),
              HasSubstr("bag 2 is asked for, but there are 2"));
  EXPECT_THAT(message_of([&] {
                jagged_index_select(values, ints({1, 3}), ints({0}));
              }),
              HasSubstr("lengths add up to 4, but there are 3 values"));
  EXPECT_THAT(message_of([&] { segment_sum_csr(2, ints({0, 2}), values); }), HasSubstr("no more than 3 values"));
  EXPECT_THAT(message_of([&] { offsets_range(ints({0, 5}), 3); }), HasSubstr("row 0 is [0, 5), but there are 3"));
  EXPECT_THAT(message_of([&] { invert_permute(ints({0, 0})); }, Code::kInvalidArgument), HasSubstr("no permutation"));
  BlockBucketizeOptions options{.block_sizes = ints({4, 4})};
  EXPECT_THAT(message_of(
                  [&] {
                    block_bucketize_sparse_features({ints({1, 1, 1}), ints({1, 2, 3}), {}}, options);
                  },
                  Code::kInvalidArgument),
              HasSubstr("3 lengths are not whole batches of 2 features"));
}

TEST(JaggedOps, WhatDoesNotFitTogetherIsNamed) {
  const auto wrong = [](const auto& call) { return message_of(call, Code::kInvalidArgument); };
  const Tensor values = Tensor::from<float>({1, 2, 3}), none = ints({});
  const Tensor one[] = {ints({0, 2, 3})}, nested[] = {ints({0, 2}), ints({0, 1})};
  const int64_t two[] = {2, 2}, below[] = {-1};
  EXPECT_EQ(wrong([] {
              asynchronous_inclusive_cumsum(Tensor::zeros({1, 1, 1}, DType::kInt64));
            }),
            "running sums are of [n] or [m, n], not of 3 dimensions");
  EXPECT_EQ(wrong([&] { jagged_to_padded_dense(values, one, two); }), "there are 1 offsets for 2 lengths of rows");
  EXPECT_THAT(wrong([&] { jagged_to_padded_dense(values, one, below); }), HasSubstr("a row's length of -1"));
  EXPECT_EQ(message_of([&] { jagged_to_padded_dense(values, nested, two); }),
            "offsets lead beyond the rows of the next level");
  EXPECT_THAT(wrong([&] { dense_to_jagged(values, one); }),
              HasSubstr("a dimension for the rows and one for each of 1"));
  EXPECT_EQ(wrong([&] {
              dense_to_jagged(Tensor::zeros({3, 2}), one);
            }),
            "the dense tensor has 3 rows, but the offsets 2");
  const SparseData data{ints({1, 2, 1}), Tensor::zeros({4}), Tensor::zeros({3})};
  EXPECT_EQ(message_of([&] { permute_1D_sparse_data(ints({0}), data); }),
            "lengths add up to 4, but there are 3 weights");
  EXPECT_EQ(wrong([&] { keyed_jagged_index_select_dim1(data, ints({0}), 2); }), "3 lengths are not whole batches of 2");
  EXPECT_EQ(wrong([&] {
              segment_sum_csr(1, ints({0, 2}), Tensor::zeros({2}, DType::kFloat16));
            }),
            "values are float16: give float32 or int64");
  EXPECT_EQ(message_of([&] {
              jagged_index_select_backward(values, ints({1, 2}), ints({2}));
            }),
            "bag 2 is asked for, but there are 2");
  EXPECT_THAT(wrong([&] {
                jagged_index_select_backward(values, ints({1, 2}), ints({1, 1}));
              }),
              HasSubstr("has 3 values, which are too few"));
  EXPECT_EQ(wrong([&] {
              expand_into_jagged_permute(ints({0}), ints({0, 2}), ints({0}), 2);
            }),
            "there are 1 output offsets for 1 rows");
  EXPECT_EQ(message_of([&] {
              expand_into_jagged_permute(ints({0}), none, ints({0, 2}), 2);
            }),
            "row 0 is asked for, but there are 0");
  EXPECT_EQ(message_of([&] {
              expand_into_jagged_permute(ints({0}), ints({0, 2}), ints({0, 3}), 2);
            }),
            "output row 0 is [0, 3) of 2 elements");
}

TEST(JaggedOps, GradientsOfABagTakenTwiceAddUp) {
  const Tensor got = jagged_index_select_backward(Tensor::from<float>({1, 2, 10, 20}), ints({1, 2}), ints({1, 1}));
  EXPECT_THAT(got.to_vector<float>(), ElementsAre(0, 11, 22));
}

TEST(PositionWeights, BagsThatAreTooLongAreNamed) {
  const PositionWeightedModuleCollection processor({{"b", 2}});
  const auto features = KeyedJaggedTensor::from_lengths_sync({"a", "b"}, ints({1, 2, 3, 4, 5}), ints({2, 0, 0, 3}));
  EXPECT_EQ(message_of([&] { processor.forward(features); }),
            "feature \"b\", sample 1 has 3 ids, but position weights for 2");
  const auto fits = KeyedJaggedTensor::from_lengths_sync({"a", "b"}, ints({1, 2, 3, 4}), ints({2, 0, 1, 1}));
  processor.parameters()[0].weight.data<float>()[0] = 5;
  EXPECT_THAT(processor.forward(fits).weights().to_vector<float>(), ElementsAre(1, 1, 5, 5));
  EXPECT_THAT(processor.backward(fits, Tensor::from<float>({1, 2, 3, 4}))[0].to_vector<float>(), ElementsAre(7, 0));
  message_of([] { PositionWeightedModuleCollection({{"b", 2}, {"b", 3}}); }, Code::kInvalidArgument);
}

}  // namespace
}  // namespace tessera
