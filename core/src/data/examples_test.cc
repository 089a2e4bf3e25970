// Tests samples in memory, and the fields of lines.
#include "data/examples.h"

#include <gtest/gtest.h>

#include <limits>

#include "tessera/data.h"
#include "tessera/sdk/fields.h"

namespace tessera {
namespace {

using data::Examples;

TEST(Fields, HashesThatNeverChange) {
  EXPECT_EQ(sdk::row_of("o=", "student", 256), 162);
  EXPECT_EQ(sdk::row_of("s=", "M", 4), 1);
  EXPECT_EQ(sdk::row_of("s=", "F", 4), 3);
  EXPECT_EQ(sdk::row_of("z=", "941", 2048), 1192);
  EXPECT_EQ(sdk::row_of("g=", "Children's", 256), 248);
  EXPECT_EQ(sdk::row_of("t=", "the", 8192), 2783);
}

TEST(Fields, OnlyWholeNumbersCount) {
  double d = 0;
  int64_t i = 0;
  EXPECT_TRUE(sdk::parse_number("-1.5e2", d));
  EXPECT_EQ(d, -150);
  EXPECT_TRUE(sdk::parse_number("-7", i));
  EXPECT_EQ(i, -7);
  for (const char* bad : {"", "1x", " 1", "nan", "inf", "1e999"}) EXPECT_FALSE(sdk::parse_number(bad, d)) << bad;
  for (const char* bad : {"", "1.0", "+1", "99999999999999999999"}) EXPECT_FALSE(sdk::parse_number(bad, i)) << bad;
  float f = 0;
  EXPECT_TRUE(sdk::parse_number("3.4e38", f));
  EXPECT_EQ(f, 3.4e38f);
  for (const char* bad : {"3.5e38", "-1e300", "nan"}) EXPECT_FALSE(sdk::parse_number(bad, f)) << bad;
}

// Covers both layouts: samples of one id each, and of lists.
TEST(Examples, TakeOutClosesUp) {
  for (const bool lists : {false, true}) {
    Examples all(1, {{"one", 100}});
    for (int64_t i = 0; i < 40; ++i) {
      all.begin_sample(1);
      all.add_dense(static_cast<float>(i));
      for (int64_t k = 0; k < (lists ? i % 3 : 1); ++k) all.add_id(i);
      all.end_bag();
      all.end_sample();
    }
    const Examples out = all.take_out(10, [](int64_t i) { return i % 4 == 0; });
    EXPECT_EQ(out.size(), 7);
    EXPECT_EQ(all.size(), 33);
    int64_t next = 0, taken = 12;
    for (int64_t i = 0; i < all.size(); ++i, ++next) {
      if (next >= 10 && next % 4 == 0) ++next;
      ASSERT_EQ(all.dense(i)[0], static_cast<float>(next));
      ASSERT_EQ(all.num_ids(i), lists ? next % 3 : 1);
      ASSERT_TRUE(all.num_ids(i) == 0 || all.ids<int32_t>(i)[0] == next) << i;
    }
    for (int64_t i = 0; i < out.size(); ++i, taken += 4) {
      ASSERT_EQ(out.dense(i)[0], static_cast<float>(taken));
      ASSERT_TRUE(out.num_ids(i) == 0 || out.ids<int32_t>(i)[0] == taken) << i;
    }
  }
}

TEST(Examples, SplitOffKeepsEveryBag) {
  for (const bool single : {true, false}) {
    Examples all(1, {{"a", 100, "sum"}, {"b", int64_t{1} << 40, "sum"}});
    EXPECT_TRUE(all.wide());
    for (int s = 0; s < 6; ++s) {
      all.begin_sample(static_cast<float>(s % 2));
      all.add_dense(static_cast<float>(s));
      EXPECT_TRUE(all.add_id(s));
      all.end_bag();
      for (int j = 0; j < (single ? 1 : s % 3); ++j) all.add_id((int64_t{1} << 39) + s);
      all.end_bag();
      all.end_sample();
    }
    const Examples tail = all.take_out(2, [](int64_t) { return true; });
    EXPECT_EQ(all.size(), 2);
    ASSERT_EQ(tail.size(), 4);
    for (int s = 0; s < 6; ++s) {
      const Examples& part = s < 2 ? all : tail;
      const int at = s < 2 ? s : s - 2;
      const int64_t second = single ? 1 : s % 3;
      EXPECT_EQ(part.label(at), s % 2 == 1);
      EXPECT_EQ(part.dense(at)[0], s);
      ASSERT_EQ(part.num_ids(at), 1 + second);
      EXPECT_EQ(part.ids<int64_t>(at)[0], s);
      if (second > 0) {
        EXPECT_EQ(part.ids<int64_t>(at)[1], (int64_t{1} << 39) + s);
      }
      if (!single) {
        EXPECT_EQ(part.lengths(at)[1], second);
      }
      EXPECT_EQ(part.lengths(at) == nullptr, single);
    }
  }
}

// The columns are a dense value, a bag of one id, and a bag of `second` ids. Ids are `base` + the sample's number.
void expect_samples(const Examples& e, int64_t n, int64_t second, int64_t base) {
  ASSERT_EQ(e.size(), n);
  for (int64_t i = 0; i < n; ++i) {
    EXPECT_EQ(e.label(i), static_cast<float>(i % 2));
    EXPECT_EQ(e.dense(i)[0], static_cast<float>(i));
    ASSERT_EQ(e.num_ids(i), 1 + (second < 0 ? i % 3 : second)) << i;
    for (int64_t j = 0; j < e.num_ids(i); ++j) {
      EXPECT_EQ(e.wide() ? e.ids<int64_t>(i)[j] : e.ids<int32_t>(i)[j], base + i);
      const float weight = e.weighted() ? e.weights(i)[j] : 0.5f;
      EXPECT_EQ(weight, j == 0 && e.weighted() ? 1.0f : 0.5f);
    }
  }
}

TEST(Examples, ManySamplesAtOnceAreThoseOneByOne) {
  // Covers bags of one id, of any number, and empty first samples; narrow and wide ids; weights.
  for (const int64_t second : {1, -1}) {
    for (const int64_t base : {int64_t{5}, int64_t{1} << 40}) {
      Examples all(1, {{"a", 100, "sum"}, {"b", 100, "sum", base == 5}});
      for (int again = 0; again < 2; ++again) {
        for (int64_t first = 0; first < 12; first += 4) {
          std::vector<int64_t> ids = {-1}, begins = {1, 2, 3, 4, 5}, lists = {1};
          std::vector<int64_t> listed = {-1};
          std::vector<float> labels, dense, weights(40, 0.5f);
          for (int64_t i = first; i < first + 4; ++i) {
            labels.push_back(static_cast<float>(i % 2));
            dense.push_back(static_cast<float>(i));
            ids.push_back(base + i);
            listed.insert(listed.end(), static_cast<size_t>(second < 0 ? i % 3 : second), base + i);
            lists.push_back(std::ssize(listed));
          }
          all.append(labels, dense,
                     std::vector<Examples::Bags>{{ids.data(), begins.data(), nullptr},
                                                 {listed.data(), lists.data(), weights.data()}});
        }
        expect_samples(all, 12, second, base);
        EXPECT_EQ(all.wide(), base > 5);
        EXPECT_EQ(all.lengths(0) == nullptr, second == 1);
        all.clear();
        EXPECT_EQ(all.size(), 0);
        EXPECT_FALSE(all.wide());
      }
    }
  }
}

// Checks that append() keeps such ids of a table with `rows` rows, and says if the column has them all.
void expect_known(int64_t rows, const std::vector<int64_t>& ids, bool known, bool wide) {
  Examples all(0, {{"a", rows, "sum"}});
  const std::vector<int64_t> begins = {0, std::ssize(ids)};
  const std::vector<float> label = {1};
  EXPECT_EQ(all.append(label, {}, std::vector<Examples::Bags>{{ids.data(), begins.data(), nullptr}}), known)
      << rows << " rows, from id " << ids[0];
  EXPECT_EQ(all.wide(), wide) << rows << " rows, from id " << ids[0];
  for (size_t j = 0; j < ids.size(); ++j)
    EXPECT_EQ(wide ? all.ids<int64_t>(0)[j] : all.ids<int32_t>(0)[j], ids[j]) << rows << " rows";
}

TEST(Examples, ManyIdsAtOnceAreKnownOrNot) {
  constexpr int64_t kNarrow = std::numeric_limits<int32_t>::max();
  expect_known(1000, {999, 0}, true, false);
  expect_known(1000, {3, 1000}, false, false);
  expect_known(1000, {-1, 3}, false, false);
  expect_known(1000, {3, int64_t{1} << 40}, false, true);
  expect_known(1000, {(int64_t{1} << 32) + 5, 0}, false, true);
  expect_known(1000, {std::numeric_limits<int64_t>::min(), 1}, false, true);
  expect_known(kNarrow, {kNarrow - 1, 0}, true, false);
  expect_known(kNarrow + 2, {kNarrow + 1, 0}, true, true);
  expect_known(int64_t{1} << 40, {int64_t{1} << 40, 0}, false, true);
}

// Runs of ids are copied in whole steps. The memory after a run belongs to another bag, another sample, or a weight.
TEST(Examples, RunsOfAnyLengthAreKeptAndHandedOn) {
  for (const bool weighted : {false, true}) {
    Examples all(1, {{"a", 1 << 20, "sum"}, {"b", 1 << 20, "sum", weighted}});
    std::vector<int64_t> ids[2], begins[2] = {{0}, {0}};
    std::vector<float> labels, dense, weights;
    for (int64_t i = 0; i < 70; ++i) {
      labels.push_back(static_cast<float>(i % 2));
      dense.push_back(static_cast<float>(i));
      const int64_t lengths[2] = {(i * 7) % 40, i % 3 == 0 ? 0 : (i * 5) % 35};
      for (size_t k = 0; k < 2; ++k) {
        for (int64_t j = 0; j < lengths[k]; ++j) ids[k].push_back(1000 * i + 100 * static_cast<int64_t>(k) + j);
        begins[k].push_back(std::ssize(ids[k]));
      }
    }
    for (size_t j = 0; j < ids[1].size(); ++j) weights.push_back(static_cast<float>(j));
    ASSERT_TRUE(all.append(labels, dense,
                           std::vector<Examples::Bags>{{ids[0].data(), begins[0].data(), nullptr},
                                                       {ids[1].data(), begins[1].data(), weights.data()}}));
    Samples samples;
    samples.kept = std::make_shared<const Examples>(std::move(all));
    BatchReader reader(samples, {.batch = 70, .shuffle = false});
    Batch batch;
    ASSERT_TRUE(reader.next(batch));
    std::vector<int64_t> wanted = ids[0];
    wanted.insert(wanted.end(), ids[1].begin(), ids[1].end());
    ASSERT_EQ(batch.sparse.values().numel(), std::ssize(wanted));
    for (size_t j = 0; j < wanted.size(); ++j)
      ASSERT_EQ(batch.sparse.values().item(static_cast<int64_t>(j)), static_cast<double>(wanted[j])) << j;
    for (size_t j = 0; weighted && j < ids[1].size(); ++j)
      ASSERT_EQ(batch.sparse.weights().item(static_cast<int64_t>(ids[0].size() + j)), static_cast<double>(j)) << j;
    for (int64_t i = 0; i < 70; ++i) {
      ASSERT_EQ(batch.dense.item(i), static_cast<double>(i));
      ASSERT_EQ(batch.labels.item(i), static_cast<double>(i % 2));
    }
  }
}

TEST(Examples, KeepsIdsThatNoColumnHas) {
  Examples all(0, {{"a", 10, "sum"}});
  const std::vector<int64_t> ids = {3, 10, -1, int64_t{1} << 40, 9};
  for (const int64_t id : ids) {
    all.begin_sample(1);
    EXPECT_EQ(all.add_id(id), id == 3 || id == 9) << id;
    all.end_bag();
    all.end_sample();
    EXPECT_EQ(all.wide(), all.size() >= 4) << "as wide as the widest so far";
  }
  const Examples tail = all.take_out(1, [](int64_t) { return true; });
  EXPECT_EQ(all.ids<int64_t>(0)[0], 3);
  for (int64_t i = 0; i < tail.size(); ++i) EXPECT_EQ(tail.ids<int64_t>(i)[0], ids[static_cast<size_t>(i) + 1]);
}

}  // namespace
}  // namespace tessera
