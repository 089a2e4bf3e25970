// Checks the settings given to cuBLASLt, with a stand-in that computes the same product on the CPU.
#include "dense/blas.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace tessera::gpu {
namespace {

std::vector<float> noise(std::mt19937_64& random, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  for (float& v : out) v = static_cast<float>(random() % 2000) / 1000.0f - 1;
  return out;
}

// c [m, n] by plain loops.
std::vector<float> expected(const Product& p, std::vector<float> c) {
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = p.add ? c[static_cast<size_t>(i * p.n + j)] : 0.0;
      for (int64_t k = 0; k < p.k; ++k)
        sum += double{p.a_transposed ? p.a[k * p.m + i] : p.a[i * p.k + k]} *
               (p.b_transposed ? p.b[j * p.k + k] : p.b[k * p.n + j]);
      if (p.bias != nullptr) sum += p.bias[j];
      c[static_cast<size_t>(i * p.n + j)] = static_cast<float>(p.relu ? std::max(sum, 0.0) : sum);
    }
  }
  return c;
}

TEST(Blas, ComputesEveryKindOfProduct) {
  const auto blas = Blas::open(TESSERA_BLAS_STAND_IN);
  ASSERT_NE(blas, nullptr);
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {  // more kinds of products than plans are kept
    Product p{static_cast<int64_t>(1 + random() % 20),
              static_cast<int64_t>(1 + random() % 20),
              static_cast<int64_t>(1 + random() % 12),
              nullptr,
              nullptr,
              nullptr};
    const auto a = noise(random, p.m * p.k), b = noise(random, p.k * p.n), bias = noise(random, p.n);
    auto c = noise(random, p.m * p.n);
    p.a = a.data();
    p.b = b.data();
    p.c = c.data();
    p.a_transposed = random() % 2 == 0;
    p.b_transposed = random() % 2 == 0;
    p.add = random() % 3 == 0;
    if (!p.add && random() % 2 == 0) p.bias = bias.data();
    p.relu = !p.add && random() % 2 == 0;
    const auto want = expected(p, c);
    ASSERT_TRUE(blas->multiply(p, nullptr, nullptr));
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(c[i], want[i], 1e-5) << "round " << round << " at " << i;
  }
}

TEST(Blas, SaysWhatItCannotMultiply) {
  const auto blas = Blas::open(TESSERA_BLAS_STAND_IN);
  ASSERT_NE(blas, nullptr);
  std::vector<float> a(26), b(39), c(6, 7.0f);
  EXPECT_FALSE(blas->multiply({2, 3, 13, a.data(), b.data(), c.data()}, nullptr, nullptr));
  EXPECT_FALSE(blas->multiply({0, 3, 4, a.data(), b.data(), c.data()}, nullptr, nullptr));
  EXPECT_EQ(c, std::vector<float>(6, 7.0f));
}

TEST(Blas, IsNotThereWithoutTheLibrary) { EXPECT_EQ(Blas::open("libtessera-no-such-library.so"), nullptr); }

}  // namespace
}  // namespace tessera::gpu
