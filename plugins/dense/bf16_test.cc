// Tests layers whose products are in bfloat16.
#include <dnnl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bf16_products.h"
#include "test_layer.h"
#include "weights.h"

namespace {

using testing::HasSubstr;
using namespace tessera_dense;

// Has the order of the layers in dense.cc.
std::vector<PrecisionCase> bf16_cases() {
  return {
      {"mlp", R"({"layers": [70, 300, 150, 1])", {{203, 70}}},
      {"mlp", R"({"layers": [13, 50, 35, 16], "final_activation": "relu")", {{2113, 13}}},
      {"mlp", R"({"layers": [70, 90, 9], "activation": "tanh", "norm": "layer")", {{301, 70}}},
      {"mlp_batch_norm", R"({"inputs": [40, 30], "widths": [64, 8])", {{130, 40}, {130, 30}}},
      {"cross", R"({"width": 130, "layers": 2)", {{203, 130}}},
      {"cross", R"({"width": 150, "layers": 3, "low_rank": 40)", {{203, 150}}},
      {"linear", R"({"inputs": [33, 50], "width": 47)", {{75, 33}, {75, 50}}},
      {"projection", R"({"inputs": [33, 50], "width": 40)", {{75, 33}, {75, 50}}},
      {"experts", R"({"inputs": [60], "experts": 3, "widths": [70, 24])", {{140, 60}}},
      {"experts", R"({"inputs": [60], "experts": 2, "widths": [32, 24], "activation": "silu")", {{140, 60}}},
      {"gate", R"({"inputs": [60, 20], "hidden": [32])", {{140, 60}, {140, 20}}},
      {"target_attention", R"({"inputs": [16, 16], "widths": [32])", {{3, 16}, {40, 16}}, {0, 10, 10, 40}},
  };
}

bool no_bf16() {
  TestHost host;
  return Layer(host, "linear", R"({"inputs": [1], "precision": "bfloat16"})").code != TSR_OK;
}

void run(Layer& layer, const PrecisionCase& c) {
  layer.bounds = c.bounds;
  layer.with_inputs(c.inputs);
  layer.step();
}

// The output of a step, and all gradients.
std::vector<std::vector<float>> results_of(const Layer& layer) {
  std::vector<std::vector<float>> out = {layer.output.data};
  for (const Matrix& m : layer.grad_inputs) out.push_back(m.data);
  for (const Matrix& m : layer.grad_parameters) out.push_back(m.data);
  return out;
}

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += double{v} * v;
  return std::sqrt(sum);
}

TEST(Bf16, IsNearFloat32AndDiffersFromIt) {
  if (no_bf16()) GTEST_SKIP() << "this processor has no products in bfloat16";
  TestHost host(2);
  for (const PrecisionCase& c : bf16_cases()) {
    Layer exact(host, c.id, with_precision(c, "float32")), rounded(host, c.id, with_precision(c, "bfloat16"));
    ASSERT_EQ(rounded.code, TSR_OK) << c.id << ": " << rounded.error();
    run(exact, c);
    run(rounded, c);
    const auto wanted = results_of(exact), got = results_of(rounded);
    EXPECT_NE(wanted[0], got[0]) << c.id;
    for (size_t k = 0; k < wanted.size(); ++k) {
      std::vector<float> difference = got[k];
      for (size_t i = 0; i < difference.size(); ++i) difference[i] -= wanted[k][i];
      const double most = k == 0 ? 0.02 : 0.12;  // gradients differ more, because a ReLU may switch
      EXPECT_LE(norm_of(difference), most * norm_of(wanted[k]) + 1e-6) << c.id << " " << c.options << " " << k;
    }
  }
}

// Small whole numbers are exact in bfloat16, and so are their sums in float32.
TEST(Bf16, WholeNumbersAreExact) {
  if (no_bf16()) GTEST_SKIP() << "this processor has no products in bfloat16";
  for (const PrecisionCase& c : {PrecisionCase{"linear", R"({"inputs": [33, 50], "width": 47)", {{75, 33}, {75, 50}}},
                                 PrecisionCase{"linear", R"({"inputs": [64], "width": 130)", {{2500, 64}}},
                                 PrecisionCase{"linear", R"({"inputs": [40], "width": 32)", {{1, 40}}},
                                 PrecisionCase{"linear", R"({"inputs": [512], "width": 1)", {{70, 512}}}}) {
    std::vector<std::vector<std::vector<float>>> results;
    for (const char* precision : {"float32", "bfloat16"}) {
      TestHost host;
      Layer layer(host, c.id, with_precision(c, precision));
      layer.with_inputs(c.inputs);
      const auto whole = [](Matrix& m) {
        for (float& v : m.data) v = std::round(4 * v);
      };
      std::for_each(layer.inputs.begin(), layer.inputs.end(), whole);
      std::for_each(layer.parameters.begin(), layer.parameters.end(), whole);
      whole(layer.grad_output);
      layer.step();
      results.push_back(results_of(layer));
    }
    EXPECT_EQ(results[0], results[1]) << c.options;
  }
}

