// Tests the dense layers through their function tables: against naive loops, and by finite differences.
#include <dnnl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "test_layer.h"
#include "weights.h"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<double> naive_linear(const std::vector<double>& x, int64_t batch, const Matrix& w, const Matrix& b,
                                 bool relu) {
  const int64_t out = w.shape[0], in = w.shape[1];
  std::vector<double> y(static_cast<size_t>(batch * out));
  for (int64_t s = 0; s < batch; ++s) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = b.data[o];
      for (int64_t i = 0; i < in; ++i) sum += x[s * in + i] * w.data[o * in + i];
      y[s * out + o] = relu ? std::max(sum, 0.0) : sum;
    }
  }
  return y;
}

TEST(Mlp, ParametersAndNames) {
  TestHost host;
  Layer mlp(host, "mlp", R"({"layers": [3, 5, 2]})");
  EXPECT_THAT(mlp.names, ElementsAre("0.weight", "0.bias", "1.weight", "1.bias"));
  EXPECT_THAT(mlp.parameters[0].shape, ElementsAre(5, 3));
  EXPECT_THAT(mlp.parameters[3].shape, ElementsAre(2));
  EXPECT_THAT(mlp.inits, ElementsAre(TSR_INIT_NORMAL, TSR_INIT_CONSTANT, TSR_INIT_NORMAL, TSR_INIT_CONSTANT));
  EXPECT_THAT(mlp.spreads, ElementsAre(std::sqrt(2.0 / 8), 0, std::sqrt(2.0 / 7), 0));
  EXPECT_THAT(Layer(host, "mlp", R"({"layers": [3, 5, 2], "init_std": 0.02})").spreads, ElementsAre(0.02, 0, 0.02, 0));
  const char* other = R"({"layers": [3, 5, 2], "activation": "gelu", "init_std": 0.02})";  // not a PlainMlp
  EXPECT_THAT(Layer(host, "mlp", other).spreads, ElementsAre(0.02, 0, 0.02, 0));
  EXPECT_THAT(Layer(host, "linear", R"({"inputs": [3], "init_std": 0.02})").spreads, ElementsAre(0.02, 0));
  EXPECT_EQ(Layer(host, "linear", R"({"inputs": [3], "init_std": 0})").code, TSR_INVALID_ARGUMENT);
}

TEST(Mlp, ForwardEqualsNaiveLoops) {
  TestHost host(2);
  for (const bool relu : {false, true}) {
    for (const int64_t batch : {1, 7, 64}) {
      Layer mlp(host, "mlp",
                std::string(R"({"layers": [13, 40, 17, 1], "final_activation": ")") + (relu ? "relu" : "none") + "\"}");
      mlp.with_inputs({{batch, 13}});
      std::vector<double> y(mlp.inputs[0].data.begin(), mlp.inputs[0].data.end());
      for (size_t k = 0; k < 3; ++k) {
        y = naive_linear(y, batch, mlp.parameters[2 * k], mlp.parameters[2 * k + 1], k < 2 || relu);
      }
      for (const bool keep : {false, true}) {  // forward differs if a backward follows
        tsr_module_context* context = nullptr;
        ASSERT_EQ(mlp.forward(keep ? &context : nullptr), TSR_OK) << mlp.error();
        for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(mlp.output.data[i], y[i], 1e-4 * (1 + std::abs(y[i])));
        if (keep) mlp.release(context);
      }
    }
  }
}

TEST(Mlp, InferenceGivesASampleTheSameValuesInEveryBatch) {
  for (const uint32_t threads : {1u, 3u}) {
    TestHost host(threads);
    Layer whole(host, "mlp", R"({"layers": [137, 150, 35, 3]})"), one(host, "mlp", R"({"layers": [137, 150, 35, 3]})");
    whole.with_inputs({{61, 137}});
    ASSERT_EQ(whole.forward(), TSR_OK) << whole.error();
    one.parameters = whole.parameters;
    for (int64_t s = 0; s < 61; s += 6) {
      one.with_inputs({{1, 137}});
      std::copy_n(whole.inputs[0].data.begin() + s * 137, 137, one.inputs[0].data.begin());
      ASSERT_EQ(one.forward(), TSR_OK) << one.error();
      for (int64_t o = 0; o < 3; ++o) EXPECT_EQ(one.output.data[o], whole.output.data[s * 3 + o]) << s;
    }
  }
}

