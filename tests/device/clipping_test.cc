// Gradients on a device are clipped like those in host memory, without a wait. Tests a GPU (gpu_under_test.h) and the
// fake device, NaN and infinity, one rank and two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "config/test_refusal.h"
#include "fake_runtime.h"
#include "gpu_under_test.h"
#include "spawn.h"
#include "tessera/device.h"
#include "tessera/distributed_model_parallel.h"
#include "tessera/optim.h"

namespace tessera {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
const std::vector<std::string> kDevices = {"fake-training", test::gpu_under_test()};

RuntimeOptions with_devices() {
  RuntimeOptions options = test::with_fake_device();
  options.plugin_path.push_back(TESSERA_EMULATOR_PLUGINS);
  return options;
}

using Values = std::vector<std::vector<float>>;

// One of them is longer than a block, and one empty.
Values some_gradients(int count = 6) {
  Values out;
  for (int g = 0; g < count; ++g) {
    std::vector<float> values(g == 3 ? 0 : g == 1 ? 700 : 1 + static_cast<size_t>(g) % 9);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((7 * static_cast<size_t>(g) + 13 * i) % 41) / 8.0f - 2.5f;
    out.push_back(std::move(values));
  }
  return out;
}

Values with(Values values, float value) {
  values[5][0] = value;
  return values;
}

// A model that has only parameters, on a given device.
class Model {
 public:
  Model(const Values& sizes, DeviceStreamPtr stream) : stream_(std::move(stream)) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      auto p = std::make_shared<Parameter>();
      p->name = str_cat("p", i);
      p->value = place(Tensor::from(std::vector<float>(sizes[i].size(), 0.0f)));
      parameters_.push_back(std::move(p));
    }
  }
  const ParameterList& parameters() const { return parameters_; }
  void set_gradients(const Values& values) {
    for (size_t i = 0; i < values.size(); ++i) parameters_[i]->grad = place(Tensor::from(values[i]));
  }
  Values gradients() const {
    Values out;
    for (const ParameterPtr& p : parameters_) out.push_back(in_host_memory(p->grad).to_vector<float>());
    return out;
  }

 private:
  Tensor place(const Tensor& host) const { return stream_ ? stream_->to_device(host) : host; }
  DeviceStreamPtr stream_;
  ParameterList parameters_;
};

bool near(double got, double want) {
  if (std::isnan(want) || std::isinf(want)) return std::isnan(want) ? std::isnan(got) : got == want;
  return std::abs(got - want) <= 1e-6 * std::abs(want);
}

std::string difference(const Values& got, const Values& want) {
  for (size_t g = 0; g < want.size(); ++g) {
    for (size_t i = 0; i < want[g].size(); ++i) {
      if (!near(got[g][i], want[g][i]))
        return str_cat("gradient ", g, ", value ", i, ": ", got[g][i], " instead of ", want[g][i]);
    }
  }
  return got.size() == want.size() ? "" : "not as many gradients";
}

KeyedOptimizerPtr sgd(const ParameterList& parameters) { return make_sgd({}, parameters); }

GradientClippingOptimizer::Options by(GradientClipping clipping, double most, double p = 2, bool track = false) {
  return {clipping, most, p, track};
}

const std::vector<GradientClippingOptimizer::Options> kWays = {
    by(GradientClipping::kNorm, 3),         by(GradientClipping::kNorm, 1e9),
    by(GradientClipping::kNorm, 3, 3),      by(GradientClipping::kNorm, 1, std::numeric_limits<double>::infinity()),
    by(GradientClipping::kValue, 1.5),      by(GradientClipping::kValue, 1.5, 1, true),
    by(GradientClipping::kNone, 1, 2, true)};

// Must run first, because it forks processes: no device has threads here yet.
TEST(ClippingOfTwoRanks, IsOfTheMeanOfTheirGradients) {
  for (const std::string& id : kDevices) {
    for (const float odd : {1.0f, kInf, kNan}) {
      const auto texts = cli::run_in_ranks(2, 2, 60, [&](const RankEnvironment& where) -> std::string {
        const Runtime runtime(with_devices());
        const auto group = ProcessGroup::connect(runtime, where, {"tcp", "{}", 60});
        Values mine = some_gradients();
        for (float& v : mine[1]) v += static_cast<float>(where.rank);
        if (where.rank == 1) mine = with(std::move(mine), odd);
        Values results[2];
        double norms[2] = {};
        for (const bool on_device : {false, true}) {
          Model model(mine, on_device ? open_device(runtime, id) : nullptr);
          DistributedModelParallelOptions options{.plan = ShardingPlan{}};
          options.plan->world_size = 2;
          options.bucket_mib = 0.001;  // several buckets
          DistributedModelParallel parallel(runtime, {{}, {}, model.parameters()}, group, options);
          GradientClippingOptimizer optimizer(sgd(model.parameters()), by(GradientClipping::kNorm, 3));
          model.set_gradients(mine);
          parallel.all_reduce_gradients();
          optimizer.step();
          results[on_device] = model.gradients();
          norms[on_device] = *optimizer.last_total_grad_norm();
        }
        if (!near(norms[1], norms[0])) return str_cat("a norm of ", norms[1], " instead of ", norms[0]);
        return difference(results[1], results[0]);
      });
      for (const std::string& text : texts) EXPECT_EQ(text, "") << id << ", " << odd;
    }
  }
}

