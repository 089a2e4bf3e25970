// The core's device path on a device that lags, poisons memory and guards it: streams, memory, lookups.
#include "tessera/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "config/test_refusal.h"
#include "fake_runtime.h"
#include "tessera/lookup.h"
#include "tessera/planner.h"

namespace tessera {
namespace {

using testing::HasSubstr;

std::string message_of(const std::function<void()>& call, Code code) { return test::refusal(code, call); }

class DeviceTest : public testing::Test {
 protected:
  Runtime runtime_{test::with_fake_device()};
};

TEST_F(DeviceTest, AutoTakesTheOneThatWorksAndCpuIsNone) {
  EXPECT_EQ(open_device(runtime_, "cpu"), nullptr);
  // The host picks an inner kernel on the same device only, and this device has no other kernel than "fake".
  EXPECT_EQ(open_device(runtime_, "auto", 1), nullptr);
  const DeviceStreamPtr best = open_device(runtime_, "auto", 1, "fake(reference)");
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(best->id(), "fake");
  EXPECT_EQ(best->device(), (Device{DeviceType::kExtension, 1}));
  EXPECT_STREQ(best->info().name, "fake device 1");
  EXPECT_EQ(open_device(runtime_, "fake", 2)->device().index, 0);  // two devices, used in turn
}

// Nothing in the core knows the fake device; its component says how large and how fast it is.
TEST(DevicePlan, IsMadeForADeviceThatNobodyNamed) {
  const Runtime runtime(test::with_fake_device());
  const ComputeDevice device = compute_device(open_device(runtime, "fake"));
  EXPECT_EQ(device.id, "fake");
  EXPECT_EQ(device.type, kDLExtDev);
  EXPECT_EQ(device.memory, 256 << 20);
  PlannerOptions options{.topology = Topology::of(2, 2, device), .kernel = "fake(reference)"};
  EmbeddingBagConfig film;
  film.name = "film";
  film.num_embeddings = 1000;
  film.embedding_dim = 16;
  film.feature_names = {"film"};
  const PlanResult result = EmbeddingShardingPlanner(runtime, options).plan({{.path = "sparse", .tables = {film}}});
  EXPECT_EQ(result.plan.compute_device, "fake");
  EXPECT_EQ(result.plan.placement(1), "rank:1/fake:1");
  EXPECT_GT(result.space.options.size(), 3u);
  for (const ShardingOption& o : result.space.options) {
    EXPECT_GT(o.total_storage.hbm, 1000 * 16 * 4) << o.sharding_type;
    EXPECT_EQ(o.total_storage.ddr, 0) << o.sharding_type;
  }
  EXPECT_THAT(result.report(), HasSubstr("typical figures of fake (by the bandwidths that its plugin states)"));
  options.kernel = "reference";
  EXPECT_THAT(message_of([&] { (void)EmbeddingShardingPlanner(runtime, options).plan({{.tables = {film}}}); },
                         Code::kInvalidArgument),
              HasSubstr("kernel \"reference\" does not run on fake"));
}

TEST(DevicePlan, WithoutFiguresIsRefused) {
  const Runtime runtime(test::with_fake_device());
  const ComputeDevice device = compute_device(runtime, "fake-bare");
  EXPECT_EQ(device.memory_bandwidth, 0);
  EmbeddingBagConfig film;
  film.name = "film";
  film.num_embeddings = film.embedding_dim = 16;
  const PlannerOptions options{.topology = Topology::of(1, 1, device)};
  EXPECT_THAT(message_of([&] { (void)EmbeddingShardingPlanner(runtime, options).plan({{.tables = {film}}}); },
                         Code::kFailedPrecondition),
              HasSubstr("tessera calibrate"));
}

TEST_F(DeviceTest, WhatIsNotThereIsSaidInOneSentence) {
  EXPECT_THAT(message_of([&] { open_device(runtime_, "fpga"); }, Code::kNotFound),
              HasSubstr("no plugin provides tessera.device/draft-1 \"fpga\""));
  EXPECT_THAT(
      message_of([&] { DeviceStream::open(runtime_.create(TSR_DEVICE_KIND, "fake"), 2); }, Code::kInvalidArgument),
      HasSubstr("fake has 2 device(s), so there is no device 2"));
  EXPECT_THAT(message_of([&] { open_device_type(runtime_, kDLVulkan); }, Code::kUnavailable),
              HasSubstr("no device plugin serves DLPack device type 7"));
}

// Uses its own Runtime, because components are attached for good.
TEST(HostMemory, OfADeviceComesFromTheDevicePartOnceItWasOpened) {
  const Runtime runtime(test::with_fake_device());
  const tsr_host* host = runtime.host();
  const DLDevice device{kDLExtDev, 0};
  tsr_error err = TSR_ERROR_INIT;
  EXPECT_EQ(host->alloc(host, device, 100, nullptr, &err), nullptr);
  EXPECT_EQ(err.code, TSR_UNIMPLEMENTED);
  EXPECT_THAT(err.message, HasSubstr("no device plugin was opened for DLPack device type 12"));
  const DeviceStreamPtr stream = open_device(runtime, "fake");
  EXPECT_EQ(host->alloc(host, device, 100, nullptr, &err), nullptr);
  EXPECT_EQ(err.code, TSR_INVALID_ARGUMENT);
  EXPECT_THAT(err.message, HasSubstr("the stream is NULL, which stands for host memory"));
  void* memory = host->alloc(host, device, 100, stream->raw(), &err);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(stream->stats().held_bytes, 100u);
  host->free(host, device, memory, 100, stream->raw());
  stream->synchronize();
  EXPECT_EQ(stream->stats().held_bytes, 0u);
  EXPECT_EQ(runtime.create(TSR_DEVICE_KIND, "fake"), runtime.create(TSR_DEVICE_KIND, "fake"));
}

TEST_F(DeviceTest, CopiesInTheOrderOfTheStream) {
  const DeviceStreamPtr stream = open_device(runtime_, "fake");
  const Tensor in = stream->host_1d(1000, DType::kFloat32), out = stream->host_1d(1000, DType::kFloat32);
  for (int i = 0; i < 1000; ++i) in.data<float>()[i] = static_cast<float>(i);
  const Tensor a = stream->empty({1000}), b = stream->empty({1000});
  DeviceStream::Event copied(stream);
  stream->copy(in, a);
  copied.record();
  stream->copy(a, b);
  stream->fill(a, 0);
  stream->copy(b, out);
  copied.wait();
  in.data<float>()[7] = -1;  // the stream has passed it
  stream->synchronize();
  EXPECT_EQ(out.data<float>()[7], 7.0f);
  EXPECT_EQ(out.data<float>()[999], 999.0f);
  EXPECT_EQ(stream->to_host(a).data<float>()[999], 0.0f);
  EXPECT_EQ(stream->to_host(stream->to_device(Tensor::from<int64_t>({1, 2}))).to_vector<int64_t>(),
            (std::vector<int64_t>{1, 2}));
}

TEST_F(DeviceTest, NoMemoryIsAnErrorThatSaysHowMuchThereIs) {
  const DeviceStreamPtr stream = open_device(runtime_, "fake");
  EXPECT_THAT(message_of([&] { stream->empty({int64_t{1} << 30}); }, Code::kResourceExhausted),
              HasSubstr("no memory for 4294967296 bytes"));
}

TEST_F(DeviceTest, AWriteBeyondABlockIsFound) {
  const DeviceStreamPtr stream = open_device(runtime_, "fake");
  {
    Tensor block = stream->empty({64});
    const Tensor wider = stream->borrow(block.raw(), {65}, DType::kFloat32);
    stream->fill(wider, 1);
  }
  EXPECT_THAT(message_of([&] { stream->synchronize(); }, Code::kInternal), HasSubstr("beyond a block of 256 bytes"));
}

TEST(DeviceDeathTest, TheHostCannotReadWhatIsOnTheDevice) {
  const Runtime runtime(test::with_fake_device());
  const DeviceStreamPtr stream = open_device(runtime, "fake");
  Tensor t = stream->empty({4});
  EXPECT_DEATH((void)t.data<float>()[0], "on a device");
  EXPECT_DEATH(t.fill(0), "filled by its DeviceStream");
}

// Two tables, three bags: a forward and an update.
struct Batch {
  Tensor ids = Tensor::from<int64_t>({0, 3, 3, 1, 2, 0});
  Tensor offsets = Tensor::from<int64_t>({0, 2, 3, 3, 6});
  std::vector<tsr_lookup_feature> features{{0, TSR_POOLING_SUM, 2, 0, 0, 4}, {1, TSR_POOLING_MEAN, 2, 2, 8, 4}};
};

struct Call {
  Call(const Batch& batch, DeviceStream* stream)
      : ids(stream ? stream->to_device(batch.ids) : batch.ids),
        offsets(stream ? stream->to_device(batch.offsets) : batch.offsets) {
    dl_ids = ids.dl();
    dl_offsets = offsets.dl();
    raw.struct_size = sizeof(raw);
    raw.num_features = 2;
    raw.feature_stride = sizeof(tsr_lookup_feature);
    raw.features = batch.features.data();
    raw.ids = &dl_ids;
    raw.offsets = &dl_offsets;
  }
  Tensor ids, offsets;
  DLTensor dl_ids{}, dl_offsets{};
  tsr_lookup raw{};
};

LookupOptions lookup_options(DeviceStreamPtr stream, const std::string& compute_kernel) {
  LookupOptions o{.kernel = stream ? "fake(reference)" : "reference",
                  .compute_kernel = compute_kernel,
                  .stream = std::move(stream),
                  .tables = {{"a", 4, 4}, {"b", 5, 4}}};
  o.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.1})"};
  return o;
}