TEST(Mlp, GradientsByFiniteDifferences) {
  TestHost host;
  Layer plain(host, "mlp", R"({"layers": [4, 3]})");
  plain.with_inputs({{5, 4}});
  check_all_gradients(plain);
  Layer deep(host, "mlp", R"({"layers": [6, 33, 20, 1]})");
  deep.with_inputs({{9, 6}});
  check_all_gradients(deep);
  Layer ending_in_relu(host, "mlp", R"({"layers": [6, 8, 20], "final_activation": "relu"})");
  ending_in_relu.with_inputs({{9, 6}});
  check_all_gradients(ending_in_relu);
}

// Several threads have work in a narrow layer. No block has a single row, whose product oneDNN sums in another order.
TEST(Weights, BlocksOfNarrowLayers) {
  if (!tessera_dense::has_isa(dnnl_cpu_isa_avx512_core))
    GTEST_SKIP() << "without AVX-512, results depend on the blocks, which stay as they are";
  TestHost host;
  for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{{104, 4}, {8, 16}, {104, 64}, {512, 512}}) {
    tessera_dense::Weights weights(tessera::sdk::Host(&host.raw));
    weights.add(in, out);
    EXPECT_LE(weights.block(16384), 8192) << in << " " << out;
    for (int64_t batch = 2; batch < 5000; ++batch) ASSERT_NE(batch % weights.block(batch), 1) << in << " " << batch;
  }
}

// Gradients that are added up part by part are those of the whole batch, bit for bit.
TEST(Weights, PartsChangeNoSum) {
  constexpr int64_t kBatch = 2000, kIn = 70, kOut = 33;
  TestHost host;
  const tessera_dense::Loops& loops = tessera_dense::choose_loops();
  tessera_dense::Weights weights(tessera::sdk::Host(&host.raw));
  weights.add(kIn, kOut);
  Noise noise;
  std::vector<float> x(kBatch * kIn), dy(kBatch * kOut);
  for (float& value : x) value = noise.next();
  for (float& value : dy) value = noise.next();
  std::vector<float> whole(kIn * kOut, 1.0f), added = whole;
  weights.start_gradients(kBatch);
  weights.add_gradients(loops, kBatch, {{{x.data(), kIn, dy.data(), kOut, whole.data(), nullptr}}});
  int64_t parts = 0;
  for (int64_t first = 0, rows; first < kBatch; first += rows, ++parts) {
    rows = weights.part(kBatch - first);
    weights.add_gradients(loops, rows,
                          {{{x.data() + first * kIn, kIn, dy.data() + first * kOut, kOut, added.data(), nullptr}}});
  }
  EXPECT_EQ(parts > 1, tessera_dense::has_isa(dnnl_cpu_isa_avx512_core));
  EXPECT_EQ(added, whole);
}

