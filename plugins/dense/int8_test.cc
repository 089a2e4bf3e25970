// Tests layers whose products are in int8.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "int8_products.h"
#include "tessera/sdk/int8_rows.h"
#include "test_layer.h"

namespace {

using testing::HasSubstr;
using namespace tessera_dense;

constexpr double kTolerance = 0.05;  // relative to the largest output, for the rounding in all layers

std::vector<PrecisionCase> int8_cases() {
  return {
      {"mlp", R"({"layers": [70, 300, 150, 1])", {{203, 70}}},
      {"mlp", R"({"layers": [70, 90, 33], "activation": "tanh", "norm": "layer")", {{301, 70}}},
      {"mlp_batch_norm", R"({"inputs": [40, 30], "widths": [64, 8])", {{130, 40}, {130, 30}}},
      {"cross", R"({"width": 130, "layers": 2)", {{203, 130}}},
      {"cross", R"({"width": 150, "layers": 3, "low_rank": 40)", {{203, 150}}},
      {"linear", R"({"inputs": [33, 50], "width": 47)", {{75, 33}, {75, 50}}},
      {"projection", R"({"inputs": [33, 50], "width": 40)", {{75, 33}, {75, 50}}},
      {"experts", R"({"inputs": [60], "experts": 3, "widths": [70, 40])", {{140, 60}}},
      {"experts", R"({"inputs": [60], "experts": 2, "widths": [32, 48], "activation": "silu")", {{140, 60}}},
      {"gate", R"({"inputs": [60, 40], "hidden": [32])", {{140, 60}, {140, 40}}},
      {"target_attention", R"({"inputs": [16, 16], "widths": [32])", {{3, 16}, {40, 16}}, {0, 10, 10, 40}},
  };
}

// The largest difference between two layers' outputs, relative to the largest value.
double difference(const Layer& a, const Layer& b) {
  double most = 0, worst = 0;
  for (size_t i = 0; i < a.output.data.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a.output.data[i])));
    worst = std::max(worst, std::abs(static_cast<double>(a.output.data[i]) - b.output.data[i]));
  }
  return worst / most;
}

void predict(Layer& layer, const PrecisionCase& c) {
  ASSERT_EQ(layer.code, TSR_OK) << layer.error();
  layer.bounds = c.bounds;
  layer.with_inputs(c.inputs);
  layer.trains = false;
  ASSERT_EQ(layer.forward(), TSR_OK) << layer.error();
}

TEST(Int8Layers, AreNearFloat32AndTheSameForAnyThreads) {
  for (const PrecisionCase& c : int8_cases()) {
    SCOPED_TRACE(std::string(c.id) + " " + c.options);
    TestHost host, threads(3);
    Layer plain(host, c.id, with_precision(c, "float32")), rounded(host, c.id, with_precision(c, "int8"));
    Layer divided(threads, c.id, with_precision(c, "int8"));
    predict(plain, c);
    predict(rounded, c);
    predict(divided, c);
    const double apart = difference(plain, rounded);
    EXPECT_GT(apart, 0);
    EXPECT_LT(apart, kTolerance);
    EXPECT_EQ(rounded.output.data, divided.output.data);
  }
}

TEST(Int8Layers, GiveTheSameBitsWithEveryInstructionSet) {
  const PrecisionCase c{"linear", R"({"inputs": [133], "width": 117, "bias": false)", {{75, 133}}};
  std::vector<std::vector<float>> all;
  for (const char* isa : {"avx512", "avx2", "portable"}) {
    setenv("TESSERA_ISA", isa, 1);
    TestHost host;
    Layer layer(host, c.id, with_precision(c, "int8"));
    if (layer.code == TSR_UNAVAILABLE) continue;
    predict(layer, c);
    all.push_back(layer.output.data);
  }
  unsetenv("TESSERA_ISA");
  ASSERT_FALSE(all.empty());
  for (const std::vector<float>& other : all) EXPECT_EQ(other, all[0]);
}

TEST(Int8Layers, RefuseToTrain) {
  TestHost host;
  Layer layer(host, "linear", R"({"inputs": [40], "width": 40, "precision": "int8"})");
  layer.with_inputs({{5, 40}});
  tsr_module_context* context = nullptr;
  ASSERT_EQ(layer.forward(&context), TSR_OK) << layer.error();
  EXPECT_EQ(layer.backward(context), TSR_UNIMPLEMENTED);
  EXPECT_THAT(layer.error(), HasSubstr("precision = \"int8\" is only for predictions"));
}

