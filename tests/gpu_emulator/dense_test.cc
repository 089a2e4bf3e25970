// The dense part of a model on a GPU, emulated or not (gpu_under_test.h): compares the core's computations with those
// in host memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "config/test_refusal.h"
#include "emulator/runtime.h"
#include "gpu_under_test.h"
#include "tessera/dense.h"
#include "tessera/device.h"
#include "tessera/optim.h"

namespace tessera {
namespace {

// Sets the warp size; blocks run on two OS threads.
void emulate(int warp_size) {
  emulator::Config config = emulator::config();
  config.warp_size = warp_size;
  config.workers = 2;
  config.delay = std::chrono::microseconds(0);
  emulator::configure(config);
}

RuntimeOptions with_emulator() {
  return {.plugin_path = {TESSERA_EMULATOR_PLUGINS, TESSERA_PLUGINS}, .default_path = false};
}

using Random = std::mt19937_64;

Tensor noise(Random& random, const Shape& shape) {
  Tensor out = Tensor::empty(shape);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& v : out.span<float>()) v = uniform(random);
  return out;
}

void expect_near(const Tensor& got, const Tensor& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  const Tensor host = in_host_memory(got);
  for (int64_t i = 0; i < want.numel(); ++i) {
    const double w = want.item(i);
    ASSERT_NEAR(host.item(i), w, tolerance * (1 + std::abs(w))) << what << " " << i;
  }
}

class GpuDense : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    emulate(GetParam());
    stream_ = open_device(runtime_, test::gpu_under_test());
  }
  Runtime runtime_{with_emulator()};
  DeviceStreamPtr stream_;
};

// ---- optimizers ----

struct Parameters {
  ParameterList host, device;
};

// One parameter of each shape, or several.
Parameters some_parameters(Random& random, const DeviceStreamPtr& stream, int count = 7) {
  Parameters out;
  const Shape shapes[] = {{7, 5}, {17}, {1}, {40, 33}, {3, 300}, {0, 4}, {}};
  for (int i = 0; i < count; ++i) {
    auto host = std::make_shared<Parameter>(), device = std::make_shared<Parameter>();
    host->name = device->name = str_cat("p", i);
    host->value = noise(random, shapes[i % 7]);
    device->value = stream->to_device(host->value);
    out.host.push_back(std::move(host));
    out.device.push_back(std::move(device));
  }
  return out;
}

void expect_same_states(const KeyedOptimizer& got, const KeyedOptimizer& want) {
  const auto a = got.state(), b = want.state();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < b.size(); ++i) {
    for (size_t k = 0; k < b[i].second.size(); ++k)
      expect_near(a[i].second[k].second, b[i].second[k].second, 2e-6, b[i].first + " " + b[i].second[k].first);
  }
}

TEST_P(GpuDense, OptimizersUpdateAsInHostMemory) {
  const DenseOptimizerSpec specs[] = {
      {"sgd", R"({"lr": 0.1, "weight_decay": 0.01})"},
      {"sgd", R"({"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "maximize": true})"},
      {"sgd", R"({"lr": 0.1, "momentum": 0.9, "nesterov": true, "weight_decay": 0.1})"},
      {"adagrad", R"({"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.1, "weight_decay": 0.01})"},
      {"rowwise_adagrad", R"({"lr": 0.1, "eps": 1e-3, "initial_accumulator_value": 0.1, "weight_decay": 0.01})"},
      {"adam", R"({"lr": 0.1, "betas": [0.8, 0.9], "eps": 1e-3, "weight_decay": 0.01})"}};
  Random random(5);
  for (const DenseOptimizerSpec& spec : specs) {
    SCOPED_TRACE(spec.name + spec.options);
    const Parameters p = some_parameters(random, stream_, &spec == specs ? 70 : 14);  // 70: more than a launch takes
    const auto host = make_dense_optimizer(spec, p.host), device = make_dense_optimizer(spec, p.device);
    for (int step = 0; step < 3; ++step) {
      for (size_t i = 0; i < p.host.size(); ++i) {
        if (i % 9 == 3) continue;  // has no gradient in this step
        p.host[i]->grad = noise(random, p.host[i]->value.shape());
        p.device[i]->grad = stream_->to_device(p.host[i]->grad);
      }
      host->step();
      device->step();
      host->zero_grad();
      device->zero_grad();
    }
    for (size_t i = 0; i < p.host.size(); ++i) expect_near(p.device[i]->value, p.host[i]->value, 2e-6, p.host[i]->name);
    expect_same_states(*device, *host);
    if (HasFatalFailure()) return;
  }
}

