// Tests layers with several inputs, norms over ranks, dropout and sequences. tests/verify has the checks that
// `tessera verify` makes of every layer: finite differences, contexts, accumulation.
#include <gmock/gmock.h>

#include <barrier>
#include <functional>
#include <mutex>

#include "test_layer.h"

namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

struct Case {
  const char *id, *options;
  std::vector<int64_t> widths;
};
std::vector<std::vector<int64_t>> shapes_of(const std::vector<int64_t>& widths, int64_t batch) {
  std::vector<std::vector<int64_t>> shapes;
  for (const int64_t w : widths) shapes.push_back({batch, w});
  return shapes;
}

TEST(Layers, MseGivesASquareForEachSample) {
  TestHost host;
  Layer mse(host, "mse", "{}");
  ASSERT_EQ(mse.code, TSR_OK) << mse.error();
  mse.with_inputs({{3, 1}, {3, 1}});
  mse.inputs[0].data = {1, -2, 0.5f};
  mse.inputs[1].data = {0, 1, 0.5f};
  mse.grad_output.data = {1, 0.5f, 2};
  tsr_module_context* context = nullptr;
  ASSERT_EQ(mse.forward(&context), TSR_OK) << mse.error();
  EXPECT_THAT(mse.output.data, ElementsAre(1, 9, 0));
  ASSERT_EQ(mse.backward(context), TSR_OK) << mse.error();
  EXPECT_THAT(mse.grad_inputs[0].data, ElementsAre(2, -3, 0));
  EXPECT_THAT(mse.grad_inputs[1].data, ElementsAre(-2, 3, 0));
}

TEST(Layers, PiecewiseIsALineThroughPoints) {
  TestHost host;
  Layer layer(host, "piecewise", R"({"at": [-1, 0.5, 1], "values": [0, 3, 4]})");
  layer.with_inputs({{2, 3}});
  layer.inputs[0].data = {-2, -1, 0, 0.5f, 0.75f, 7};
  layer.grad_output.data = {1, 1, 1, 1, 2, 1};
  layer.step();
  EXPECT_THAT(layer.output.data, ElementsAre(0, 0, 2, 3, 3.5f, 4));
  EXPECT_THAT(layer.grad_inputs[0].data, ElementsAre(0, 2, 2, 2, 4, 0));
  for (const auto& [options, text] : {std::pair{R"({"at": [1, 0], "values": [0, 1]})", "in ascending order"},
                                      {R"({"at": [0, 1], "values": [0]})", "must list as many numbers"},
                                      {"{}", "at least one, not 0 and 0"}}) {
    const Layer refused(host, "piecewise", options);
    EXPECT_EQ(refused.code, TSR_INVALID_ARGUMENT);
    EXPECT_THAT(refused.error(), HasSubstr(text));
  }
}

TEST(Layers, AffineGivesThePredictionItsUnit) {
  TestHost host;
  Layer scale(host, "affine", R"({"inputs": [1], "factor": 3989, "offset": 3932})");
  ASSERT_EQ(scale.code, TSR_OK) << scale.error();
  scale.with_inputs({{3, 1}});
  scale.inputs[0].data = {0, 1, -0.5f};
  scale.grad_output.data = {1, 0, 2};
  scale.step();
  EXPECT_THAT(scale.output.data, ElementsAre(3932, 7921, 1937.5f));
  EXPECT_THAT(scale.grad_inputs[0].data, ElementsAre(3989, 0, 7978));
  for (const char* options : {R"({"inputs": [1], "factor": 0})", R"({"inputs": [1], "offset": 1e300})", "{}"})
    EXPECT_EQ(Layer(host, "affine", options).code, TSR_INVALID_ARGUMENT) << options;
}

const Case kOfSeveralInputs[] = {
    {"mlp", R"({"inputs": [2, 3, 1], "widths": [5, 2]})", {2, 3, 1}},
    {"mlp", R"({"inputs": [2, 3, 1], "widths": [5, 2], "activation": "tanh", "norm": "layer"})", {2, 3, 1}},
    {"linear", R"({"inputs": [2, 4], "width": 3})", {2, 4}},
    {"cross", R"({"inputs": [2, 4], "layers": 2})", {2, 4}},
    {"cross", R"({"inputs": [2, 4], "kind": "vector", "layers": 2})", {2, 4}},
    {"cross", R"({"inputs": [2, 4], "kind": "mixture", "layers": 2, "rank": 3, "activation": "tanh"})", {2, 4}},
    {"fm", R"({"dim": 2})", {2, 4}},
    {"softmax", R"({"inputs": [2, 3]})", {2, 3}},
    {"affine", R"({"inputs": [2, 3], "factor": 2.5, "offset": -1})", {2, 3}},
    {"layer_norm", R"({"inputs": [2, 3]})", {2, 3}},
    {"dice", R"({"inputs": [2, 3]})", {2, 3}},
    {"concat", "{}", {2, 3}},
    {"field_linear", R"({"inputs": [2, 4], "dim": 2, "fields": 2})", {2, 4}},
    {"field_sum", R"({"inputs": [2, 4], "dim": 2})", {2, 4}},
    {"numeric_embedding", R"({"inputs": [1, 2], "dim": 2, "buckets": 3})", {1, 2}},
};

