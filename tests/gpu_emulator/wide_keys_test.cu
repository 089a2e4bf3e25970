// 64-bit keys, for tables whose rows together exceed 32 bits. Such tables are never allocated here: the first one
// claims more than 2^32 rows, and has memory only for rows that are touched.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

#include "emulator/runtime.h"
#include "gpu/update.h"
#include "tessera/abi/kernel.h"

namespace tessera::gpu {
namespace {

constexpr int64_t kHuge = (int64_t{1} << 32) + 7;
constexpr int64_t kTouched = 16, kRows = 64;
constexpr int32_t kDim = 4;

// Two tables with a feature each; the second one's keys begin after 2^32. Some runs are longer than a unit.
struct Setting {
  explicit Setting(uint32_t seed) {
    std::mt19937 random(seed);
    const int64_t rows[] = {kTouched, kRows};
    for (int32_t t = 0; t < 2; ++t) {
      weights[t].assign(static_cast<size_t>(rows[t] * kDim), 1.0f);
      tables[t] = {
          weights[t].data(), nullptr, nullptr, t == 0 ? kHuge : kRows, t == 0 ? 0 : kHuge, kDim, 0, 0, kDim, 1, 0};
      features[t] = {kBags, t * kBags, t * kDim, 2 * kDim, t * kBags, 0, t, TSR_POOLING_SUM, 1, 0};
      for (int64_t b = 0; b < kBags; ++b) {
        for (uint32_t i = random() % 4; i > 0; --i) {
          const bool hot = random() % 3 == 0;
          ids.push_back(hot ? 3 : static_cast<int64_t>(random()) % rows[t]);
          bag_of.push_back({t, b});
        }
        offsets.push_back(static_cast<int64_t>(ids.size()));
      }
    }
    for (int64_t i = 0; i < kBags * 2 * kDim; ++i) grad.push_back(static_cast<float>(random() % 17) - 8);
    batch = {tables, features, 2, 2, 2 * kBags, {ids.data(), true}, {offsets.data(), true}, nullptr};
    sizes = {static_cast<int64_t>(ids.size()), 2 * kBags, 2, kDim, kHuge + kRows, true};
    memory.resize(gradient_bytes(sizes) / sizeof(Line) + 1);
    work = gradient_work(sizes, memory.data());
  }

  // Table and row -> its gradient. Small whole numbers are exact in any order.
  std::map<std::pair<int32_t, int64_t>, std::vector<float>> sums() const {
    std::map<std::pair<int32_t, int64_t>, std::vector<float>> out;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto [table, bag] = bag_of[i];
      std::vector<float>& sum = out[{table, ids[i]}];
      sum.resize(kDim);
      for (int32_t c = 0; c < kDim; ++c)
        sum[static_cast<size_t>(c)] += grad[static_cast<size_t>((bag * 2 + table) * kDim + c)];
    }
    return out;
  }
  OutputGradient gradient() const { return {grad.data(), Storage::kFloat32, 1.0f, 0.0f, true}; }
  UpdateLaunch launch() const { return {tables, 2, kDim, Storage::kFloat32, true}; }

  static constexpr int64_t kBags = 150;
  struct alignas(256) Line {
    unsigned char bytes[256];
  };
  TableView tables[2];
  FeatureView features[2];
  std::vector<float> weights[2], grad;
  std::vector<int64_t> ids, offsets{0};
  std::vector<std::pair<int32_t, int64_t>> bag_of;
  BatchView batch;
  GradientSizes sizes;
  std::vector<Line> memory;
  GradientWork work;
};

class WideKeys : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    emulator::Config config = emulator::config();
    config.warp_size = GetParam();
    config.delay = std::chrono::microseconds(0);
    emulator::configure(config);
    stream_ = stream_create();
  }
  void TearDown() override { stream_destroy(stream_); }
  Stream stream_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Warps, WideKeys, testing::Values(32, 64));

TEST_P(WideKeys, RowsOfAllTablesAreUpdated) {
  Setting s(1);
  ASSERT_TRUE(s.sizes.wide_keys());
  ASSERT_GT(s.sizes.key_bits(), 32);
  UpdateStep step{};
  step.formula = Formula::kSgd;
  step.learning_rate = 0.5f;
  launch_gradient_plan(s.batch, s.sizes, s.work, stream_);
  launch_update(s.launch(), s.sizes, s.work, s.gradient(), step, stream_);
  stream_synchronize(stream_);
  const auto sums = s.sums();
  for (int32_t t = 0; t < 2; ++t) {
    for (size_t i = 0; i < s.weights[t].size(); ++i) {
      const auto sum = sums.find({t, static_cast<int64_t>(i) / kDim});
      const float g = sum == sums.end() ? 0.0f : sum->second[i % kDim];
      ASSERT_EQ(s.weights[t][i], 1.0f - 0.5f * g) << "table " << t << ", element " << i;
    }
  }
}

TEST_P(WideKeys, GradientsAreHandedOutInOrderOfTheirRows) {
  Setting s(2);
  launch_gradient_plan(s.batch, s.sizes, s.work, stream_);
  uint32_t starts[3] = {};
  launch_table_runs(s.batch, s.work, starts, stream_);
  stream_synchronize(stream_);
  const auto sums = s.sums();
  const auto second = sums.lower_bound({1, 0});
  ASSERT_EQ(starts[0], 0u);
  ASSERT_EQ(starts[1], std::distance(sums.begin(), second));
  ASSERT_EQ(starts[2], sums.size());
  std::vector<int64_t> rows(sums.size());
  std::vector<float> values(sums.size() * kDim);
  const RunTarget targets[] = {{rows.data(), values.data(), 0},
                               {rows.data() + starts[1], values.data() + starts[1] * kDim, starts[1]}};
  launch_hand_out(s.launch(), s.sizes, s.work, s.gradient(), targets, stream_);
  stream_synchronize(stream_);
  size_t run = 0;
  for (const auto& [where, sum] : sums) {
    ASSERT_EQ(rows[run], where.second) << run;
    for (size_t c = 0; c < kDim; ++c) ASSERT_EQ(values[run * kDim + c], sum[c]) << run;
    ++run;
  }
}

}  // namespace
}  // namespace tessera::gpu
