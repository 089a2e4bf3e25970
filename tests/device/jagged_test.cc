// Keyed-jagged features on a device equal those in host memory. Tests a GPU (gpu_under_test.h), whose component has
// kernels for them, and the fake device, whose features pass through host memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "config/test_refusal.h"
#include "fake_runtime.h"
#include "gpu_under_test.h"
#include "modules/bounds.h"
#include "tessera/device.h"
#include "tessera/jagged_tensor.h"

namespace tessera {
namespace {

using testing::HasSubstr;

constexpr int64_t kKeys = 4, kStride = 37;
const std::vector<int64_t> kRows = {90, 7, 1000, 40};

struct Kind {
  DType ids, lengths;
  bool weighted;
};

KeyedJaggedTensor features(const Kind& kind, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<int64_t> ids, lengths;
  std::vector<float> weights;
  std::vector<std::string> keys;
  for (int64_t k = 0; k < kKeys; ++k) {
    keys.push_back(str_cat("f", k));
    for (int64_t b = 0; b < kStride; ++b) {
      lengths.push_back(static_cast<int64_t>(random() % 5));
      for (int64_t i = 0; i < lengths.back(); ++i) {
        ids.push_back(static_cast<int64_t>(random()) % kRows[static_cast<size_t>(k)]);
        weights.push_back(static_cast<float>(random() % 100));
      }
    }
  }
  return KeyedJaggedTensor::from_lengths_sync(keys, Tensor::from(ids).to(kind.ids),
                                              Tensor::from(lengths).to(kind.lengths),
                                              kind.weighted ? Tensor::from(weights) : Tensor());
}

void expect_equal(const Tensor& got, const Tensor& want, const char* what) {
  ASSERT_EQ(got.defined(), want.defined()) << what;
  EXPECT_EQ(got.dtype(), want.dtype()) << what;
  ASSERT_EQ(got.numel(), want.numel()) << what;
  for (int64_t i = 0; i < want.numel(); ++i) ASSERT_EQ(got.item(i), want.item(i)) << what << " " << i;
}

// The host's copy of `got` equals `want`, including all bits and types.
void expect_equal(const KeyedJaggedTensor& got, const KeyedJaggedTensor& want) {
  EXPECT_NE(got.values().stream(), nullptr);
  EXPECT_NE(got.offsets().stream(), nullptr);
  EXPECT_NE(got.lengths().stream(), nullptr);
  const KeyedJaggedTensor host = got.to_host();
  EXPECT_EQ(host.keys(), want.keys());
  EXPECT_EQ(host.stride(), want.stride());
  EXPECT_EQ(host.length_per_key(), want.length_per_key());
  expect_equal(host.values(), want.values(), "values");
  expect_equal(host.weights_or_null(), want.weights_or_null(), "weights");
  expect_equal(host.lengths(), want.lengths(), "lengths");
  expect_equal(host.offsets(), want.offsets(), "offsets");
}

RuntimeOptions with_both() {
  RuntimeOptions options = test::with_fake_device();
  options.plugin_path.push_back(TESSERA_EMULATOR_PLUGINS);
  return options;
}

class JaggedOnDevice : public testing::TestWithParam<const char*> {
 protected:
  // Calls that only enqueue do not wait on a device that has kernels for them.
  uint64_t waits() const { return device_->handles_jagged() ? device_->stats().synchronizes : 0; }