TEST(Layers, InputsAreTakenBesideEachOther) {
  TestHost host(2);
  for (const Case& c : kOfSeveralInputs) {
    SCOPED_TRACE(c.options);
    Layer apart(host, c.id, c.options), joined(host, c.id, c.options);
    ASSERT_EQ(apart.code, TSR_OK) << apart.error();
    int64_t width = 0;
    for (const int64_t w : c.widths) width += w;
    apart.with_inputs(shapes_of(c.widths, 7));
    joined.with_inputs({{7, width}});
    joined.parameters = apart.parameters;
    joined.grad_output = apart.grad_output;
    for (int64_t s = 0; s < 7; ++s) {
      auto to = joined.inputs[0].data.begin() + s * width;
      for (const Matrix& m : apart.inputs) to = std::copy_n(m.data.begin() + s * m.shape[1], m.shape[1], to);
    }
    apart.step();
    joined.step();
    EXPECT_EQ(apart.output.data, joined.output.data);
    for (size_t p = 0; p < apart.grad_parameters.size(); ++p)
      EXPECT_EQ(apart.grad_parameters[p].data, joined.grad_parameters[p].data) << apart.names[p];
    int64_t at = 0;
    for (const Matrix& m : apart.grad_inputs) {
      for (int64_t s = 0; s < 7; ++s) {
        for (int64_t i = 0; i < m.shape[1]; ++i)
          EXPECT_EQ(m.data[s * m.shape[1] + i], joined.grad_inputs[0].data[s * width + at + i]);
      }
      at += m.shape[1];
    }
    apart.grad_inputs[0].data.clear();  // this gradient is not wanted; the others stay the same
    const std::vector<float> last = apart.grad_inputs.back().data;
    apart.step();
    EXPECT_EQ(apart.grad_inputs.back().data, last);
  }
}

TEST(Layers, GradientsOfSeveralInputsByFiniteDifferences) {
  TestHost host;
  const Case cases[] = {
      {"sum", "{}", {3, 3, 3}},
      {"product", "{}", {3, 3, 3}},
      {"logit_product", "{}", {1, 1, 1}},
      {"matmul", R"({"dim": 2})", {6, 4}},
      {"matmul", R"({"dim": 2, "transposed": true})", {6, 4}},
      {"mixture", "{}", {3, 6}},
      {"mixture", R"({"softmax": false})", {3, 6}},
      {"gate", R"({"inputs": [3, 2, 4], "scale": 2})", {3, 2, 4}},
      {"dot_interaction", "{}", {2, 4, 2, 2}},
      {"bilinear", R"({"inputs": [4, 6], "heads": 2})", {4, 6}},
      {"field_linear", R"({"inputs": [4, 2], "dim": 2, "fields": 2, "bias": true})", {4, 2}},
      {"field_products", R"({"dim": 2})", {4, 6}},
      {"field_products", R"({"dim": 2, "later": true})", {6, 6}},
      {"field_sum", R"({"dim": 3, "mean": true})", {6, 3}},
      {"field_scale", R"({"dim": 3})", {6, 2}},
      {"numeric_embedding", R"({"inputs": [2, 1], "dim": 3, "buckets": 4, "temperature": 0.5})", {2, 1}},
      {"projection", R"({"inputs": [3, 5], "width": 4, "bias": true})", {3, 5}},
      {"experts", R"({"inputs": [3, 2], "experts": 2, "widths": [4, 3], "activation": "sigmoid"})", {3, 2}},
      {"experts", R"({"inputs": [3, 2], "experts": 3, "widths": [4, 3]})", {3, 2}},
      {"experts", R"({"inputs": [5], "experts": 1, "widths": [4, 3]})", {5}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.id);
    Layer layer(host, c.id, c.options);
    ASSERT_EQ(layer.code, TSR_OK) << layer.error();
    layer.with_inputs(shapes_of(c.widths, 4));
    check_all_gradients(layer);
  }
}