// Results are equal bit for bit, because blocks and tiles depend only on shapes. The shapes here are large enough for
// several blocks and tiles.
TEST(Layers, ThreadsChangeNothing) {
  struct Case {
    const char *id, *options;
    std::vector<std::vector<int64_t>> inputs;
  };
  const Case cases[] = {
      {"mlp", R"({"layers": [70, 300, 150, 1]})", {{203, 70}}},
      {"mlp", R"({"layers": [6, 50, 35, 2], "final_activation": "relu"})", {{2000, 6}}},
      {"cross", R"({"width": 130, "layers": 2})", {{203, 130}}},
      {"cross", R"({"width": 150, "layers": 3, "low_rank": 20})", {{203, 150}}},
      {"cross", R"({"inputs": [70, 63], "layers": 2})", {{2000, 70}, {2000, 63}}},
      {"experts", R"({"inputs": [30, 11], "experts": 3, "widths": [49, 17]})", {{2000, 30}, {2000, 11}}},
      {"gate", R"({"inputs": [90, 31], "hidden": [17]})", {{2000, 90}, {2000, 31}}},
      {"linear", R"({"inputs": [90, 31], "width": 33})", {{2000, 90}, {2000, 31}}},
      {"concat", R"({"inputs": [90, 31]})", {{2000, 90}, {2000, 31}}},
      {"dot_interaction", "{}", {{300, 64}, {300, int64_t{26} * 64}}},
  };
  for (const Case& c : cases) {
    std::vector<std::vector<Matrix>> results;
    for (const uint32_t threads : {1u, 2u, 5u}) {
      TestHost host(threads);
      Layer layer(host, c.id, c.options);
      layer.with_inputs(c.inputs);
      layer.step();
      results.push_back(layer.grad_parameters);
      results.back().push_back(layer.output);
      results.back().insert(results.back().end(), layer.grad_inputs.begin(), layer.grad_inputs.end());
      EXPECT_EQ(host.lent > 0, threads > 1) << c.options;
    }
    for (size_t k = 0; k < results[0].size(); ++k) {
      EXPECT_EQ(results[0][k].data, results[1][k].data) << c.id << " " << c.options << " " << k;
      EXPECT_EQ(results[0][k].data, results[2][k].data) << c.id << " " << c.options << " " << k;
    }
  }
}

TEST(Mlp, ParameterGradientsAreAddedToAndInputGradientsMayBeUnwanted) {
  TestHost host;
  Layer mlp(host, "mlp", R"({"layers": [4, 6, 3]})");
  mlp.with_inputs({{5, 4}});
  mlp.step();
  const std::vector<Matrix> once = mlp.grad_parameters;
  const Matrix input_gradient = mlp.grad_inputs[0];
  mlp.step();
  EXPECT_EQ(mlp.grad_inputs[0].data, input_gradient.data);
  mlp.grad_inputs[0].data.clear();
  mlp.step();
  for (size_t k = 0; k < once.size(); ++k) {
    for (size_t i = 0; i < once[k].data.size(); ++i) {
      EXPECT_NEAR(mlp.grad_parameters[k].data[i], 3 * once[k].data[i], 1e-4) << mlp.names[k];
    }
  }
}

TEST(Mlp, SeveralContextsAreLiveAtOnce) {
  TestHost host;
  Layer mlp(host, "mlp", R"({"layers": [4, 6, 3]})");
  mlp.with_inputs({{5, 4}});
  mlp.step();
  const Matrix alone = mlp.grad_inputs[0], first_input = mlp.inputs[0], first_output = mlp.output;
  tsr_module_context *a = nullptr, *b = nullptr;
  ASSERT_EQ(mlp.forward(&a), TSR_OK);
  mlp.noise.fill(mlp.inputs[0]);
  ASSERT_EQ(mlp.forward(&b), TSR_OK);
  EXPECT_NE(a, b);
  mlp.release(b);
  mlp.inputs[0] = first_input;
  mlp.output = first_output;
  ASSERT_EQ(mlp.backward(a), TSR_OK);
  EXPECT_EQ(mlp.grad_inputs[0].data, alone.data);
}

TEST(Mlp, StepsAfterTheLargestBatchAskForNoMemory) {
  TestHost host;
  {
    Layer mlp(host, "mlp", R"({"layers": [4, 6, 3]})");
    mlp.with_inputs({{64, 4}});
    mlp.step();
    const int before = host.allocations;
    for (const int64_t batch : {64, 17, 64, 1, 33}) {
      mlp.with_inputs({{batch, 4}});
      mlp.step();
    }
    EXPECT_EQ(host.allocations, before);
  }
  EXPECT_EQ(host.live, 0);
}