TEST_P(GpuDense, StatesMoveBetweenHostAndDevice) {
  Random random(6);
  const Parameters p = some_parameters(random, stream_);
  const DenseOptimizerSpec spec{"adam", R"({"lr": 0.1})"};
  const auto host = make_dense_optimizer(spec, p.host), device = make_dense_optimizer(spec, p.device);
  for (const ParameterPtr& parameter : p.host) parameter->grad = noise(random, parameter->value.shape());
  host->step();
  device->init_state();
  device->load_state_dict(host->state_dict());
  expect_same_states(*device, *host);
  for (const ParameterPtr& parameter : p.host) parameter->value.fill(0.5);
  const auto back = make_dense_optimizer(spec, p.host);
  back->init_state();
  back->load_state_dict(device->state_dict());
  expect_same_states(*back, *host);
}

TEST_P(GpuDense, AStepOfAnOptimizerNeitherWaitsNorAllocates) {
  Random random(7);
  const Parameters p = some_parameters(random, stream_);
  const auto device = make_dense_optimizer({"adam", "{}"}, p.device);
  device->init_state();
  const tsr_device_stats before = stream_->stats();
  device->step();
  EXPECT_EQ(stream_->stats().synchronizes, before.synchronizes);
  EXPECT_EQ(stream_->stats().allocations, before.allocations);
}

TEST_P(GpuDense, GradientsAreClippedAsInHostMemory) {
  Random random(8);
  for (const auto clipping : {GradientClipping::kNorm, GradientClipping::kValue}) {
    const Parameters p = some_parameters(random, stream_);
    GradientClippingOptimizer::Options options;
    options.clipping = clipping;
    options.max_gradient = 0.5;
    GradientClippingOptimizer host(make_sgd({.lr = 1}, p.host), options),
        device(make_sgd({.lr = 1}, p.device), options);
    for (size_t i = 0; i < p.host.size(); ++i) {
      p.host[i]->grad = noise(random, p.host[i]->value.shape());
      p.device[i]->grad = stream_->to_device(p.host[i]->grad);
    }
    host.step();
    device.step();
    for (size_t i = 0; i < p.host.size(); ++i) expect_near(p.device[i]->value, p.host[i]->value, 1e-6, p.host[i]->name);
    if (HasFatalFailure()) return;
  }
}

// ---- the loss ----

TEST_P(GpuDense, BinaryCrossEntropyIsThatOfTheHost) {
  Random random(9);
  for (const int64_t n : {0, 1, 31, 257, 1000}) {
    Tensor logits = noise(random, {n, 1}), labels = noise(random, {n});
    for (float& x : logits.span<float>()) x *= 40;
    for (float& y : labels.span<float>()) y = y > 0.8f ? 0.3f : y > 0 ? 1.0f : 0.0f;
    const Tensor want = Tensor::empty({n, 1});
    const double sum = binary_cross_entropy_with_logits(logits, labels, want, 0.25);
    const Tensor on_device = stream_->to_device(logits), targets = stream_->to_device(labels);
    const Tensor grad = stream_->empty({n, 1}), got = stream_->empty({1}, DType::kFloat64);
    stream_->binary_cross_entropy({sizeof(tsr_binary_cross_entropy), 0, n, static_cast<const float*>(on_device.raw()),
                                   static_cast<const float*>(targets.raw()), static_cast<float*>(grad.raw()),
                                   static_cast<double*>(got.raw()), 0.25});
    expect_near(grad, want, 1e-6, "gradient");
    EXPECT_NEAR(stream_->to_host(got).item(), sum, 1e-6 * (1 + sum)) << n;
  }
}