// PlainExperts computes experts that have only linear layers with ReLU, and AnyExperts all others.
TEST(Experts, AreMlpsBesideEachOther) {
  for (const char* last : {"none", "relu"}) {
    SCOPED_TRACE(last);
    TestHost host(2);
    const std::string rest = std::string(R"("widths": [5, 3], "final_activation": ")") + last + "\"}";
    const std::string of_experts = R"({"inputs": [4], "experts": 3, )" + rest, of_one = R"({"inputs": [4], )" + rest;
    Layer experts(host, "experts", of_experts.c_str());
    ASSERT_EQ(experts.code, TSR_OK) << experts.error();
    experts.with_inputs({{200, 4}});
    experts.step();
    std::vector<float> dx(experts.grad_inputs[0].data.size(), 0.0f);
    for (size_t e = 0; e < 3; ++e) {
      Layer one(host, "mlp", of_one.c_str());
      one.with_inputs({{200, 4}});
      one.inputs[0].data = experts.inputs[0].data;
      const size_t of_each = one.parameters.size();
      for (size_t p = 0; p < of_each; ++p) one.parameters[p].data = experts.parameters[e * of_each + p].data;
      for (size_t s = 0; s < 200; ++s) {
        for (size_t i = 0; i < 3; ++i) one.grad_output.data[3 * s + i] = experts.grad_output.data[9 * s + 3 * e + i];
      }
      one.step();
      for (size_t s = 0; s < 200; ++s) {
        for (size_t i = 0; i < 3; ++i)
          ASSERT_EQ(experts.output.data[9 * s + 3 * e + i], one.output.data[3 * s + i]) << s << ' ' << e;
      }
      for (size_t p = 0; p < of_each; ++p)
        EXPECT_EQ(experts.grad_parameters[e * of_each + p].data, one.grad_parameters[p].data) << e << ' ' << p;
      for (size_t i = 0; i < dx.size(); ++i) dx[i] += one.grad_inputs[0].data[i];
    }
    for (size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(experts.grad_inputs[0].data[i], dx[i], 1e-5) << i;
  }
}

TEST(DotInteraction, PooledRowsMayBeSeveralInputs) {
  TestHost host(2);
  Layer apart(host, "dot_interaction", "{}"), joined(host, "dot_interaction", "{}");
  apart.with_inputs({{2, 1}, {2, 2}, {2, 1}});
  joined.with_inputs({{2, 1}, {2, 3}});
  apart.inputs[0].data = joined.inputs[0].data;
  joined.inputs[1].data = {1, 2, 3, 4, 5, 6};
  apart.inputs[1].data = {1, 2, 4, 5};
  apart.inputs[2].data = {3, 6};
  apart.grad_output = joined.grad_output;
  apart.step();
  joined.step();
  EXPECT_EQ(apart.output.data, joined.output.data);
  EXPECT_EQ(apart.grad_inputs[0].data, joined.grad_inputs[0].data);
  const std::vector<float>& both = joined.grad_inputs[1].data;
  EXPECT_THAT(apart.grad_inputs[1].data, ElementsAre(both[0], both[1], both[3], both[4]));
  EXPECT_THAT(apart.grad_inputs[2].data, ElementsAre(both[2], both[5]));
}

TEST(Layers, ValuesByHand) {
  TestHost host;
  Layer product(host, "product", "{}");
  product.with_inputs({{1, 2}, {1, 2}, {1, 2}});
  product.inputs[0].data = {2, 3};
  product.inputs[1].data = {5, 0};
  product.inputs[2].data = {7, 11};
  product.grad_output.data = {1, 1};
  product.step();
  EXPECT_THAT(product.output.data, ElementsAre(70, 0));
  EXPECT_THAT(product.grad_inputs[1].data, ElementsAre(14, 33));  // although the product is 0
  Layer fm(host, "fm", R"({"dim": 2})");
  fm.with_inputs({{1, 4}, {1, 2}});
  fm.inputs[0].data = {1, 2, 3, 4};
  fm.inputs[1].data = {5, 6};
  ASSERT_EQ(fm.forward(), TSR_OK);
  EXPECT_THAT(fm.output.data, ElementsAre((1 * 3 + 2 * 4) + (1 * 5 + 2 * 6) + (3 * 5 + 4 * 6)));
  Layer bilinear(host, "bilinear", R"({"inputs": [2, 4], "heads": 2})");
  bilinear.with_inputs({{1, 2}, {1, 4}});
  bilinear.inputs[0].data = {2, 3};
  bilinear.inputs[1].data = {1, 2, 3, 4};
  bilinear.parameters[0].data = {1, 10};  // x.weight
  bilinear.parameters[1].data = {100};
  bilinear.parameters[2].data = {0, 0, 0, 1};  // y.weight
  bilinear.parameters[3].data = {1000};
  bilinear.parameters[4].data = {5, 6, 7, 8};  // xy.weight of head 0, [1, 2], and of head 1
  ASSERT_EQ(bilinear.forward(), TSR_OK);
  EXPECT_THAT(bilinear.output.data, ElementsAre(32 + 100 + 4 + 1000 + 2 * (5 * 1 + 6 * 2) + 3 * (7 * 3 + 8 * 4)));
  Layer matmul(host, "matmul", R"({"dim": 2})");
  matmul.with_inputs({{1, 4}, {1, 2}});
  matmul.inputs[0].data = {1, 2, 3, 4};
  matmul.inputs[1].data = {5, 6};
  ASSERT_EQ(matmul.forward(), TSR_OK);
  EXPECT_THAT(matmul.output.data, ElementsAre(17, 39));
}

class OnIsa : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { setenv("TESSERA_ISA", GetParam(), 1); }
  void TearDown() override { unsetenv("TESSERA_ISA"); }
};