TEST(Mlp, ManyBatchSizesAndNone) {
  TestHost host;
  Layer mlp(host, "mlp", R"({"layers": [4, 3]})");
  for (int64_t batch = 20; batch >= 0; --batch) {
    mlp.with_inputs({{batch, 4}});
    mlp.step();
    std::vector<double> y(mlp.inputs[0].data.begin(), mlp.inputs[0].data.end());
    y = naive_linear(y, batch, mlp.parameters[0], mlp.parameters[1], false);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(mlp.output.data[i], y[i], 1e-5);
  }
}

int threads_of_this_process() {
  int count = 0;
  for (const auto& unused : std::filesystem::directory_iterator("/proc/self/task")) ++count, (void)unused;
  return count;
}

// oneDNN must not start threads of its own, which would spin next to the host's threads.
TEST(Layers, HaveNoThreadsButTheHostsAndLeaveOpenMPAlone) {
  const int before = omp_get_max_threads(), alone = threads_of_this_process();
  TestHost host(4);
  for (const auto& [id, options] : std::vector<std::pair<const char*, const char*>>{
           {"mlp", R"({"layers": [200, 300, 100]})"}, {"cross", R"({"width": 200, "layers": 2})"}}) {
    Layer layer(host, id, options);
    layer.with_inputs({{512, 200}});
    layer.step();
  }
  EXPECT_GT(host.lent, 0);
  EXPECT_EQ(threads_of_this_process(), alone);
  EXPECT_EQ(omp_get_max_threads(), before);
}

