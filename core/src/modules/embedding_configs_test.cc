#include "tessera/embedding_configs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "config/test_refusal.h"
#include "tessera/lookup.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

EmbeddingBagConfig table(const std::string& name, int64_t rows = 10, int64_t dim = 4,
                         std::vector<std::string> features = {}) {
  return {.name = name, .num_embeddings = rows, .embedding_dim = dim, .feature_names = std::move(features)};
}

std::string refusal(std::vector<EmbeddingBagConfig> tables) {
  return test::refusal(
      Code::kInvalidArgument, [&] { validated(std::move(tables)); }, "");
}

TEST(EmbeddingConfigs, NamesAreReadInEitherCase) {
  EXPECT_EQ(pooling_from("sum"), PoolingType::kSum);
  EXPECT_EQ(pooling_from("MEAN"), PoolingType::kMean);
  EXPECT_EQ(pooling_from("Max"), PoolingType::kMax);
  EXPECT_EQ(pooling_from("NONE"), PoolingType::kNone);
  EXPECT_STREQ(to_string(PoolingType::kMean), "MEAN");
  EXPECT_EQ(bounds_check_from("fatal"), BoundsCheckMode::kFatal);
  EXPECT_EQ(bounds_check_from("WARNING"), BoundsCheckMode::kWarning);
  EXPECT_EQ(bounds_check_from("ignore"), BoundsCheckMode::kIgnore);
  EXPECT_THROW(pooling_from("median"), Error);
  EXPECT_THROW(pooling_from(""), Error);
  EXPECT_THROW(bounds_check_from("warn?"), Error);
}

TEST(EmbeddingConfigs, ValidatedFillsInFeatureNames) {
  const auto tables = validated({table("t1"), table("t2", 10, 4, {"a", "b"})});
  EXPECT_THAT(tables[0].feature_names, ElementsAre("t1"));
  EXPECT_THAT(tables[1].feature_names, ElementsAre("a", "b"));
}

TEST(EmbeddingConfigs, ValidatedRefuses) {
  EXPECT_THAT(refusal({table("")}), HasSubstr("no name"));
  EXPECT_THAT(refusal({table("t"), table("t")}), HasSubstr("two tables are named \"t\""));
  EXPECT_THAT(refusal({table("t", 0)}), HasSubstr("0 rows"));
  EXPECT_THAT(refusal({table("t", 5, -1)}), HasSubstr("-1 columns"));
  EXPECT_THAT(refusal({table("t", INT64_MAX / 4, 64)}), HasSubstr("64 bits"));
  EXPECT_THAT(refusal({table("t", 5, 4, {"f", "f"})}), HasSubstr("\"f\" twice"));
  EXPECT_THAT(refusal({table("t", 5, 4, {""})}), HasSubstr("without a name"));
  auto integers = table("t");
  integers.data_type = DType::kInt32;
  EXPECT_THAT(refusal({integers}), HasSubstr("int32"));
  auto wide = table("t");
  wide.init_range = -1.0;
  EXPECT_THAT(refusal({wide}), HasSubstr("init_range"));
  wide.init_range = std::nan("");
  EXPECT_THAT(refusal({wide}), HasSubstr("init_range"));
}

TEST(EmbeddingConfigs, SharedFeaturesCarryTheTable) {
  const auto names = embedding_names_by_table({table("t1", 10, 4, {"a", "b"}), table("t2", 10, 4, {"b"}), table("t3")});
  EXPECT_THAT(names, ElementsAre(ElementsAre("a", "b@t1"), ElementsAre("b@t2"), ElementsAre("t3")));
}

TEST(InitialValues, AreTheSameUnderAnyCut) {
  const auto t = table("t", 37, 9);
  std::vector<float> whole(size_t{37} * 9);
  initial_values(t, 7, 0, 37, 0, 9, whole.data());
  for (const auto& [row, rows, col, cols] :
       std::vector<std::array<int64_t, 4>>{{0, 37, 0, 9}, {5, 20, 0, 9}, {0, 37, 3, 4}, {36, 1, 8, 1}, {11, 3, 1, 7}}) {
    std::vector<float> cut(rows * cols);
    initial_values(t, 7, row, rows, col, cols, cut.data());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) ASSERT_EQ(cut[i * cols + j], whole[(row + i) * 9 + col + j]);
    }
  }
}

// The formula in the comment of tsr_start_formula, for devices, one element at a time.
float by_the_header(const tsr_start_formula& f, int64_t row, int64_t col) {
  constexpr uint64_t kG = 0x9e3779b97f4a7c15u;
  const auto mix = [](uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  };
  const auto r = static_cast<uint64_t>(f.first_row + row), c = static_cast<uint64_t>(f.first_col + col);
  const uint64_t h = mix(mix(f.key + kG * (r + 1)) + kG * (c / 2 + 1));
  const auto b = static_cast<int32_t>(static_cast<uint32_t>(c % 2 == 0 ? h : h >> 32));
  return (static_cast<float>(b >> 8) + 0.5f) * f.scale;
}