class Int8Sums : public testing::Test {
 protected:
  // Checks rows of `in` values against plain sums of integers.
  void check(int64_t rows, int64_t in, int64_t out, float least) {
    SCOPED_TRACE(testing::Message() << rows << " x " << in << " x " << out);
    Noise noise;
    Matrix w({out, in}), x({rows, in}), y({rows, out});
    noise.fill(w), noise.fill(x);
    for (float& v : x.data) v = std::max(v, least);
    Int8Products products{tessera::sdk::Host(&host_.raw)};
    products.pack(0, in, out, w.data.data());
    products.multiply(0, rows, x.data.data(), in, y.data.data(), out);
    std::vector<int8_t> column(static_cast<size_t>(in));
    for (int64_t c = 0; c < out; ++c) {
      const float scale = tessera::sdk::round_to_int8(w.data.data() + c * in, in, column.data());
      for (int64_t r = 0; r < rows; ++r) {
        const float* const row = x.data.data() + r * in;
        float most = 0;
        bool negative = false;
        for (int64_t i = 0; i < in; ++i) most = std::max(most, std::abs(row[i])), negative |= std::signbit(row[i]);
        const float row_scale = most / (negative ? 127.0f : 255.0f), levels = 1 / row_scale;
        int64_t sum = 0;
        for (int64_t i = 0; i < in; ++i)
          sum += static_cast<int64_t>(std::nearbyint(row[i] * levels)) * column[static_cast<size_t>(i)];
        const float expected = static_cast<float>(sum) * (row_scale * scale);
        ASSERT_EQ(y.data[static_cast<size_t>(r * out + c)], expected) << r << ", " << c;
      }
    }
  }
  TestHost host_;
};

TEST_F(Int8Sums, AreExact) {
  for (const float least : {-1.0f, 0.0f}) {
    for (int64_t rows = 1; rows <= 7; ++rows) check(rows, 37, 35, least);
    check(100, 64, 64, least);
    check(13, 130, 100, least);
    check(5, 33, 129, least);
    check(3, 1 << 16, 32, least);
  }
}

TEST_F(Int8Sums, AreExactAtTheLargestIntegers) {
  const int64_t in = 1 << 16;
  std::vector<float> w(static_cast<size_t>(32 * in), 1.0f), x(static_cast<size_t>(2 * in), 1.0f), y(64);
  std::fill_n(x.begin() + in, in, -1.0f);
  Int8Products products{tessera::sdk::Host(&host_.raw)};
  products.pack(0, in, 32, w.data());
  products.multiply(0, 2, x.data(), in, y.data(), 32);
  EXPECT_FLOAT_EQ(y[0], static_cast<float>(in));
  EXPECT_FLOAT_EQ(y[32], static_cast<float>(-in));
}

TEST_F(Int8Sums, KeepZerosAndWhatIsNotFinite) {
  std::vector<float> w(32 * 32, 0.5f), x(3 * 32, 0.0f), y(3 * 32, 7.0f);
  x[32] = std::numeric_limits<float>::infinity();
  x[64] = std::numeric_limits<float>::quiet_NaN();
  std::fill_n(w.begin(), 32, 0.0f);
  Int8Products products{tessera::sdk::Host(&host_.raw)};
  products.pack(0, 32, 32, w.data());
  products.multiply(0, 3, x.data(), 32, y.data(), 32);
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 0);
  EXPECT_TRUE(std::isnan(y[33]));
  EXPECT_TRUE(std::isnan(y[65]));
}

TEST(Int8Rows, RoundAgainToTheSameIntegers) {
  Noise noise;
  for (int trial = 0; trial < 200; ++trial) {
    float row[50], again[50];
    int8_t first[50], second[50];
    for (float& v : row) v = noise.next() * std::pow(10.0f, static_cast<float>(trial % 20 - 10));
    const float scale = tessera::sdk::round_to_int8(row, 50, first);
    for (int i = 0; i < 50; ++i) again[i] = static_cast<float>(first[i]) * scale;
    EXPECT_NEAR(tessera::sdk::round_to_int8(again, 50, second), scale, 1e-6f * scale);
    EXPECT_TRUE(std::equal(first, first + 50, second));
  }
}

}  // namespace