TEST_P(OnIsa, ActivationsEqualTheLibrarys) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::vector<std::pair<const char*, std::function<double(double)>>> all = {
      {"relu", [](double x) { return std::max(x, 0.0); }},
      {"leaky_relu", [](double x) { return x < 0 ? 0.01 * x : x; }},
      {"sigmoid", sigmoid},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"gelu", [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }},
      {"silu", [&](double x) { return x * sigmoid(x); }},
      {"elu", [](double x) { return x > 0 ? x : std::expm1(x); }},
      {"selu", [](double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x)); }},
      {"softplus", [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }},
      {"mish", [](double x) { return x * std::tanh(std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)))); }}};
  TestHost host;
  for (const auto& [name, f] : all) {
    Layer layer(host, "activation", R"({"inputs": [401], "kind": ")" + std::string(name) + "\"}");
    if (layer.code == TSR_UNAVAILABLE) GTEST_SKIP() << "not this processor";
    layer.with_inputs({{2, 401}});
    for (int i = 0; i < 802; ++i) layer.inputs[0].data[i] = static_cast<float>(i - 401) / (i < 401 ? 4.0f : 50.0f);
    std::fill(layer.grad_output.data.begin(), layer.grad_output.data.end(), 1.0f);
    layer.step();
    for (int i = 0; i < 802; ++i) {
      const double x = layer.inputs[0].data[i], slope = (f(x + 1e-5) - f(x - 1e-5)) / 2e-5;
      EXPECT_NEAR(layer.output.data[i], f(x), 4e-7 * (1 + std::abs(x))) << name << " " << x;
      if (std::abs(x) > 1e-3) {
        EXPECT_NEAR(layer.grad_inputs[0].data[i], slope, 2e-6) << name << " " << x;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, OnIsa, testing::Values("portable", "avx2", "avx512"),
                         [](const auto& info) { return std::string(info.param); });

// Two ranks as threads.
struct Ranks {
  std::barrier<> meet{2};
  std::mutex mutex;
  std::vector<double> sums;
  static tsr_code add_up(void* self, const DLTensor* inout, tsr_error*) {
    auto& r = *static_cast<Ranks*>(self);
    auto* values = static_cast<double*>(inout->data);
    const auto n = static_cast<size_t>(inout->shape[0]);
    r.meet.arrive_and_wait();
    {
      const std::lock_guard lock(r.mutex);
      if (r.sums.empty()) r.sums.resize(n);
      for (size_t i = 0; i < n; ++i) r.sums[i] += values[i];
    }
    r.meet.arrive_and_wait();
    std::copy_n(r.sums.begin(), n, values);
    r.meet.arrive_and_wait();
    {
      const std::lock_guard lock(r.mutex);
      r.sums.clear();
    }
    return TSR_OK;
  }
};

TEST(BatchNorm, TwoRanksSeeTheStatisticsOfBoth) {
  TestHost host;
  for (const char* id : {"batch_norm", "mlp_batch_norm", "dice"}) {
    const std::string options = R"({"inputs": [3])" + std::string(id[0] == 'm' ? R"(, "widths": [4, 2]})" : "}");
    Layer whole(host, id, options), a(host, id, options), b(host, id, options);
    ASSERT_EQ(whole.code, TSR_OK) << whole.error();
    whole.with_inputs({{6, 3}});
    a.with_inputs({{4, 3}});
    b.with_inputs({{2, 3}});
    Ranks ranks;
    int64_t at = 0;
    for (Layer* part : {&a, &b}) {
      part->sum_over_ranks = Ranks::add_up;
      part->ranks = &ranks;
      part->parameters = whole.parameters;
      std::copy_n(whole.inputs[0].data.begin() + at * 3, part->inputs[0].data.size(), part->inputs[0].data.begin());
      const int64_t width = whole.output.shape[1];
      std::copy_n(whole.grad_output.data.begin() + at * width, part->output.data.size(),
                  part->grad_output.data.begin());
      at += part->output.shape[0];
    }
    whole.step();
    std::thread other([&] { b.step(); });
    a.step();
    other.join();
    for (size_t i = 0; i < whole.output.data.size(); ++i) {
      const size_t of_a = a.output.data.size();
      EXPECT_NEAR(i < of_a ? a.output.data[i] : b.output.data[i - of_a], whole.output.data[i], 1e-5) << id;
    }
    for (size_t i = 0; i < whole.grad_inputs[0].data.size(); ++i) {
      const auto &x = a.grad_inputs[0].data, &y = b.grad_inputs[0].data;
      EXPECT_NEAR(i < x.size() ? x[i] : y[i - x.size()], whole.grad_inputs[0].data[i], 1e-5) << id;
    }
    for (size_t p = 0; p < whole.grad_parameters.size(); ++p) {  // the core sums these over the ranks
      for (size_t i = 0; i < whole.grad_parameters[p].data.size(); ++i) {
        EXPECT_NEAR(a.grad_parameters[p].data[i] + b.grad_parameters[p].data[i], whole.grad_parameters[p].data[i], 1e-4)
            << id << " " << whole.names[p];
      }
    }
    for (size_t k = 0; k < 2; ++k) {
      for (size_t i = 0; i < whole.buffers[k].data.size(); ++i)
        EXPECT_NEAR(a.buffers[k].data[i], whole.buffers[k].data[i], 1e-5) << id;
    }
    EXPECT_EQ(a.buffers[2].counts[0], 1);
  }
}

TEST(BatchNorm, TakesTheBiasOfTheLayerBeforeIt) {
  TestHost host;
  const Layer mlp(host, "mlp_batch_norm", R"({"inputs": [3], "widths": [4, 2]})");
  EXPECT_THAT(mlp.names, ElementsAre("0.weight", "0.norm.weight", "0.norm.bias", "1.weight", "1.bias"));
}

TEST(BatchNorm, RunningStatisticsAreForEvaluation) {
  TestHost host;
  Layer norm(host, "batch_norm", R"({"inputs": [1], "momentum": 0.5, "eps": 1e-12})");
  norm.with_inputs({{3, 1}});
  norm.parameters[0].data = {1};
  norm.parameters[1].data = {0};
  norm.inputs[0].data = {1, 2, 6};
  ASSERT_EQ(norm.forward(), TSR_OK) << norm.error();
  EXPECT_NEAR(norm.output.data[0], -2 / std::sqrt(14.0 / 3), 1e-6);
  EXPECT_NEAR(norm.buffers[0].data[0], 1.5, 1e-6);  // half of the old mean 0 and of the batch's mean 3
  // half of the old variance 1 and of the unbiased variance 7
  EXPECT_NEAR(norm.buffers[1].data[0], 0.5 + 7.0 / 2, 1e-6);
  norm.trains = false;
  ASSERT_EQ(norm.forward(), TSR_OK) << norm.error();
  EXPECT_NEAR(norm.output.data[2], 4.5 / 2, 1e-6);
  EXPECT_EQ(norm.buffers[2].counts[0], 1);
}

TEST_P(OnIsa, DropoutDropsTheSame) {
  TestHost host;
  Layer dropout(host, "dropout", R"({"inputs": [40]})");
  if (dropout.code == TSR_UNAVAILABLE) GTEST_SKIP() << "not this processor";
  setenv("TESSERA_ISA", "portable", 1);
  Layer portable(host, "dropout", R"({"inputs": [40]})");
  for (Layer* layer : {&dropout, &portable}) {
    layer->with_inputs({{5, 40}});
    ASSERT_EQ(layer->forward(), TSR_OK) << layer->error();
  }
  EXPECT_EQ(dropout.output.data, portable.output.data);
}

TEST(Dropout, DropsWhileTrainingAndAnewInEveryStep) {
  TestHost host;
  Layer dropout(host, "dropout", R"({"inputs": [1000], "rate": 0.25})");
  dropout.with_inputs({{20, 1000}});
  std::fill(dropout.inputs[0].data.begin(), dropout.inputs[0].data.end(), 3.0f);
  std::fill(dropout.grad_output.data.begin(), dropout.grad_output.data.end(), 3.0f);
  dropout.step();
  const std::vector<float> first = dropout.output.data;
  EXPECT_EQ(dropout.grad_inputs[0].data, first);  // backward drops the same elements
  EXPECT_NEAR(std::count(first.begin(), first.end(), 0.0f), 5000, 300);
  EXPECT_EQ(std::count(first.begin(), first.end(), 4.0f) + std::count(first.begin(), first.end(), 0.0f), 20000);
  dropout.step_number = 1;
  dropout.step();
  const std::vector<float>& second = dropout.output.data;
  int same = 0, as_the_one_before = 0;
  for (size_t i = 0; i + 1 < first.size(); ++i) {
    same += (first[i] == 0) == (second[i] == 0);
    as_the_one_before += (first[i] == 0) == (first[i + 1] == 0);
  }
  EXPECT_NEAR(same, 12500, 300);  // three quarters squared plus a quarter squared
  EXPECT_NEAR(as_the_one_before, 12500, 300);
  dropout.trains = false;
  dropout.step();
  EXPECT_EQ(dropout.output.data, dropout.inputs[0].data);
}

TEST(Layers, RowByRowUseThreadsWithEqualBits) {
  struct Case {
    const char *id, *options;
    std::vector<std::vector<int64_t>> inputs;
  };
  const std::vector<int64_t> whole = {1000, 100}, left = {1000, 60}, right = {1000, 40};
  const Case all[] = {{"layer_norm", R"({"inputs": [100]})", {whole}},
                      {"layer_norm", R"({"inputs": [100], "weights": false})", {whole}},
                      {"l2_norm", R"({"inputs": [100]})", {whole}},
                      {"swish_layer_norm", R"({"inputs": [100]})", {whole}},
                      {"dropout", R"({"inputs": [60, 40]})", {left, right}},
                      {"concat", R"({"inputs": [60, 40]})", {left, right}},
                      {"sum", "{}", {whole, whole}},
                      {"product", "{}", {whole, whole, whole}},
                      {"gate", R"({"inputs": [100]})", {whole}},
                      {"gate", R"({"inputs": [60, 40], "hidden": [8], "activation": "tanh"})", {left, right}},
                      {"experts", R"({"inputs": [60, 40], "experts": 3, "widths": [64, 16]})", {left, right}},
                      {"mixture", "{}", {{1000, 4}, {1000, 80}}},
                      {"mixture", R"({"softmax": false})", {{1000, 20}, {1000, 100}}},
                      {"bilinear", R"({"inputs": [60, 40], "heads": 4})", {left, right}}};
  for (const Case& c : all) {
    const char* const id = c.id;
    const auto step = [&](uint32_t threads) {
      TestHost host(threads);
      Layer layer(host, c.id, c.options);
      layer.with_inputs(c.inputs);
      layer.step();
      EXPECT_EQ(host.lent > 0, threads > 1) << id;
      std::vector<std::vector<float>> out = {layer.output.data};
      for (const auto* gradients : {&layer.grad_inputs, &layer.grad_parameters}) {
        for (const Matrix& m : *gradients) out.push_back(m.data);
      }
      return out;
    };
    EXPECT_EQ(step(1), step(3)) << id;
  }
}

TEST(Sequences, PoolingByHand) {
  TestHost host;
  for (const auto& [id, want] :
       std::vector<std::pair<const char*, std::vector<float>>>{{"sum_pooling", {4, 6, 0, 0, 5, -1}},
                                                               {"mean_pooling", {2, 3, 0, 0, 5, -1}},
                                                               {"max_pooling", {3, 4, 0, 0, 5, -1}}}) {
    Layer layer(host, id, "{}");
    layer.bounds = {0, 2, 2, 3};
    layer.with_inputs({{3, 2}});
    layer.inputs[0].data = {1, 4, 3, 2, 5, -1};
    layer.grad_output.data = {1, 2, 3, 4, 5, 6};
    layer.step();
    EXPECT_EQ(layer.output.data, want) << id;
    if (id == std::string("max_pooling")) {
      EXPECT_THAT(layer.grad_inputs[0].data, ElementsAre(0, 2, 1, 0, 5, 6));
    }
  }
  Layer weights(host, "position_weights", R"({"max_length": 2})");
  weights.bounds = {0, 2, 3};
  weights.with_inputs({{3, 1}});
  weights.inputs[0].data = {5, 7, 11};
  weights.parameters[0].data = {2, 3};
  ASSERT_EQ(weights.forward(), TSR_OK) << weights.error();
  EXPECT_THAT(weights.output.data, ElementsAre(31, 22));
  weights.bounds = {0, 0, 3};
  EXPECT_EQ(weights.forward(), TSR_INVALID_ARGUMENT);
  EXPECT_THAT(weights.error(), HasSubstr("a sequence has 3 rows, but \"max_length\" is 2"));
}

TEST(Sequences, RowsChangeByHand) {
  TestHost host;
  const std::vector<int64_t> left = {0, 2, 2, 3}, right = {0, 1, 1, 2};
  const auto made = [&](const char* id, const char* options, std::vector<std::vector<int64_t>> bounds,
                        const std::vector<std::vector<float>>& values) {
    SCOPED_TRACE(id);
    Layer layer(host, id, options);
    EXPECT_EQ(layer.code, TSR_OK) << layer.error();
    layer.all_bounds = std::move(bounds);
    std::vector<std::vector<int64_t>> shapes;
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t rows = layer.all_bounds[i].empty() ? 3 : layer.all_bounds[i].back();
      shapes.push_back({rows, static_cast<int64_t>(values[i].size()) / rows});
    }
    layer.with_inputs(shapes);
    for (size_t i = 0; i < values.size(); ++i) layer.inputs[i].data = values[i];
    for (Matrix& p : layer.parameters) std::fill(p.data.begin(), p.data.end(), 7.0F);
    if (layer.forward() != TSR_OK) return std::vector<float>();
    std::vector<float> out = layer.output.data;
    check_all_gradients(layer);
    return out;
  };
  EXPECT_THAT(made("replace_last", "{}", {left, right}, {{1, 2, 3}, {8, 9}}), ElementsAre(1, 8, 9));
  EXPECT_THAT(made("replace_last", R"({"inputs": [1, 2], "learnt": true})", {left, right}, {{1, 2, 3}, {8, 8, 9, 9}}),
              ElementsAre(7, 7, 8, 8, 9, 9));
  EXPECT_THAT(made("replace_last", "{}", {right, left}, {{8, 9}, {1, 2, 3}}), ElementsAre()) << "too few rows";
  EXPECT_THAT(made("pad_rows", R"({"length": 2, "value": -1})", {left}, {{1, 2, 3}}), ElementsAre(1, 2, -1, -1, 3, -1));
  EXPECT_THAT(made("pad_rows", R"({"length": 1, "min_rows": 2})", {left, right}, {{1, 2, 3}, {0, 0}}),
              ElementsAre(0, 0, 0));
  EXPECT_THAT(made("unpad_rows", R"({"length": 1})", {{}, left}, {{4, 5, 6}, {0, 0, 0}}), ElementsAre(4, 0, 6));
  EXPECT_THAT(made("scale_rows", "{}", {left, {}}, {{1, 2, 3}, {2, 3, 4}}), ElementsAre(2, 4, 12));
  EXPECT_THAT(made("scale_rows", "{}", {left, left}, {{1, 2, 3}, {2, 3, 4}}), ElementsAre(2, 6, 12));
  EXPECT_THAT(made("sample_linear", "{}", {left, {}}, {{1, 2, 3}, {1, 10, 0, 0, 2, 3}}),
              ElementsAre(1, 10, 2, 20, 6, 9));
}