// ---- layers ----

struct LayerCase {
  const char* module;
  const char* options;
  std::vector<int64_t> widths;
};

// Runs one layer in both places: compares outputs and the gradients of inputs and parameters, for several batch sizes.
void compare_layer(const Runtime& runtime, const DeviceStreamPtr& stream, const LayerCase& c, Random& random) {
  DenseLayer host(runtime, {c.module, c.options, "layer", 7});
  DenseLayer device(runtime, {c.module, c.options, "layer", 7, stream});
  ASSERT_EQ(device.parameters().size(), host.parameters().size());
  for (size_t i = 0; i < host.parameters().size(); ++i) {
    const Parameter &a = *device.parameters()[i], &b = *host.parameters()[i];
    EXPECT_EQ(a.name, b.name);
    expect_near(a.value, b.value, 0, b.name);
    assign(b.value, noise(random, b.value.shape()));  // biases as well
    assign(a.value, b.value);
  }
  EXPECT_EQ(device.output_width(c.widths), host.output_width(c.widths));
  for (const int64_t batch : {3, 0, 1, 70, 600}) {  // 600: sums are computed in pieces
    std::vector<Tensor> on_host, on_device;
    for (const int64_t width : c.widths) {
      on_host.push_back(noise(random, {batch, width}));
      on_device.push_back(stream->to_device(on_host.back()));
    }
    const Tensor want = host.forward(on_host, true), got = device.forward(on_device, true);
    expect_near(got, want, 2e-5, str_cat("output of ", batch));
    const Tensor grad = noise(random, want.shape());
    std::vector<bool> wanted(c.widths.size(), true);
    wanted[0] = batch != 70;
    const auto want_in = host.backward(grad, wanted), got_in = device.backward(stream->to_device(grad), wanted);
    for (size_t i = 0; i < want_in.size(); ++i) {
      ASSERT_EQ(got_in[i].defined(), want_in[i].defined());
      if (want_in[i].defined())
        expect_near(got_in[i], want_in[i], 1e-4, str_cat("gradient of input ", i, " of ", batch));
    }
    for (size_t i = 0; i < host.parameters().size(); ++i) {  // accumulated over the batches so far
      expect_near(device.parameters()[i]->grad, host.parameters()[i]->grad, 2e-4, host.parameters()[i]->name);
      if (batch == 1) host.parameters()[i]->grad = device.parameters()[i]->grad = {};
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(GpuDense, LayersComputeAsInHostMemory) {
  const LayerCase cases[] = {
      {"mlp", R"({"layers": [13, 70, 5], "final_activation": "relu"})", {13}},
      {"mlp", R"({"layers": [1, 1]})", {1}},
      {"mlp", R"({"layers": [65, 128, 33, 1]})", {65}},
      {"dot_interaction", "{}", {16, 64}},
      {"dot_interaction", "{}", {5, 35}},
      {"dot_interaction", "{}", {1, 1}},
      {"dot_interaction", "{}", {130, 0}},
      {"cross", R"({"width": 37, "layers": 2})", {37}},
      {"cross", R"({"width": 20, "layers": 3, "low_rank": 3})", {20}},
  };
  Random random(11);
  for (const LayerCase& c : cases) {
    SCOPED_TRACE(str_cat(c.module, " ", c.options, " ", c.widths[0]));
    compare_layer(runtime_, stream_, c, random);
    if (HasFatalFailure()) return;
  }
}

// Puts a NaN or infinity into one value of one sample and compares its effect on outputs and gradients.
TEST_P(GpuDense, WhatIsNoNumberGoesThroughLayersAsInHostMemory) {
  const LayerCase cases[] = {
      {"mlp", R"({"layers": [13, 20, 5], "final_activation": "relu"})", {13}},
      {"dot_interaction", "{}", {4, 16}},
      {"cross", R"({"width": 9, "layers": 2})", {9}},
  };
  const auto no_numbers = [](const Tensor& tensor) {
    const Tensor host = in_host_memory(tensor);
    std::vector<bool> out;
    for (int64_t i = 0; i < host.numel(); ++i) out.push_back(std::isnan(host.item(i)));
    return out;
  };
  Random random(13);
  for (const LayerCase& c : cases) {
    SCOPED_TRACE(c.module);
    for (const bool backwards : {false, true}) {
      DenseLayer host(runtime_, {c.module, c.options, "layer", 7});
      DenseLayer device(runtime_, {c.module, c.options, "layer", 7, stream_});
      std::vector<Tensor> on_host, on_device;
      for (const int64_t width : c.widths) on_host.push_back(noise(random, {6, width}));
      if (!backwards) on_host[0].span<float>()[2] = std::nanf("");
      for (const Tensor& input : on_host) on_device.push_back(stream_->to_device(input));
      const Tensor want = host.forward(on_host, true), got = device.forward(on_device, true);
      EXPECT_EQ(no_numbers(got), no_numbers(want));
      const Tensor grad = noise(random, want.shape());
      if (backwards) grad.span<float>()[1] = grad.span<float>()[3] = std::nanf("");
      const auto want_in = host.backward(grad), got_in = device.backward(stream_->to_device(grad));
      // A vector's product with itself is not in the output: 0 times it is either added or left out.
      const size_t first = c.module == std::string("dot_interaction") && !backwards ? 1 : 0;
      for (size_t i = first; i < want_in.size(); ++i) EXPECT_EQ(no_numbers(got_in[i]), no_numbers(want_in[i])) << i;
      for (size_t i = 0; i < host.parameters().size(); ++i)
        EXPECT_EQ(no_numbers(device.parameters()[i]->grad), no_numbers(host.parameters()[i]->grad)) << i;
    }
  }
}

TEST_P(GpuDense, ALayerNeitherWaitsNorAllocatesOnceItHasSeenTheBatch) {
  Random random(12);
  DenseLayer layer(runtime_, {"mlp", R"({"layers": [20, 30, 10]})", "layer", 7, stream_});
  const Tensor input = stream_->to_device(noise(random, {600, 20})),
               grad = stream_->to_device(noise(random, {600, 10}));
  const auto step = [&] {
    layer.forward({input}, true);
    layer.backward(grad);
    for (const ParameterPtr& p : layer.parameters()) p->grad = {};
  };
  step();
  const tsr_device_stats before = stream_->stats();
  step();
  EXPECT_EQ(stream_->stats().synchronizes, before.synchronizes);
  EXPECT_EQ(stream_->stats().allocations, before.allocations);
}

TEST_P(GpuDense, ALayerIsChosenByTheDeviceOfTheModel) {
  const std::string gpu = test::gpu_under_test();
  EXPECT_TRUE(computes_layer(runtime_, "mlp", stream_));
  EXPECT_TRUE(computes_layer(runtime_, "mlp", nullptr));
  EXPECT_FALSE(computes_layer(runtime_, "attention", stream_));
  const auto message_of = [&](const DenseLayerOptions& options) {
    return test::refusal([&] { DenseLayer layer(runtime_, options); });
  };
  EXPECT_THAT(message_of({"attention", "{}", "layer", 1, stream_}),
              testing::HasSubstr(str_cat("no plugin computes the layer \"attention\" on the device \"", gpu, '"')));
  EXPECT_THAT(message_of({gpu + ".mlp", R"({"layers": [1, 1]})", "layer", 1}),
              testing::HasSubstr(str_cat("module \"", gpu, ".mlp\" does not compute in host memory")));
  EXPECT_THAT(message_of({"mlp", "{}", "layer", 1, stream_}), testing::HasSubstr("option \"widths\" must list"));
}

INSTANTIATE_TEST_SUITE_P(Warp, GpuDense, testing::Values(32, 64), [](const auto& info) { return str_cat(info.param); });

}  // namespace
}  // namespace tessera
