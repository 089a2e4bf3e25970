// Tests stochastic rounding without a kernel.
#include "common/rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tessera_cpu::test {
namespace {

float rounded(bool bfloat16, float value, uint32_t random) {
  return bfloat16 ? bfloat16_to_float(bfloat16_at_random(value, random)) : half_to_float(half_at_random(value, random));
}

TEST(Rounding, TheMeanOfAllRandomNumbersIsTheValue) {
  for (const bool bfloat16 : {false, true}) {
    for (const float value : {1.2345f, -0.3333f, 3e-3f, 1.7e-5f, -4.1e-7f, 60000.7f}) {
      double sum = 0, least = HUGE_VAL, most = -HUGE_VAL;
      for (uint32_t random = 0; random < 0x10000; ++random) {
        const double one = rounded(bfloat16, value, random);
        sum += one;
        least = std::min(least, one);
        most = std::max(most, one);
      }
      EXPECT_LE(least, value);
      EXPECT_GE(most, value);
      EXPECT_LT(least, most) << value << ": one of two neighbours";
      EXPECT_NEAR(sum / 0x10000, value, 2e-3 * (most - least)) << value << " bfloat16 " << bfloat16;
    }
  }
}

TEST(Rounding, StoredValuesInfinitiesAndNanStay) {
  for (const uint32_t random : {0u, 1u, 0x7FFFu, 0xFFFFu}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto stored = static_cast<uint16_t>(bits);
      const float of_half = half_to_float(stored), of_bfloat16 = bfloat16_to_float(stored);
      if (!std::isnan(of_half)) ASSERT_EQ(half_at_random(of_half, random), stored) << bits;
      if (!std::isnan(of_bfloat16)) ASSERT_EQ(bfloat16_at_random(of_bfloat16, random), stored) << bits;
    }
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(rounded(false, nan, random)) && std::isnan(rounded(true, nan, random)));
    EXPECT_EQ(rounded(true, std::numeric_limits<float>::max(), random),
              rounded(true, std::numeric_limits<float>::max(), 0))
        << "no finite value becomes infinite";
  }
}

// A shard's rows and columns are rounded as in the whole table, with other random bits in each step.
TEST(Rounding, DependsOnRowColumnAndStepOfTheWholeTable) {
  const std::vector<float> values(10, 0.1234567f);
  std::vector<uint16_t> whole(10), part(6), later(10), other(10);
  store_at_random({true, 9, 0, 0}, true, 17, 3, values.data(), 10, whole.data());
  store_at_random({true, 9, 15, 3}, true, 2, 3, values.data(), 6, part.data());
  EXPECT_EQ(std::vector<uint16_t>(whole.begin() + 3, whole.begin() + 9), part);
  store_at_random({true, 9, 0, 0}, true, 17, 4, values.data(), 10, later.data());
  store_at_random({true, 9, 0, 0}, true, 18, 3, values.data(), 10, other.data());
  EXPECT_NE(whole, later);
  EXPECT_NE(whole, other);
}

}  // namespace
}  // namespace tessera_cpu::test