TEST(Sequences, TargetAttentionByFiniteDifferences) {
  TestHost host;
  for (const char* softmax : {"false", "true"}) {
    Layer layer(host, "target_attention",
                R"({"inputs": [3, 3], "widths": [4], "activation": "tanh", "softmax": )" + std::string(softmax) + "}");
    ASSERT_EQ(layer.code, TSR_OK) << layer.error();
    layer.bounds = {0, 3, 3, 4};
    layer.with_inputs({{3, 3}, {4, 3}});
    check_all_gradients(layer);
    for (int i = 3; i < 6; ++i) EXPECT_EQ(layer.output.data[i], 0) << "a sample without rows";
    if (*softmax == 'f') continue;
    // The softmax of a single row is 1.
    for (int i = 6; i < 9; ++i) EXPECT_FLOAT_EQ(layer.output.data[i], layer.inputs[1].data[9 + i - 6]);
  }
}

TEST(Layers, FieldsByHand) {
  TestHost host;
  const auto output = [&](const char* id, const char* options, const std::vector<std::vector<float>>& inputs,
                          const std::vector<std::vector<float>>& parameters = {}) {
    Layer layer(host, id, options);
    std::vector<std::vector<int64_t>> shapes;
    for (const auto& x : inputs) shapes.push_back({1, static_cast<int64_t>(x.size())});
    layer.with_inputs(shapes);
    for (size_t i = 0; i < inputs.size(); ++i) layer.inputs[i].data = inputs[i];
    for (size_t p = 0; p < parameters.size(); ++p) layer.parameters[p].data = parameters[p];
    EXPECT_EQ(layer.forward(), TSR_OK) << layer.error();
    return layer.output.data;
  };
  EXPECT_THAT(output("field_linear", R"({"inputs": [4], "dim": 2, "fields": 1, "bias": true})", {{1, 2, 3, 4}},
                     {{10, 100}, {0.5f}}),
              ElementsAre(310.5f, 420.5f));
  EXPECT_THAT(output("field_products", R"({"dim": 2})", {{1, 2}, {3, 4, 5, 6}}), ElementsAre(3, 8, 5, 12));
  EXPECT_THAT(output("field_products", R"({"dim": 1, "later": true})", {{1, 2, 3}, {10, 100, 1000}}),
              ElementsAre(100, 1000, 2000));
  EXPECT_THAT(output("field_sum", R"({"dim": 2})", {{1, 2, 3, 4}}), ElementsAre(3, 7));
  EXPECT_THAT(output("field_sum", R"({"dim": 2, "mean": true})", {{1, 2, 3, 4}}), ElementsAre(1.5f, 3.5f));
  EXPECT_THAT(output("field_scale", R"({"dim": 2})", {{1, 2, 3, 4}, {10, -1}}), ElementsAre(10, 20, -3, -4));
  EXPECT_THAT(output("matmul", R"({"dim": 2, "transposed": true})", {{1, 2}, {3, 4, 5, 6}}), ElementsAre(11, 17));
  // h = {2, -0.02}; z = {2 + 1, -0.02 + 1} / 2 differ by 1.01
  const float p = 1 / (1 + std::exp(-1.01f));
  EXPECT_THAT(output("numeric_embedding", R"({"inputs": [1], "dim": 1, "buckets": 2, "temperature": 2})", {{2}},
                     {{1, -1}, {0.5f, 0, 0.5f, 0}, {8, 0}}),
              ElementsAre(testing::FloatNear(8 * p, 1e-5f)));
}

