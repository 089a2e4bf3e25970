// Runs any kernel plugin on a fake device, which has its own allocator and a stream that starts work late. If a kernel
// reads or writes outside the stream, it does so too early or too late, and its numbers are wrong.
#include <gtest/gtest.h>

#include "gpu/gpu.h"
#include "test_support.h"

namespace {

namespace gpu = tessera::gpu;
using tessera_cpu::test::Array;
using tessera_cpu::test::Batch;
using tessera_cpu::test::Error;
using tessera_cpu::test::Model;
using tessera_cpu::test::Options;
using tessera_cpu::test::Random;
using tessera_cpu::test::TestHost;

constexpr size_t kBufferBytes = size_t{1} << 16;

// A host that provides memory of the device in the order of its streams.
class DeviceHost {
 public:
  DeviceHost() { raw_ = {sizeof(tsr_host), TSR_ABI_MINOR, this, log, alloc, free, parallel_for, num_threads, nullptr}; }
  const tsr_host* raw() const { return &raw_; }

 private:
  static void log(const tsr_host*, int32_t, const char*) {}
  static void* alloc(const tsr_host*, DLDevice device, uint64_t bytes, tsr_stream stream, tsr_error* err) {
    if (device.device_type == kDLCPU) return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    void* memory = nullptr;
    tessera::sdk::guard(err, [&] { memory = gpu::malloc_async(bytes, static_cast<gpu::Stream>(stream)); });
    return memory;
  }
  static void free(const tsr_host*, DLDevice device, void* memory, uint64_t, tsr_stream stream) {
    if (device.device_type == kDLCPU) return std::free(memory);
    gpu::free_async(memory, static_cast<gpu::Stream>(stream));
  }
  static void parallel_for(const tsr_host*, uint64_t n, void (*body)(void*, uint64_t), void* ctx) {
    for (uint64_t i = 0; i < n; ++i) body(ctx, i);
  }
  static uint32_t num_threads(const tsr_host*) { return 1; }
  tsr_host raw_;
};

// Device memory, and pinned memory for copies to and from it.
class Buffer {
 public:
  Buffer(DLDevice device, gpu::Stream stream) : device_(device), stream_(stream) {
    memory_ = gpu::malloc_async(kBufferBytes, stream);
    pinned_ = static_cast<char*>(gpu::host_alloc(kBufferBytes));
    gpu::stream_synchronize(stream);
  }
  ~Buffer() {
    gpu::free_async(memory_, stream_);
    gpu::stream_synchronize(stream_);
    gpu::host_free(pinned_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // Device memory in the array's shape; `send` also enqueues a copy of its content.
  const DLTensor* like(const Array& array) {
    tensor_ = array.tensor;
    tensor_.device = device_;
    tensor_.data = memory_;
    return &tensor_;
  }
  const DLTensor* send(const Array& array) {
    std::memcpy(pinned_, array.bytes.data(), array.bytes.size());
    gpu::memcpy_async(memory_, pinned_, array.bytes.size(), stream_);
    return like(array);
  }
  void enqueue_fetch(const Array& array) { gpu::memcpy_async(pinned_, memory_, array.bytes.size(), stream_); }
  void take(Array* array) const { std::memcpy(array->bytes.data(), pinned_, array->bytes.size()); }

 private:
  DLDevice device_;
  gpu::Stream stream_;
  void* memory_;
  char* pinned_;
  DLTensor tensor_{};
};

struct Stepped {
  std::string finding;
  uint64_t waits = 0;  // waits of the kernel for the device
};

// A kernel plugin with an instance on the device.
class Subject {
 public:
  Subject(const char* plugin, const char* id, DLDevice device, Model& reference, const char* optimizers)
      : reference_(reference), stream_(gpu::stream_create()) {
    kernel_ = create(plugin, id);
    optimizer_ = create(optimizers, reference.options.optimizer.c_str());
    api_ = static_cast<const tsr_kernel*>(kernel_.component->api);
    tsr_kernel_config config = reference.config;
    config.device = device;
    config.optimizer = &optimizer_;
    Error error;
    if (api_->open(kernel_.self, &config, &instance_, &error) != TSR_OK) throw std::runtime_error(error.message);
    for (auto* buffer : {&ids_, &offsets_, &weights_, &output_, &gradient_}) {
      *buffer = std::make_unique<Buffer>(device, stream_);
    }
  }
  ~Subject() {
    api_->close(instance_);
    for (auto* buffer : {&ids_, &offsets_, &weights_, &output_, &gradient_}) buffer->reset();
    kernel_.component->destroy(kernel_.self);
    optimizer_.component->destroy(optimizer_.self);
    gpu::stream_destroy(stream_);
  }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  void set_rows(uint32_t table, const std::vector<float>& values) {
    const auto& shape = reference_.options.tables[table];
    Array ids(tessera_cpu::test::kI64, shape.rows), weights(tessera_cpu::test::kF32, shape.rows * shape.dim);
    for (int64_t i = 0; i < shape.rows; ++i) ids.set(i, static_cast<double>(i));
    std::copy_n(values.begin(), shape.rows * shape.dim, weights.data<float>());
    tsr_rows rows{sizeof(tsr_rows), 0, 0, 0, shape.rows, &ids.tensor, &weights.tensor, nullptr, nullptr};
    Error error;
    EXPECT_EQ(api_->import_rows(instance_, table, &rows, &error), TSR_OK) << error.message;
  }

  // Runs forward and backward, enqueued before anything is waited for. `arrived`: the input is there when they begin.
  Stepped step(Batch& batch, int64_t step, bool arrived) {
    tsr_lookup lookup = batch.lookup;
    lookup.ids = ids_->send(*batch.ids);
    lookup.offsets = offsets_->send(*batch.offsets);
    if (lookup.weights != nullptr) lookup.weights = weights_->send(*batch.weights);
    const tsr_update update{sizeof(tsr_update), 0, 0.0625, step};
    const tsr_backward args{
        sizeof(tsr_backward), 0, &lookup, gradient_->send(*batch.grad_output), nullptr, 1.0, &update};
    if (arrived) gpu::stream_synchronize(stream_);

    Array want(reference_.options.output_dtype, batch.output_size), got(want.tensor.dtype, batch.output_size);
    const uint64_t waits = emulator::counters().synchronizations;
    tsr_context* context = nullptr;
    Error error;
    EXPECT_EQ(api_->forward(instance_, &lookup, output_->like(got), stream_, &context, &error), TSR_OK)
        << error.message;
    output_->enqueue_fetch(got);
    EXPECT_EQ(api_->backward(instance_, context, &args, stream_, &error), TSR_OK) << error.message;
    Stepped out{"", emulator::counters().synchronizations - waits};
    gpu::stream_synchronize(stream_);
    api_->release(instance_, context);
    output_->take(&got);

    reference_.backward(batch, reference_.forward(batch, want), nullptr, 1.0, step);
    out.finding = difference("output", values_of(got), values_of(want));
    for (uint32_t t = 0; t < reference_.options.tables.size() && out.finding.empty(); ++t) {
      out.finding = difference("rows", rows_of(t), reference_.rows_of(static_cast<int>(t)));
    }
    return out;
  }

 private:
  tsr_instance create(const char* plugin, const char* id) {
    tsr_instance part{tessera_cpu::test::component(plugin, id, host_.raw()), nullptr};
    Error error;
    if (part.component->create(part.component, host_.raw(), "{}", nullptr, &part.self, &error) != TSR_OK) {
      throw std::runtime_error(error.message);
    }
    return part;
  }
  static std::string difference(const char* what, const std::vector<float>& got, const std::vector<float>& want) {
    for (size_t i = 0; i < want.size(); ++i) {
      if (got.size() == want.size() && std::abs(got[i] - want[i]) <= 1e-4f + 1e-4f * std::abs(want[i])) continue;
      return std::string(what) + " differ";
    }
    return "";
  }
  std::vector<float> rows_of(uint32_t table) {
    const auto& shape = reference_.options.tables[table];
    Array ids(tessera_cpu::test::kI64, shape.rows), weights(tessera_cpu::test::kF32, shape.rows * shape.dim);
    tsr_rows rows{sizeof(tsr_rows), 0, 0, 0, 0, &ids.tensor, &weights.tensor, nullptr, nullptr};
    uint64_t cursor = 0;
    Error error;
    EXPECT_EQ(api_->export_rows(instance_, table, &cursor, &rows, &error), TSR_OK) << error.message;
    return values_of(weights);
  }

  DeviceHost host_;
  Model& reference_;
  gpu::Stream stream_;
  tsr_instance kernel_{}, optimizer_{};
  const tsr_kernel* api_ = nullptr;
  void* instance_ = nullptr;
  std::unique_ptr<Buffer> ids_, offsets_, weights_, output_, gradient_;
};

// The first batch has arrived when the kernel gets it, the second has not.
struct Findings {
  Stepped arrived, on_its_way;
};

Findings findings(const char* plugin, const char* id, DLDevice device, bool guard) {
  emulator::Config config;
  config.delay = std::chrono::milliseconds(20);
  config.guard = guard;
  emulator::configure(config);
  TestHost host;
  Options options;
  options.tables = {{40, 17}, {300, 32}};
  Model reference(host, TESSERA_KERNEL_REFERENCE, "reference", options, "portable");
  reference.open().randomize(Random(5));
  Random random(3);
  Findings out;
  Subject subject(plugin, id, device, reference, TESSERA_OPTIMIZERS);
  for (uint32_t t = 0; t < options.tables.size(); ++t) subject.set_rows(t, reference.rows_of(static_cast<int>(t)));
  const auto batch = [&] {
    return random_batch(random, options, {{0, TSR_POOLING_SUM}, {1, TSR_POOLING_MEAN}}, 9, 6, tessera_cpu::test::kI64,
                        false);
  };
  out.arrived = subject.step(*batch(), 1, true);
  out.on_its_way = subject.step(*batch(), 2, false);
  return out;
}

#if defined(TESSERA_GPU_PLUGIN)
TEST(FakeDevice, TheGpuKernelsFollowTheirStream) {
  const Findings found = findings(TESSERA_GPU_PLUGIN, "emulator", {kDLExtDev, 0}, emulator::kGuard);
  EXPECT_EQ(found.arrived.finding, "");
  EXPECT_EQ(found.on_its_way.finding, "");
  EXPECT_EQ(found.on_its_way.waits, 0u) << "forward and backward only enqueue";
}
#endif

// A kernel that ignores streams, like every CPU kernel, has this fault.
TEST(FakeDevice, AKernelThatDoesNotFollowItsStreamIsFound) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a data race, to ThreadSanitizer";
#endif
  const Findings found = findings(TESSERA_KERNEL_REFERENCE, "reference", {kDLCPU, 0}, false);
  EXPECT_EQ(found.arrived.finding, "");
  EXPECT_EQ(found.on_its_way.finding, "output differ");
}

}  // namespace