  Runtime runtime_{with_both()};
  DeviceStreamPtr device_ = open_device(runtime_, GetParam());
};
INSTANTIATE_TEST_SUITE_P(Devices, JaggedOnDevice, testing::Values("fake", test::gpu_under_test()),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(JaggedOnDevice, LengthsBecomeOffsets) {
  EXPECT_EQ(device_->handles_jagged(), GetParam() == test::gpu_under_test());
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    const KeyedJaggedTensor host = features({DType::kInt64, dtype, false});
    const KeyedJaggedTensor there = host.to(*device_);
    const uint64_t before = waits();
    there.offsets();
    EXPECT_EQ(waits(), before);
    expect_equal(there, host);
    expect_equal(device_->to_host(there["f2"].offsets()), host["f2"].offsets(), "offsets of a feature");
  }
}

TEST_P(JaggedOnDevice, PermuteMovesFeatures) {
  const std::vector<std::vector<int64_t>> orders = {{2, 0, 3, 1}, {1}, {3, 3, 0}, {}};
  for (const Kind& kind : {Kind{DType::kInt64, DType::kInt32, true}, Kind{DType::kInt32, DType::kInt64, false},
                           Kind{DType::kFloat32, DType::kInt32, true}}) {
    const KeyedJaggedTensor host = features(kind), there = host.to(*device_);
    there.offsets();
    for (const auto& order : orders) {
      const uint64_t before = waits();
      const KeyedJaggedTensor permuted = there.permute(order);
      EXPECT_EQ(waits(), before);
      expect_equal(permuted, host.permute(order));
    }
  }
}

TEST_P(JaggedOnDevice, PermuteOfVariableStridesMovesBlocks) {
  KeyedJaggedTensor::Options options;
  options.keys = {"a", "b"};
  options.values = Tensor::from<int64_t>({1, 2, 3, 4, 5, 6});
  options.lengths = Tensor::from<int32_t>({2, 1, 0, 1, 2});
  options.stride_per_key_per_rank = {{2}, {3}};
  const KeyedJaggedTensor host(options);
  expect_equal(host.to(*device_).permute({1, 0}), host.permute({1, 0}));
}

TEST_P(JaggedOnDevice, BucketizeSendsIdsToTheBlocksThatHoldThem) {
  for (const Kind& kind : {Kind{DType::kInt64, DType::kInt32, true}, Kind{DType::kInt32, DType::kInt64, false}}) {
    const KeyedJaggedTensor host = features(kind, 7), there = host.to(*device_);
    there.offsets();
    for (const int64_t blocks : {1, 3, 8}) {
      std::vector<int64_t> block_rows;
      for (const int64_t rows : kRows) block_rows.push_back((rows + blocks - 1) / blocks);
      const uint64_t before = waits();
      const Bucketized got = bucketize_by_blocks(there, block_rows, blocks);
      EXPECT_EQ(waits(), before);
      const Bucketized want = bucketize_by_blocks(host, block_rows, blocks);
      expect_equal(got.features, want.features);
      expect_equal(device_->to_host(got.positions), want.positions, "positions");
    }
  }
}

std::string message_of(const std::function<void()>& call, Code code) { return test::refusal(code, call); }

TEST(BucketizeByBlocks, PlacesIdsByHandAndRefusesWhatDoesNotFit) {
  const auto input = KeyedJaggedTensor::from_lengths_sync({"a", "b"}, Tensor::from<int64_t>({5, 0, 9, 3, 2}),
                                                          Tensor::from<int64_t>({2, 1, 0, 2}));
  const Bucketized out = bucketize_by_blocks(input, std::vector<int64_t>{5, 2}, 2);
  EXPECT_EQ(out.features.keys(), (std::vector<std::string>{"a", "b", "a", "b"}));
  EXPECT_EQ(out.features.lengths().to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 0, 0, 1, 1, 0, 2}));
  EXPECT_EQ(out.features.values().to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 4, 1, 0}));
  EXPECT_EQ(out.positions.to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 2, 3, 4}));
  const auto refusal = [&](std::vector<int64_t> rows, int64_t blocks, Code code) {
    return message_of([&] { bucketize_by_blocks(input, rows, blocks); }, code);
  };
  EXPECT_THAT(refusal({5, 1}, 2, Code::kOutOfRange), HasSubstr("feature \"b\", sample 1: id 3 is in none of 2 blocks"));
  EXPECT_THAT(refusal({5}, 2, Code::kInvalidArgument), HasSubstr("1 block sizes for 2 keys"));
  EXPECT_THAT(refusal({5, 0}, 2, Code::kInvalidArgument), HasSubstr("\"b\" cannot have 0 rows"));
  EXPECT_THAT(refusal({5, 2}, 0, Code::kInvalidArgument), HasSubstr("into 0 blocks"));
  // The first bag extends beyond the ids, the second one goes back: only together are they right.
  const auto beyond =
      KeyedJaggedTensor::from_lengths_sync({"a"}, Tensor::from<int64_t>({1, 2}), Tensor::from<int64_t>({9, -7}));
  EXPECT_THAT(message_of([&] { bucketize_by_blocks(beyond, std::vector<int64_t>{5}, 2); }, Code::kOutOfRange),
              HasSubstr("lead to no more than 2 values"));
}