TEST(Bf16, ThreadsChangeNothing) {
  if (no_bf16()) GTEST_SKIP() << "this processor has no products in bfloat16";
  for (const PrecisionCase& c : bf16_cases()) {
    std::vector<std::vector<std::vector<float>>> results;
    for (const uint32_t threads : {1u, 2u, 5u}) {
      TestHost host(threads);
      Layer layer(host, c.id, with_precision(c, "bfloat16"));
      run(layer, c);
      results.push_back(results_of(layer));
    }
    EXPECT_EQ(results[0], results[1]) << c.id << " " << c.options;
    EXPECT_EQ(results[0], results[2]) << c.id << " " << c.options;
  }
}

TEST(Bf16, InferenceGivesASampleTheSameValuesInEveryBatch) {
  if (no_bf16()) GTEST_SKIP() << "this processor has no products in bfloat16";
  const char* const options = R"({"layers": [137, 150, 35, 3], "precision": "bfloat16"})";
  TestHost host(3);
  Layer whole(host, "mlp", options), one(host, "mlp", options);
  whole.with_inputs({{401, 137}});
  ASSERT_EQ(whole.forward(), TSR_OK) << whole.error();
  one.parameters = whole.parameters;
  for (int64_t s = 0; s < 401; s += 8) {
    one.with_inputs({{1, 137}});
    std::copy_n(whole.inputs[0].data.begin() + s * 137, 137, one.inputs[0].data.begin());
    ASSERT_EQ(one.forward(), TSR_OK) << one.error();
    for (int64_t o = 0; o < 3; ++o) EXPECT_EQ(one.output.data[o], whole.output.data[s * 3 + o]) << s;
  }
}

// A processor with AMX makes products of few rows in another order.
TEST(Bf16, FewRowsAreFilledUp) {
  if (no_bf16()) GTEST_SKIP() << "this processor has no products in bfloat16";
  constexpr int64_t kRows = 21, kIn = 70, kOut = 45, kStride = 50;
  TestHost host;
  const Loops& loops = choose_loops();
  Noise noise;
  std::vector<float> x(kRows * kIn), w(kIn * kOut), start(kRows * kStride);
  for (std::vector<float>* values : {&x, &w, &start}) {
    for (float& value : *values) value = noise.next();
  }
  std::vector<Bf16> rounded(w.size());
  loops.to_bf16(std::ssize(w), w.data(), rounded.data());
  const tessera::sdk::Host sdk(&host.raw);
  Bf16Products filled(sdk, 256), whole(sdk, 0);
  const OneThread alone;
  for (const bool add : {false, true}) {
    std::vector<float> some = start, all = start;
    const Bf16Products::Shape shape{false, false, add, 0, kOut, kIn, kIn, kOut, kStride};
    filled.multiply_rows(loops, shape, kRows, x.data(), rounded.data(), some.data());
    whole.multiply_rows(loops, shape, kRows, x.data(), rounded.data(), all.data());
    for (size_t i = 0; i < some.size(); ++i) EXPECT_NEAR(some[i], all[i], 1e-4) << add << " " << i;
    std::vector<float> by_itself(start.begin() + 16 * kStride, start.begin() + 17 * kStride);
    filled.multiply_rows(loops, shape, 1, x.data() + 16 * kIn, rounded.data(), by_itself.data());
    EXPECT_TRUE(std::equal(by_itself.begin(), by_itself.end(), some.begin() + 16 * kStride)) << "also by itself";
  }
}

TEST(Bf16, RefusesOtherWords) {
  TestHost host;
  const Layer layer(host, "mlp", R"({"layers": [8, 8], "precision": "fp16"})");
  EXPECT_EQ(layer.code, TSR_INVALID_ARGUMENT);
  EXPECT_THAT(layer.error(), HasSubstr("\"precision\" is \"fp16\", but must be float32, bfloat16, int8 or auto"));
}

TEST(Bf16, AutoSaysWhyItShouldNotBe) {
  TestHost host;
  const Layer layer(host, "mlp", R"({"layers": [8, 8], "precision": "auto"})");
  if (no_bf16())
    EXPECT_THAT(layer.error(), HasSubstr("needs AMX or AVX512-BF16"));
  else if (layer.code != TSR_OK)
    EXPECT_THAT(layer.error(), HasSubstr("times as fast as in float32 on this processor"));
}

// Exits with 0 if the refusal names the missing instructions.
[[noreturn]] void ask_on_a_processor_without() {
  if (dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core) != dnnl_success) exit(2);
  TestHost host;
  const Layer layer(host, "mlp", R"({"layers": [8, 8], "precision": "bfloat16"})");
  const bool said = layer.error().find("needs AMX or AVX512-BF16") != std::string::npos;
  exit(layer.code == TSR_UNAVAILABLE && said ? 0 : 1);
}

TEST(Bf16, SaysWhatTheProcessorLacks) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // oneDNN takes the limit only before its first product
  EXPECT_EXIT(ask_on_a_processor_without(), testing::ExitedWithCode(0), "");
}

}  // namespace
