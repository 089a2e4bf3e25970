#include "data/hold_out.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "data/examples.h"

namespace tessera::data {
namespace {

// Sample i has its parity as label, the dense value i, the id i, and a bag of i mod 3 ids.
Examples numbered(int64_t n) {
  Examples out(1, {{"one", 1000}, {"many", 1000}});
  for (int64_t i = 0; i < n; ++i) {
    out.begin_sample(static_cast<float>(i % 2));
    out.add_dense(static_cast<float>(i));
    out.add_id(i);
    out.end_bag();
    for (int64_t k = 0; k < i % 3; ++k) out.add_id(k);
    out.end_bag();
    out.end_sample();
  }
  return out;
}

std::vector<int64_t> numbers_of(const Examples& examples) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < examples.size(); ++i) {
    const auto number = static_cast<int64_t>(examples.dense(i)[0]);
    EXPECT_EQ(examples.label(i), number % 2 == 1);
    EXPECT_EQ(examples.ids<int32_t>(i)[0], number);
    EXPECT_EQ(examples.num_ids(i), 1 + number % 3);
    out.push_back(number);
  }
  return out;
}

TEST(HoldOut, TheLastOnes) {
  const auto [trained, kept] = hold_out(numbered(10), {0.3, true, 1});
  EXPECT_THAT(numbers_of(*trained), testing::ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(numbers_of(*kept), testing::ElementsAre(7, 8, 9));
}

TEST(HoldOut, FoldsAreAllSamples) {
  Config config;
  config.validation.folds = 7;
  std::vector<int> held(1000);
  for (int64_t fold = 0; fold < 7; ++fold) {
    config.validation.fold = fold;
    const HoldOut options = HoldOut::of(config);
    int count = 0;
    for (int64_t i = 0; i < 1000; ++i) {
      if (!options.takes(i, 1000, 0, false)) continue;
      ++held[static_cast<size_t>(i)];
      ++count;
    }
    EXPECT_NEAR(count, 143, 40);
  }
  EXPECT_THAT(held, testing::Each(1)) << "each sample is held out once";
}

TEST(HoldOut, RandomOnesThatTheSeedNames) {
  const Examples all = numbered(1000);
  const auto [trained, kept] = hold_out(all, {0.2, false, 1});
  const std::vector<int64_t> first = numbers_of(*trained), second = numbers_of(*kept);
  std::set<int64_t> together(first.begin(), first.end());
  together.insert(second.begin(), second.end());
  EXPECT_EQ(together.size(), 1000u);
  EXPECT_EQ(first.size() + second.size(), 1000u);
  EXPECT_NEAR(static_cast<double>(second.size()), 200, 60);
  EXPECT_LT(second.front(), 100);
  EXPECT_EQ(numbers_of(*hold_out(all, {0.2, false, 1}).second), second);
  EXPECT_NE(numbers_of(*hold_out(all, {0.2, false, 2}).second), second);
}

}  // namespace
}  // namespace tessera::data