struct Bounds {
  std::vector<BoundsFeature> features;
  CheckedIds of(BoundsCheckMode mode, const KeyedJaggedTensor& input) const {
    return check_bounds(mode, {input.values(), input.offsets(), input.weights_or_null(), features});
  }
};

Bounds bounds_of(const KeyedJaggedTensor& input) {
  Bounds out;
  for (int64_t k = 0; k < kKeys; k += 2) {  // no table reads the others, so any id is allowed there
    out.features.push_back(
        {input.keys()[static_cast<size_t>(k)], "t", kRows[static_cast<size_t>(k)], k * kStride, kStride});
  }
  return out;
}

TEST_P(JaggedOnDevice, BoundsAreCheckedWithOneWait) {
  const KeyedJaggedTensor host = features({DType::kInt64, DType::kInt32, true}), there = host.to(*device_);
  const Bounds bounds = bounds_of(host);
  there.offsets();
  const uint64_t before = waits();
  const CheckedIds checked = bounds.of(BoundsCheckMode::kFatal, there);
  EXPECT_TRUE(checked.clean);
  EXPECT_EQ(waits(), before + (device_->handles_jagged() ? 1 : 0));
}

TEST_P(JaggedOnDevice, WhatIsOutOfBoundsIsFoundAndRepairedAsInHostMemory) {
  const KeyedJaggedTensor host = features({DType::kInt32, DType::kInt32, true});
  const Bounds bounds = bounds_of(host);
  const int64_t unread = host.offset_per_key()[1], read = host.offset_per_key()[2] + 5;
  host.values().data<int32_t>()[unread] = 12345;
  EXPECT_TRUE(bounds.of(BoundsCheckMode::kFatal, host.to(*device_)).clean);
  for (const int32_t id : {-3, 1000}) {
    host.values().data<int32_t>()[read] = id;
    const KeyedJaggedTensor there = host.to(*device_);
    const auto sentence = [&](const KeyedJaggedTensor& input) {
      return message_of([&] { bounds.of(BoundsCheckMode::kFatal, input); }, Code::kOutOfRange);
    };
    EXPECT_EQ(sentence(there), sentence(host));
    const CheckedIds got = bounds.of(BoundsCheckMode::kIgnore, there), want = bounds.of(BoundsCheckMode::kIgnore, host);
    EXPECT_EQ(got.bad, want.bad);
    EXPECT_EQ(got.first, want.first);
    expect_equal(device_->to_host(got.ids), want.ids, "ids");
    expect_equal(device_->to_host(got.offsets), want.offsets, "offsets");
    expect_equal(device_->to_host(got.weights), want.weights, "weights");
  }
}

TEST_P(JaggedOnDevice, OffsetsThatDoNotEndAtTheIdsAreFound) {
  const KeyedJaggedTensor host = features({DType::kInt64, DType::kInt64, false});
  const Bounds bounds = bounds_of(host);
  for (const int64_t moved : {-1, 1}) {
    const Tensor offsets = host.offsets().clone();
    offsets.data<int64_t>()[offsets.numel() - 1] += moved;
    const BoundsInput there{device_->to_device(host.values()), device_->to_device(offsets), {}, bounds.features};
    EXPECT_THAT(message_of([&] { check_bounds(BoundsCheckMode::kFatal, there); }, Code::kOutOfRange),
                HasSubstr("the last offset is"));
  }
}

}  // namespace
}  // namespace tessera