TEST(Mlp, RefusesWhatDoesNotFit) {
  TestHost host;
  for (const char* options : {"{}", R"({"layers": [4]})", R"({"layers": [4, 0]})",
                              R"({"layers": [4, 2], "final_activation": "tan"})", R"({"layer": [4, 2]})"}) {
    EXPECT_EQ(Layer(host, "mlp", options).code, TSR_INVALID_ARGUMENT) << options;
  }
  Layer mlp(host, "mlp", R"({"layers": [4, 3]})");
  EXPECT_EQ(mlp.width_of({0}), TSR_OK);
  EXPECT_EQ(mlp.width_of({5}), TSR_INVALID_ARGUMENT);
  EXPECT_THAT(mlp.error(), HasSubstr("takes one input of 4 values, not 5 values"));
  EXPECT_EQ(mlp.width_of({4, 4}), TSR_INVALID_ARGUMENT);
  mlp.with_inputs({{2, 4}});
  mlp.output = Matrix({2, 4});
  EXPECT_EQ(mlp.forward(), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(host.live, 0);
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

int64_t count_nan(const Matrix& m) {
  return std::count_if(m.data.begin(), m.data.end(), [](float v) { return std::isnan(v); });
}

// A NaN stays NaN on its way through a layer, in both directions and on every instruction set, and does not reach other
// samples. A ReLU must not hide it, so that the check of a step can find it.
class NotANumber : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { setenv("TESSERA_ISA", GetParam(), 1); }
  void TearDown() override { unsetenv("TESSERA_ISA"); }
  TestHost host_{2};
};

TEST_P(NotANumber, PassesTheReluOfAnMlp) {
  Layer mlp(host_, "mlp", R"({"layers": [2, 21, 3], "final_activation": "relu"})");
  if (mlp.code == TSR_UNAVAILABLE) GTEST_SKIP() << "not this processor";
  mlp.with_inputs({{9, 2}});
  mlp.inputs[0].data[8] = kNaN;  // of sample 4
  for (const bool keep : {false, true}) {
    tsr_module_context* context = nullptr;
    ASSERT_EQ(mlp.forward(keep ? &context : nullptr), TSR_OK) << mlp.error();
    EXPECT_EQ(count_nan(mlp.output), 3);
    for (int o = 0; o < 3; ++o) EXPECT_TRUE(std::isnan(mlp.output.data[4 * 3 + o]));
    if (!keep) continue;
    std::fill(mlp.grad_output.data.begin(), mlp.grad_output.data.end(), 1.0f);
    ASSERT_EQ(mlp.backward(context), TSR_OK) << mlp.error();
  }
  EXPECT_EQ(count_nan(mlp.grad_parameters[0]), 21);  // the column of weights that multiplies this input
  EXPECT_EQ(count_nan(mlp.grad_parameters[2]), 3 * 21);
  // PyTorch does the same: a ReLU whose output is NaN passes the gradient on. Here the gradient depends only on
  // weights, which are numbers.
  EXPECT_EQ(count_nan(mlp.grad_inputs[0]), 0);
  EXPECT_NE(mlp.grad_inputs[0].data[8], 0);
}

TEST_P(NotANumber, PassesTheMaskOfAnMlpBackwards) {
  Layer mlp(host_, "mlp", R"({"layers": [1, 2, 1], "final_activation": "relu"})");
  if (mlp.code == TSR_UNAVAILABLE) GTEST_SKIP() << "not this processor";
  mlp.with_inputs({{3, 1}});
  mlp.inputs[0].data = {1, 1, -1};
  mlp.parameters[0].data = {1, 2};
  mlp.parameters[1].data = {0, 0};
  mlp.parameters[2].data = {1, 1};
  mlp.parameters[3].data = {0};
  mlp.grad_output.data = {kNaN, 1, kNaN};  // the last layer's outputs are 0, so there is no gradient
  mlp.step();
  EXPECT_TRUE(std::isnan(mlp.grad_inputs[0].data[0]));
  EXPECT_EQ(mlp.grad_inputs[0].data[1], 3);
  EXPECT_EQ(mlp.grad_inputs[0].data[2], 0);
  for (const Matrix& gradient : mlp.grad_parameters)
    EXPECT_EQ(count_nan(gradient), static_cast<int64_t>(gradient.data.size()));
}

TEST_P(NotANumber, PassesCrossAndInteraction) {
  for (const auto& [id, options, widths] : std::vector<std::tuple<const char*, const char*, std::vector<int64_t>>>{
           {"cross", R"({"width": 6, "layers": 2})", {6}},
           {"cross", R"({"width": 6, "layers": 2, "low_rank": 2})", {6}},
           {"dot_interaction", "{}", {6, 12}}}) {
    SCOPED_TRACE(options);
    Layer layer(host_, id, options);
    if (layer.code == TSR_UNAVAILABLE) GTEST_SKIP() << "not this processor";
    std::vector<std::vector<int64_t>> shapes;
    for (const int64_t width : widths) shapes.push_back({5, width});
    const auto of_sample = [](const Matrix& m, int64_t s) {
      const auto width = m.shape[1];
      const auto first = m.data.begin() + s * width;
      return std::count_if(first, first + width, [](float v) { return std::isnan(v); });
    };
    for (size_t input = 0; input < shapes.size(); ++input) {
      layer.with_inputs(shapes);
      layer.inputs[input].data[static_cast<size_t>(3 * shapes[input][1] + 1)] = kNaN;
      layer.step();
      EXPECT_GT(of_sample(layer.output, 3), 0);
      EXPECT_EQ(of_sample(layer.output, 3), count_nan(layer.output));
      int64_t there = 0, everywhere = 0;
      for (const Matrix& gradient : layer.grad_inputs) {
        there += of_sample(gradient, 3);
        everywhere += count_nan(gradient);
      }
      EXPECT_GT(there, 0);
      EXPECT_EQ(there, everywhere);
      for (Matrix& gradient : layer.grad_parameters) {
        EXPECT_GT(count_nan(gradient), 0);
        std::fill(gradient.data.begin(), gradient.data.end(), 0.0f);
      }
    }
    layer.with_inputs(shapes);
    layer.grad_output.data[static_cast<size_t>(3 * layer.output.shape[1] + 1)] = kNaN;
    layer.step();
    EXPECT_EQ(count_nan(layer.output), 0);
    EXPECT_GT(of_sample(layer.grad_inputs[0], 3), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, NotANumber, testing::Values("portable", "avx2", "avx512"),
                         [](const auto& info) { return std::string(info.param); });

std::vector<double> naive_interaction(const Layer& layer, int64_t dim, int64_t features) {
  std::vector<double> out;
  for (int64_t s = 0; s < layer.inputs[0].shape[0]; ++s) {
    const auto element = [&](int64_t i, int64_t d) -> double {
      return i == 0 ? layer.inputs[0].data[s * dim + d] : layer.inputs[1].data[(s * features + i - 1) * dim + d];
    };
    for (int64_t d = 0; d < dim; ++d) out.push_back(element(0, d));
    for (int64_t i = 0; i <= features; ++i) {
      for (int64_t j = i + 1; j <= features; ++j) {
        double sum = 0;
        for (int64_t d = 0; d < dim; ++d) sum += element(i, d) * element(j, d);
        out.push_back(sum);
      }
    }
  }
  return out;
}

TEST(DotInteraction, EqualsNaiveLoopsOnEveryInstructionSet) {
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    setenv("TESSERA_ISA", isa, 1);
    for (const uint32_t threads : {1u, 3u}) {
      TestHost host(threads);
      Layer layer(host, "dot_interaction", "{}");
      if (layer.code == TSR_UNAVAILABLE) continue;  // not available on this processor
      ASSERT_EQ(layer.code, TSR_OK) << layer.error();
      for (const auto& [dim, features] : std::vector<std::pair<int64_t, int64_t>>{
               {16, 9}, {16, 26}, {7, 3}, {1, 1}, {64, 40}, {5, 0}, {33, 15}, {8, 16}}) {
        layer.with_inputs({{37, dim}, {37, features * dim}});  // runs some samples in groups, and some one by one
        ASSERT_EQ(layer.output.shape[1], dim + (features + 1) * features / 2);
        ASSERT_EQ(layer.forward(), TSR_OK) << layer.error();
        const std::vector<double> want = naive_interaction(layer, dim, features);
        ASSERT_EQ(layer.output.data.size(), want.size());
        for (size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(layer.output.data[i], want[i], 1e-4) << isa << " " << dim << "x" << features;
      }
    }
  }
  unsetenv("TESSERA_ISA");
}

TEST(DotInteraction, SamplesDependOnNoOthers) {
  TestHost host(2);
  Layer whole(host, "dot_interaction", "{}"), one(host, "dot_interaction", "{}");
  whole.with_inputs({{37, 16}, {37, int64_t{9} * 16}});
  ASSERT_EQ(whole.forward(), TSR_OK);
  one.with_inputs({{1, 16}, {1, int64_t{9} * 16}});
  const int64_t width = whole.output.shape[1];
  for (int64_t s = 0; s < 37; ++s) {
    for (int i = 0; i < 2; ++i) {
      const std::span<const float> sample = std::span(whole.inputs[i].data).subspan(s * one.inputs[i].data.size());
      std::copy_n(sample.begin(), one.inputs[i].data.size(), one.inputs[i].data.begin());
    }
    ASSERT_EQ(one.forward(), TSR_OK);
    for (int64_t k = 0; k < width; ++k)
      ASSERT_EQ(one.output.data[k], whole.output.data[s * width + k]) << s << " " << k;
  }
}

TEST(DotInteraction, OrderOfTheProducts) {
  TestHost host;
  Layer layer(host, "dot_interaction", "{}");
  layer.with_inputs({{1, 1}, {1, 3}});
  layer.inputs[0].data = {2};
  layer.inputs[1].data = {3, 5, 7};
  ASSERT_EQ(layer.forward(), TSR_OK);
  EXPECT_THAT(layer.output.data, ElementsAre(2, 6, 10, 14, 15, 21, 35));
}

TEST(DotInteraction, GradientsByFiniteDifferences) {
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    setenv("TESSERA_ISA", isa, 1);
    TestHost host(2);
    Layer layer(host, "dot_interaction", "{}");
    if (layer.code == TSR_UNAVAILABLE) continue;
    for (const auto& [dim, features] :
         std::vector<std::pair<int64_t, int64_t>>{{16, 9}, {32, 4}, {16, 13}, {16, 14}, {8, 6}, {3, 2}, {5, 0}}) {
      layer.with_inputs({{3, dim}, {3, features * dim}});
      layer.step();
      check_gradient(layer, layer.inputs[0], layer.grad_inputs[0], "dense");
      if (features > 0) check_gradient(layer, layer.inputs[1], layer.grad_inputs[1], "pooled");
      const Matrix pooled = layer.grad_inputs[1];
      layer.grad_inputs[0].data.clear();
      layer.step();
      EXPECT_EQ(layer.grad_inputs[1].data, pooled.data);
    }
  }
  unsetenv("TESSERA_ISA");
}

TEST(DotInteraction, RefusesWhatDoesNotFit) {
  TestHost host;
  Layer layer(host, "dot_interaction", "{}");
  EXPECT_EQ(layer.width_of({16, 40}), TSR_INVALID_ARGUMENT);
  EXPECT_THAT(layer.error(), HasSubstr("40 values are not a multiple of 16"));
  EXPECT_EQ(layer.width_of({16}), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(Layer(host, "dot_interaction", R"({"dim": 3})").code, TSR_INVALID_ARGUMENT);
}

TEST(Cross, FullAndLowRankEqualNaiveLoops) {
  TestHost host(2);
  for (const int rank : {0, 2}) {
    Layer cross(host, "cross", R"({"width": 6, "layers": 2, "low_rank": )" + std::to_string(rank) + "}");
    cross.with_inputs({{4, 6}});
    ASSERT_EQ(cross.forward(), TSR_OK) << cross.error();
    std::vector<double> x0(cross.inputs[0].data.begin(), cross.inputs[0].data.end()), x = x0;
    for (int k = 0; k < 2; ++k) {
      const size_t p = static_cast<size_t>(k) * (rank ? 3 : 2);
      std::vector<double> y = x;
      if (rank) y = naive_linear(y, 4, cross.parameters[p], Matrix({rank}), false);
      y = naive_linear(y, 4, cross.parameters[p + (rank ? 1 : 0)], cross.parameters[p + (rank ? 2 : 1)], false);
      for (size_t i = 0; i < x.size(); ++i) x[i] += x0[i] * y[i];
    }
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(cross.output.data[i], x[i], 1e-4 * (1 + std::abs(x[i])));
  }
}

TEST(Cross, GradientsByFiniteDifferences) {
  TestHost host(2);
  for (const char* options : {R"({"width": 6, "layers": 1})", R"({"width": 6, "layers": 3})",
                              R"({"width": 6, "layers": 2, "low_rank": 2})"}) {
    Layer cross(host, "cross", options);
    cross.with_inputs({{4, 6}});
    check_all_gradients(cross);
    const std::vector<float> weight_gradient = cross.grad_parameters[0].data;
    cross.grad_inputs[0].data.clear();
    cross.step();
    EXPECT_NEAR(cross.grad_parameters[0].data[0], 2 * weight_gradient[0], 1e-3);
  }
}

TEST(Cross, NamesAndRefusals) {
  TestHost host;
  Layer low(host, "cross", R"({"width": 5, "layers": 2, "low_rank": 3})");
  EXPECT_THAT(low.names, ElementsAre("0.v.weight", "0.weight", "0.bias", "1.v.weight", "1.weight", "1.bias"));
  EXPECT_THAT(low.parameters[0].shape, ElementsAre(3, 5));
  EXPECT_THAT(low.parameters[1].shape, ElementsAre(5, 3));
  EXPECT_EQ(low.width_of({6}), TSR_INVALID_ARGUMENT);
  for (const char* options :
       {"{}", R"({"width": 0})", R"({"width": 3, "layers": 0})", R"({"width": 3, "low_rank": -1})"}) {
    EXPECT_EQ(Layer(host, "cross", options).code, TSR_INVALID_ARGUMENT) << options;
  }
  low.with_inputs({{0, 5}});
  low.step();
}

}  // namespace