TEST(Layers, NoGradientIsOneOfZeros) {
  TestHost host(2);
  std::vector<Case> all(std::begin(kOfSeveralInputs), std::end(kOfSeveralInputs));
  all.insert(all.end(), {{"batch_norm", R"({"inputs": [4]})", {4}},
                         {"dot_interaction", "{}", {2, 4}},
                         {"sum", "{}", {3, 3}},
                         {"gate", R"({"inputs": [3, 2]})", {3, 2}},
                         {"projection", R"({"inputs": [3, 5], "width": 4})", {3, 5}},
                         {"experts", R"({"inputs": [3], "experts": 2, "widths": [4]})", {3}},
                         {"sampled_softmax", "{}", {3, 3}},
                         {"pairwise_loss", "{}", {1, 1}}});
  for (const Case& c : all) {
    SCOPED_TRACE(c.id + std::string(" ") + c.options);
    Layer layer(host, c.id, c.options);
    ASSERT_EQ(layer.code, TSR_OK) << layer.error();
    layer.with_inputs(shapes_of(c.widths, 5));
    for (Matrix& m : layer.grad_inputs) std::fill(m.data.begin(), m.data.end(), 7.0f);
    for (Matrix& m : layer.grad_parameters) std::fill(m.data.begin(), m.data.end(), 7.0f);
    layer.grad_output.data.clear();
    layer.step();
    for (const Matrix& m : layer.grad_inputs) EXPECT_THAT(m.data, Each(0.0f));
    for (const Matrix& m : layer.grad_parameters) EXPECT_THAT(m.data, Each(7.0f));
  }
}