TEST(InitialValues, AreThoseOfTheFormulaInTheHeader) {
  const auto t = table("t", 1000, 9);
  const tsr_start_formula formula = start_formula(t, 7, 40, 3);
  const StartValues start{formula, nullptr};
  const std::vector<int64_t> rows = {17, 0, 950, 17};
  std::vector<float> got(rows.size() * 5), whole(9);
  start.fill(rows, 5, got.data());
  for (size_t i = 0; i < rows.size(); ++i) {
    initial_values(t, 7, 40 + rows[i], 1, 0, 9, whole.data());
    for (size_t d = 0; d < 5; ++d) {
      EXPECT_EQ(got[i * 5 + d], by_the_header(formula, rows[i], static_cast<int64_t>(d)));
      EXPECT_EQ(got[i * 5 + d], whole[3 + d]);
    }
  }
}

TEST(InitialValues, AreThoseOfTheFormulaForAllWidths) {  // many columns at a time, from even and from odd ones on
  const std::vector<int64_t> rows = {5, 1};
  for (const int64_t cols : {1, 2, 15, 16, 17, 31, 32, 33, 100}) {
    const auto t = table("t", 10, cols + 3);
    for (const int64_t first_col : {0, 1, 2, 3}) {
      const tsr_start_formula formula = start_formula(t, 7, 2, first_col);
      std::vector<float> got(rows.size() * static_cast<size_t>(cols));
      StartValues{formula, nullptr}.fill(rows, cols, got.data());
      for (size_t i = 0; i < got.size(); ++i) {
        const auto col = static_cast<int64_t>(i) % cols;
        ASSERT_EQ(got[i], by_the_header(formula, rows[i / static_cast<size_t>(cols)], col)) << first_col << " " << cols;
      }
    }
  }
}

TEST(InitialValues, DependOnSeedAndName) {
  std::vector<float> a(40), b(40), c(40);
  initial_values(table("t"), 1, 0, 10, 0, 4, a.data());
  initial_values(table("t"), 2, 0, 10, 0, 4, b.data());
  initial_values(table("u"), 1, 0, 10, 0, 4, c.data());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NE(a[i], b[i]);
    EXPECT_NE(a[i], c[i]);
  }
}

// Mean, variance and neighbours' correlations of a uniform distribution; bounds are more than five standard errors.
TEST(InitialValues, AreUniform) {
  constexpr int64_t kRows = 4096, kCols = 64;
  auto t = table("t", kRows, kCols);
  t.init_range = 0.5;
  std::vector<float> v(kRows * kCols);
  initial_values(t, 3, 0, kRows, 0, kCols, v.data());
  const auto n = static_cast<double>(v.size());
  double sum = 0, squares = 0, beside = 0, below = 0;
  std::vector<int> histogram(16, 0);
  for (size_t i = 0; i < v.size(); ++i) {
    ASSERT_LE(std::fabs(v[i]), 0.5f);
    sum += v[i];
    squares += v[i] * v[i];
    if (i + 1 < v.size()) beside += v[i] * v[i + 1];
    if (i + kCols < v.size()) below += v[i] * v[i + kCols];
    ++histogram[std::min(15, static_cast<int>((v[i] + 0.5f) * 16))];
  }
  const double variance = 1.0 / 12;
  EXPECT_NEAR(sum / n, 0, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(squares / n, variance, 0.001);
  EXPECT_NEAR(beside / n, 0, 5 * variance / std::sqrt(n));
  EXPECT_NEAR(below / n, 0, 5 * variance / std::sqrt(n));
  for (int h : histogram) EXPECT_NEAR(h, n / 16, 6 * std::sqrt(n / 16));
}

TEST(InitialValues, RangeIsByDefaultTheRootOfTheRows) {
  const auto t = table("t", 400, 16);
  std::vector<float> v(size_t{400} * 16);
  initial_values(t, 0, 0, 400, 0, 16, v.data());
  const float largest = *std::max_element(v.begin(), v.end());
  EXPECT_LE(largest, 1.0f / 20);
  EXPECT_GT(largest, 0.99f / 20);
  auto zeros = t;
  zeros.init_range = 0.0;
  initial_values(zeros, 0, 0, 400, 0, 16, v.data());
  EXPECT_EQ(std::accumulate(v.begin(), v.end(), 0.0f, [](float s, float x) { return s + std::fabs(x); }), 0.0f);
}

}  // namespace
}  // namespace tessera
