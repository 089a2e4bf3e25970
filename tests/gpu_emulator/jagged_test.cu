// Compares the jagged operations on the emulator with plain loops.
#include "gpu/jagged.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "emulator/runtime.h"

namespace tessera::gpu {
namespace {

// Random bags of 0..5 ids in [0, rows of the feature).
struct Jagged {
  Jagged(uint64_t seed, int32_t features, int64_t batch) {
    std::mt19937_64 random(seed);
    for (int32_t f = 0; f < features; ++f) {
      rows.push_back(static_cast<int64_t>(4 + random() % 90));
      for (int64_t b = 0; b < batch; ++b) {
        for (uint64_t i = random() % 6; i > 0; --i) {
          ids.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(rows.back())));
          weights.push_back(static_cast<float>(random() % 1000));
        }
        offsets.push_back(static_cast<int64_t>(ids.size()));
      }
    }
    view = {features,      batch, static_cast<int64_t>(ids.size()), {ids.data(), true}, {offsets.data(), true},
            weights.data()};
  }
  std::vector<int64_t> rows, ids, offsets{0};
  std::vector<float> weights;
  JaggedView view;
};

class JaggedTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    emulator::Config config = emulator::config();
    config.warp_size = GetParam();
    config.delay = std::chrono::microseconds(0);
    emulator::configure(config);
    stream_ = stream_create();
  }
  void TearDown() override { stream_destroy(stream_); }
  void wait() { stream_synchronize(stream_); }
  std::vector<uint64_t> scratch(int64_t lengths) { return std::vector<uint64_t>(scan_scratch_bytes(lengths) / 8); }
  Stream stream_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Warps, JaggedTest, testing::Values(32, 64));

TEST_P(JaggedTest, OffsetsAreSumsOfLengths) {
  for (int64_t count : {0, 1, 300, 5000}) {
    std::vector<int32_t> lengths(static_cast<size_t>(count));
    std::mt19937 random(static_cast<uint32_t>(count));
    for (int32_t& l : lengths) l = static_cast<int32_t>(random() % 7);
    std::vector<int64_t> offsets(lengths.size() + 1, -1), want{0};
    for (int32_t l : lengths) want.push_back(want.back() + l);
    auto words = scratch(count);
    launch_offsets({lengths.data(), false}, count, {offsets.data(), true}, words.data(), stream_);
    wait();
    EXPECT_EQ(offsets, want) << count;
  }
}

TEST_P(JaggedTest, BoundsAreCountedAndRepaired) {
  Jagged j(3, 4, 50);
  BoundsReport report{};
  launch_check_bounds(j.view, j.rows.data(), nullptr, &report, stream_);
  wait();
  EXPECT_EQ(report.bad_ids + report.bad_offsets + report.first_bag, 0u);

  const auto bag_of = [&](size_t p) {
    return std::upper_bound(j.offsets.begin(), j.offsets.end(), static_cast<int64_t>(p)) - j.offsets.begin() - 1;
  };
  const std::vector<int64_t> good = j.ids;
  j.ids[70] = -1;
  j.ids[71] = 1000;
  std::vector<int64_t> repaired(j.ids.size(), 77), want = good;
  want[70] = want[71] = 0;
  launch_check_bounds(j.view, j.rows.data(), repaired.data(), &report, stream_);
  wait();
  EXPECT_EQ(repaired, want);
  EXPECT_EQ(report.bad_ids, 2u);
  EXPECT_EQ(report.bad_offsets, 0u);
  EXPECT_EQ(UINT32_MAX - report.first_bag, static_cast<uint32_t>(bag_of(70)));

  j.ids = good;
  j.view.ids.data = j.ids.data();
  j.offsets[10] = j.view.num_ids + 9;  // bag 9 ends after the ids, bag 10 begins there
  launch_check_bounds(j.view, j.rows.data(), nullptr, &report, stream_);
  wait();
  EXPECT_EQ(report.bad_offsets, 2u);
  EXPECT_EQ(UINT32_MAX - report.first_bag, 9u);
}

TEST_P(JaggedTest, BucketizeSendsIdsToTheirOwnersInOrder) {
  for (int32_t ranks : {1, 3, 8}) {
    Jagged j(static_cast<uint64_t>(ranks), 5, 60);
    std::vector<int64_t> blocks;
    for (int64_t rows : j.rows) blocks.push_back((rows + ranks - 1) / ranks);
    const int64_t bags = j.view.features * j.view.batch;
    std::vector<int64_t> want_lengths, want_ids, want_positions(j.ids.size());
    std::vector<float> want_weights;
    for (int32_t r = 0; r < ranks; ++r) {
      for (int64_t bag = 0; bag < bags; ++bag) {
        const int64_t block = blocks[static_cast<size_t>(bag / j.view.batch)];
        want_lengths.push_back(0);
        for (int64_t p = j.offsets[bag]; p < j.offsets[bag + 1]; ++p) {
          if (j.ids[p] / block != r) continue;
          ++want_lengths.back();
          want_positions[p] = static_cast<int64_t>(want_ids.size());
          want_ids.push_back(j.ids[p] % block);
          want_weights.push_back(j.weights[p]);
        }
      }
    }
    std::vector<int64_t> lengths(want_lengths.size()), offsets(lengths.size() + 1), ids(j.ids.size()),
        positions(j.ids.size());
    std::vector<float> weights(j.ids.size());
    auto words = scratch(static_cast<int64_t>(lengths.size()));
    launch_bucketize(j.view, ranks, blocks.data(),
                     {{lengths.data(), true}, {offsets.data(), true}, ids.data(), weights.data(), positions.data()},
                     words.data(), stream_);
    wait();
    EXPECT_EQ(lengths, want_lengths) << ranks;
    EXPECT_EQ(ids, want_ids) << ranks;
    EXPECT_EQ(weights, want_weights) << ranks;
    EXPECT_EQ(positions, want_positions) << ranks;
    EXPECT_EQ(offsets.back(), j.view.num_ids);
  }
}

TEST_P(JaggedTest, PermuteMovesFeatures) {
  Jagged j(9, 4, 30);
  std::vector<int32_t> narrow(j.ids.begin(), j.ids.end());
  j.view.ids = {narrow.data(), false};
  const std::vector<int32_t> permute{2, 0, 2};
  std::vector<int64_t> want_lengths;
  std::vector<int32_t> want_ids;
  std::vector<float> want_weights;
  for (int32_t f : permute) {
    for (int64_t bag = f * 30; bag < (f + 1) * 30; ++bag) {
      want_lengths.push_back(j.offsets[bag + 1] - j.offsets[bag]);
      for (int64_t p = j.offsets[bag]; p < j.offsets[bag + 1]; ++p) {
        want_ids.push_back(narrow[p]);
        want_weights.push_back(j.weights[p]);
      }
    }
  }
  std::vector<int64_t> lengths(want_lengths.size()), offsets(lengths.size() + 1);
  std::vector<int32_t> ids(want_ids.size());
  std::vector<float> weights(want_ids.size());
  auto words = scratch(static_cast<int64_t>(lengths.size()));
  launch_permute(j.view, 3, permute.data(),
                 {{lengths.data(), true}, {offsets.data(), true}, ids.data(), weights.data()}, words.data(), stream_);
  wait();
  EXPECT_EQ(lengths, want_lengths);
  EXPECT_EQ(ids, want_ids);
  EXPECT_EQ(weights, want_weights);
}

}  // namespace
}  // namespace tessera::gpu