// Rows and states after two steps, on the CPU or on a device, with tensors there or in host memory.
struct Trained {
  std::vector<float> output, a, b, state;
  bool operator==(const Trained&) const = default;
};
Trained train(const Runtime& runtime, const DeviceStreamPtr& stream, bool tensors_on_device, const char* kernel) {
  Lookup lookup(runtime, lookup_options(stream, kernel));
  for (int t : {0, 1}) {
    Tensor start = Tensor::empty({lookup.options().tables[t].rows, 4});
    for (int64_t i = 0; i < start.numel(); ++i) start.data<float>()[i] = 0.1f * static_cast<float>(i + t);
    lookup.set_weight(t, start);
  }
  const Batch batch;
  const Call call(batch, tensors_on_device ? stream.get() : nullptr);
  const Tensor grad_host = Tensor::empty({16}), out_host = Tensor::zeros({16});
  for (int i = 0; i < 16; ++i) grad_host.data<float>()[i] = 0.01f * static_cast<float>(i);
  const Tensor grad = tensors_on_device ? stream->to_device(grad_host) : grad_host;
  const Tensor out = tensors_on_device ? stream->to_device(out_host) : out_host;
  for (int step = 0; step < 2; ++step) {
    Lookup::Context context;
    lookup.forward(call.raw, out, &context);
    if (lookup.updates_in_backward()) {
      lookup.backward(std::move(context), call.raw, grad, 0.5);
    } else {
      const auto gradients = lookup.backward_rows(std::move(context), call.raw, grad, 0.5);
      for (int t : {0, 1}) lookup.apply(t, gradients[t]);
      lookup.count_step();
    }
  }
  return {tensors_on_device ? stream->to_host(out).to_vector<float>() : out.to_vector<float>(),
          lookup.weight(0).to_vector<float>(), lookup.weight(1).to_vector<float>(),
          lookup.state(1, 0).to_vector<float>()};
}