class Clipping : public testing::TestWithParam<std::string> {
 protected:
  Runtime runtime_{with_devices()};
};
INSTANTIATE_TEST_SUITE_P(Devices, Clipping, testing::ValuesIn(kDevices),
                         [](const auto& info) { return info.param == kDevices[0] ? "fake" : "gpu"; });

TEST_P(Clipping, GradientsOnADeviceDoNotTravelRounded) {
  const Model model(some_gradients(), open_device(runtime_, GetParam()));
  DistributedModelParallelOptions options{.plan = ShardingPlan{}, .round_dense_gradients = true};
  const auto group = ProcessGroup::connect(runtime_, {});
  EXPECT_THAT(
      test::refusal(Code::kUnimplemented,
                    [&] {
                      const DistributedModelParallel parallel(runtime_, {{}, {}, model.parameters()}, group, options);
                    }),
      testing::HasSubstr("comm.lossy"));
}

TEST_P(Clipping, HasTheGradientsAndTheNormOfTheHost) {
  for (const GradientClippingOptimizer::Options& way : kWays) {
    for (const float odd : {1.0f, kInf, kNan}) {
      const Values given = with(some_gradients(), odd);
      Model cpu(given, nullptr), device(given, open_device(runtime_, GetParam()));
      GradientClippingOptimizer want(sgd(cpu.parameters()), way), got(sgd(device.parameters()), way);
      cpu.set_gradients(given);
      device.set_gradients(given);
      want.step();
      got.step();
      const std::string which = str_cat(static_cast<int>(way.clipping), ", p = ", way.norm_type, ", ", odd);
      EXPECT_EQ(difference(device.gradients(), cpu.gradients()), "") << which;
      ASSERT_EQ(got.last_total_grad_norm().has_value(), want.last_total_grad_norm().has_value()) << which;
      if (!want.last_total_grad_norm()) continue;
      EXPECT_TRUE(near(*got.last_total_grad_norm(), *want.last_total_grad_norm())) << which;
    }
  }
}

TEST_P(Clipping, OfMoreGradientsThanOneLaunchTakes) {
  const Values given = with(some_gradients(140), 100);
  Model cpu(given, nullptr), device(given, open_device(runtime_, GetParam()));
  for (Model* model : {&cpu, &device}) {
    GradientClippingOptimizer optimizer(sgd(model->parameters()), by(GradientClipping::kNorm, 3));
    model->set_gradients(given);
    optimizer.step();
  }
  EXPECT_EQ(difference(device.gradients(), cpu.gradients()), "");
}

// Like torch.nn.utils.clip_grad_norm_: 0 * inf is NaN, and a NaN norm makes all gradients NaN.
TEST_P(Clipping, TakesInfinityAndNotANumberAsPyTorchDoes) {
  for (const bool on_device : {false, true}) {
    Model model({{1}, {1, 1}}, on_device ? open_device(runtime_, GetParam()) : nullptr);
    GradientClippingOptimizer optimizer(sgd(model.parameters()), by(GradientClipping::kNorm, 1));
    model.set_gradients({{kInf}, {1, -2}});
    optimizer.step();
    EXPECT_EQ(difference(model.gradients(), {{kNan}, {0, 0}}), "") << on_device;
    EXPECT_EQ(optimizer.last_total_grad_norm(), kInf);
    model.set_gradients({{1}, {kNan, -2}});
    optimizer.step();
    EXPECT_EQ(difference(model.gradients(), {{kNan}, {kNan, kNan}}), "") << on_device;
    GradientClippingOptimizer by_value(sgd(model.parameters()), by(GradientClipping::kValue, 1));
    model.set_gradients({{-kInf}, {kNan, 0.5f}});
    by_value.step();
    EXPECT_EQ(difference(model.gradients(), {{-1}, {kNan, 0.5f}}), "") << on_device;
  }
}

TEST_P(Clipping, OfAWarmStepNeitherWaitsNorAsksForMemory) {
  const DeviceStreamPtr stream = open_device(runtime_, GetParam());
  const Values given = some_gradients();
  Model model(given, stream);
  GradientClippingOptimizer optimizer(sgd(model.parameters()), by(GradientClipping::kNorm, 3, 2, true));
  model.set_gradients(given);
  optimizer.step();
  const tsr_device_stats before = stream->stats();
  for (int i = 0; i < 3; ++i) optimizer.step();
  EXPECT_EQ(stream->stats().synchronizes, before.synchronizes);
  EXPECT_EQ(stream->stats().allocations, before.allocations);
  EXPECT_NEAR(*optimizer.last_total_grad_norm(), 3, 1e-5) << "clipped again and again";
}

TEST_P(Clipping, OfGradientsInTwoPlacesGoesOverTheHost) {
  const auto stream = open_device(runtime_, GetParam());
  Model cpu({{3}}, nullptr), device({{4, 0}}, stream);
  const auto both = std::make_shared<CombinedOptimizer>(
      std::vector<CombinedOptimizer::Member>{{"cpu", sgd(cpu.parameters())}, {"device", sgd(device.parameters())}});
  GradientClippingOptimizer optimizer(both, by(GradientClipping::kNorm, 1));
  cpu.set_gradients({{3}});
  device.set_gradients({{4, 0}});
  optimizer.step();
  EXPECT_EQ(optimizer.last_total_grad_norm(), 5);
  EXPECT_EQ(difference(cpu.gradients(), {{0.6f}}), "");
  EXPECT_EQ(difference(device.gradients(), {{0.8f, 0}}), "");
}

}  // namespace
}  // namespace tessera