TEST(Layers, StepsAfterTheLargestBatchAskForNoMemory) {
  std::vector<Case> all(std::begin(kOfSeveralInputs), std::end(kOfSeveralInputs));
  all.insert(all.end(), {{"mlp_batch_norm", R"({"inputs": [4], "widths": [3, 2]})", {4}},
                         {"gate", R"({"inputs": [3, 2, 4]})", {3, 2, 4}},
                         {"projection", R"({"inputs": [3, 5], "width": 4})", {3, 5}},
                         {"experts", R"({"inputs": [3], "experts": 2, "widths": [4]})", {3}},
                         {"mixture", "{}", {3, 6}},
                         {"bilinear", R"({"inputs": [4, 6], "heads": 2})", {4, 6}},
                         {"field_products", R"({"dim": 2})", {4, 6}},
                         {"dot_interaction", "{}", {2, 4, 2}},
                         {"sampled_softmax", "{}", {3, 3}}});
  for (const Case& c : all) {
    SCOPED_TRACE(c.id + std::string(" ") + c.options);
    TestHost host;
    {
      Layer layer(host, c.id, c.options);
      ASSERT_EQ(layer.code, TSR_OK) << layer.error();
      layer.with_inputs(shapes_of(c.widths, 64));
      layer.step();
      const int before = host.allocations;
      for (const int64_t batch : {64, 17, 64, 0, 1, 33}) {
        layer.with_inputs(shapes_of(c.widths, batch));
        layer.step();
      }
      EXPECT_EQ(host.allocations, before);
    }
    EXPECT_EQ(host.live, 0);
  }
}

TEST(Losses, SampledSoftmaxByHand) {
  TestHost host(2);
  Layer loss(host, "sampled_softmax", R"({"temperature": 0.5})");
  loss.with_inputs({{3, 2}, {3, 2}, {3, 1}});
  check_all_gradients(loss);
  ASSERT_EQ(loss.forward(), TSR_OK);
  for (size_t s = 0; s < 3; ++s) {
    double sum = 0, own = 0;
    for (size_t j = 0; j < 3; ++j) {
      const auto &q = loss.inputs[0].data, &i = loss.inputs[1].data;
      const double z = 2 * (double{q[2 * s]} * i[2 * j] + double{q[2 * s + 1]} * i[2 * j + 1]) - loss.inputs[2].data[j];
      sum += std::exp(z);
      if (j == s) own = z;
    }
    EXPECT_NEAR(loss.output.data[s], std::log(sum) - own, 1e-5);
  }
}

TEST(Losses, OfTowersAreNotThoseOfAPredictionAndALabel) {
  TestHost host;
  Layer loss(host, "sampled_softmax", "{}");
  ASSERT_EQ(loss.code, TSR_OK) << loss.error();
  EXPECT_EQ(loss.width_of({2, 2}), TSR_OK);
  EXPECT_EQ(loss.width_of({1, 1}), TSR_INVALID_ARGUMENT);
  EXPECT_THAT(loss.error(),
              AllOf(HasSubstr("not a prediction and a label of one value"), HasSubstr("a layer over both towers")));
}

TEST(Losses, AnItemOfTheSameIdIsNoNegative) {
  TestHost host;
  Layer loss(host, "sampled_softmax", "{}");
  loss.with_inputs({{3, 2}, {3, 2}});
  Matrix ids({3, 1});
  ids.counts = {5, 9, 5};
  loss.inputs.push_back(ids);
  loss.grad_inputs.emplace_back();  // integers have no gradient
  loss.step();
  for (size_t i = 0; i < 2; ++i) check_gradient(loss, loss.inputs[i], loss.grad_inputs[i], "with ids");
  loss.step();
  const float first = loss.output.data[0];
  for (size_t i = 0; i < 2; ++i)
    loss.inputs[1].data[4 + i] = 10 * loss.inputs[0].data[i];  // not among sample 0's negatives
  loss.step();
  EXPECT_EQ(loss.output.data[0], first);
  loss.inputs[2].counts = {5, 9, 6};
  loss.step();
  EXPECT_NE(loss.output.data[0], first);
}

TEST(Losses, PairsAreOfOneGroup) {
  TestHost host;
  Layer loss(host, "pairwise_loss", "{}");
  loss.with_inputs({{4, 1}, {4, 1}});
  check_all_gradients(loss);
  loss.inputs[0].data = {1, 3, 0, 5};
  loss.inputs[1].data = {1, 0, 0, 2};
  const auto of_pair = [](double z) { return std::log1p(std::exp(-z)); };
  const double each = 4.0 / 5;  // 4 samples / 5 pairs: (0, 1), (0, 2), (3, 0), (3, 1), (3, 2)
  ASSERT_EQ(loss.forward(), TSR_OK) << loss.error();
  EXPECT_NEAR(loss.output.data[0], each * (of_pair(-2) + of_pair(1)), 1e-5);
  EXPECT_NEAR(loss.output.data[3], each * (of_pair(4) + of_pair(2) + of_pair(5)), 1e-5);
  EXPECT_EQ(loss.output.data[1], 0);
  Matrix groups({4, 1});
  groups.counts = {1, 1, 2, 2};
  loss.inputs.push_back(groups);
  loss.grad_inputs.emplace_back();
  loss.step();
  EXPECT_NEAR(loss.output.data[0], 4.0 / 2 * of_pair(-2), 1e-5);
  EXPECT_NEAR(loss.output.data[3], 4.0 / 2 * of_pair(5), 1e-5);
  check_gradient(loss, loss.inputs[0], loss.grad_inputs[0], "values of groups");
  loss.inputs[1].data = {1, 1, 1, 1};
  loss.step();
  EXPECT_THAT(loss.output.data, Each(0.0f));
  EXPECT_THAT(loss.grad_inputs[0].data, Each(0.0f));
}