TEST_F(DeviceTest, LookupsGiveTheSameAsOnTheCpu) {
  const DeviceStreamPtr stream = open_device(runtime_, "fake");
  for (const char* kernel : {"fused", "dense"}) {
    const Trained cpu = train(runtime_, nullptr, false, kernel);
    EXPECT_EQ(train(runtime_, stream, true, kernel), cpu) << kernel;
    EXPECT_EQ(train(runtime_, stream, false, kernel), cpu) << kernel << ", staged";
  }
}

TEST_F(DeviceTest, AFusedStepOnTheDeviceDoesNotWait) {
  const DeviceStreamPtr stream = open_device(runtime_, "fake");
  Lookup lookup(runtime_, lookup_options(stream, "fused"));
  const Batch batch;
  const Call call(batch, stream.get());
  const Tensor out = stream->empty({16});
  const uint64_t before = stream->stats().synchronizes;
  Lookup::Context context;
  lookup.forward(call.raw, out, &context);
  lookup.backward(std::move(context), call.raw, out, 1);
  EXPECT_EQ(stream->stats().synchronizes, before);
}

TEST_F(DeviceTest, OptionsWithFlagsThatItDoesNotKnowAreRefused) {
  const ComponentPtr device = runtime_.create(TSR_DEVICE_KIND, "fake");
  const auto& api = device->api<tsr_device>();
  tsr_error err TSR_ERROR_INIT;
  void* made = nullptr;
  const tsr_stream_options stream{sizeof(stream), 0x10000u};
  EXPECT_EQ(api.stream_create(device->self(), 0, &stream, &made, &err), TSR_UNIMPLEMENTED) << err.message;
  const tsr_event_options event{sizeof(event), 0x10000u};
  EXPECT_EQ(api.event_create(device->self(), 0, &event, &made, &err), TSR_UNIMPLEMENTED) << err.message;
  const tsr_host_memory_options memory{sizeof(memory), 0x10000u};
  EXPECT_EQ(api.host_alloc(device->self(), 64, &memory, &made, &err), TSR_UNIMPLEMENTED) << err.message;
  EXPECT_EQ(made, nullptr);
}

// `--kernel NAME` suffices to use a device: its first device is opened, and tensors in host memory are staged.
TEST_F(DeviceTest, AKernelThatServesNoCpuBringsItsDevice) {
  LookupOptions options = lookup_options(nullptr, "fused");
  options.kernel = "fake(reference)";
  Lookup lookup(runtime_, options);
  ASSERT_NE(lookup.options().stream, nullptr);
  EXPECT_EQ(lookup.options().stream->id(), "fake");
  lookup.set_weight(0, Tensor::zeros({4, 4}));
}

}  // namespace
}  // namespace tessera