TEST(Layers, RefusalsSayWhatToDo) {
  TestHost host;
  const std::tuple<const char*, const char*, const char*> all[] = {
      {"linear", "{}", "option \"inputs\" must list the widths of its inputs"},
      {"activation", R"({"inputs": [2], "kind": "rely"})",
       "there is no activation \"rely\"; the nearest is \"relu\" of none"},
      {"activation", R"({"inputs": [2], "kind": "elu", "slope": 0.5})",
       "option \"slope\" belongs to the kind \"leaky_relu\": \"elu\" has none"},
      {"mlp", R"({"inputs": [2], "widths": [3, 1], "norm": "batch"})",
       "which mlp does not: use the layer \"mlp_batch_norm\""},
      {"mlp", R"({"inputs": [2], "widths": [3], "dropout": 1})", "at least 0 and below 1, not 1"},
      {"mlp", R"({"inputs": [2], "widths": [3], "activation": "nonsense"})", "set \"final_activation\" instead"},
      {"mlp", R"({"inputs": [2], "widths": [3], "dropout": 0.5})", "there is only one: leave it out"},
      {"mlp", R"({"inputs": [2], "widths": [3], "norm": "layer"})", "option \"norm\" applies after each of the"},
      {"mlp", R"({"layers": [2, 3], "widths": [3]})", "leave one of them out"},
      {"mlp_batch_norm", R"({"inputs": [2], "widths": [3]})", "option \"norm\" applies after each of the"},
      {"experts", R"({"inputs": [2], "widths": [3], "activation": "tanh"})", "set \"final_activation\" instead"},
      {"cross", R"({"inputs": [2], "rank": 4})", "belongs to the kinds low_rank and mixture, not to \"full\""},
      {"cross", R"({"inputs": [2], "kind": "vector", "rank": 4})", "not to \"vector\""},
      {"cross", R"({"inputs": [2], "low_rank": 4, "rank": 2})", "leave out \"rank\""},
      {"cross", R"({"inputs": [2], "low_rank": 4, "kind": "full"})", "leave out \"kind\""},
      {"split_columns", R"({"inputs": [6], "widths": [2, 1]})", "6 values, not 3"},
      {"item_loss", R"({"correct_item": false})", "no effect without \"log_q\" or \"count_items\""},
      {"attention", R"({"scale": 0})", "must not be 0"},
      {"attention", R"({"full": 2})", "there is no window: set it"},
      {"attention", R"({"length": 4})", "no effect on a softmax without a position bias"},
      {"mlp", R"({"inputs": [2], "dropout": 0.5})", "must list the widths of the layers' outputs"},
      {"mlp", R"({"inputs": [2], "width": [3]})", "unknown option \"width\": the nearest known one is \"widths\""},
      {"experts", R"({"inputs": [2], "experts": 2, "width": 3})", "the nearest known one is \"widths\""},
      {"cross", R"({"inputs": [2], "kind": "lowrank"})", "must be full, low_rank, vector or mixture"},
      {"dropout", R"({"inputs": [2], "rate": -0.1})", "at least 0 and below 1"},
      {"target_attention", R"({"inputs": [2, 3]})", "which are equal"},
      {"matmul", "{}", "option \"dim\" must be the dimension"},
      {"field_sum", "{}", "option \"dim\" must be the number of values of a field, above 0"},
      {"field_linear", R"({"inputs": [5], "dim": 2, "fields": 3})", "and 5 values are no multiple of that"},
      {"field_linear", R"({"inputs": [4], "dim": 2})", "option \"fields\" must be above 0, not 0"},
      {"numeric_embedding", R"({"inputs": [4], "dim": 2, "temperature": 0})", "must be above 0, not 0"}};
  for (const auto& [id, options, text] : all) {
    const Layer layer(host, id, options);
    EXPECT_EQ(layer.code, TSR_INVALID_ARGUMENT) << id << options;
    EXPECT_THAT(layer.error(), HasSubstr(text));
  }
  Layer sum(host, "sum", "{}");
  EXPECT_EQ(sum.width_of({3, 4}), TSR_INVALID_ARGUMENT);
  EXPECT_THAT(sum.error(), HasSubstr("inputs of one width, not of 3 and 4 values"));
  Layer parts(host, "split_columns", R"({"widths": [2, 1]})");
  EXPECT_EQ(parts.width_of({4, 2}), TSR_INVALID_ARGUMENT) << "told only when the inputs are known";
  EXPECT_THAT(parts.error(), HasSubstr("together as wide as the inputs, 6 values, not 3"));
  Layer pairs(host, "field_products", R"({"dim": 2, "later": true})");
  EXPECT_EQ(pairs.width_of({4, 6}), TSR_INVALID_ARGUMENT);
  EXPECT_THAT(pairs.error(), HasSubstr("the same number of fields, at least 2, not of 2 and 3"));
  Layer scale(host, "field_scale", R"({"dim": 2})");
  EXPECT_EQ(scale.width_of({4, 3}), TSR_INVALID_ARGUMENT);
  EXPECT_THAT(scale.error(), HasSubstr("2 fields are not 3 values"));
  Layer linear(host, "linear", R"({"inputs": [3, 4]})");
  EXPECT_EQ(linear.width_of({3, 5}), TSR_INVALID_ARGUMENT);
  EXPECT_THAT(linear.error(), HasSubstr("linear takes inputs of 7 values together, not 8 values"));
}

}  // namespace
