// A kernel of the fake device that wraps one of the CPU: "fake(reference)". It reads its arguments only when the stream
// has reached it, so that any order the caller forgets becomes visible.
#include <memory>
#include <set>
#include <vector>

#include "fake_device.h"
#include "tessera/sdk/kernel.h"

namespace tessera::test {
namespace {

// A copy of a tensor's description with a host address.
class HostView {
 public:
  HostView() = default;
  explicit HostView(const DLTensor& t) : shape_(t.shape, t.shape + t.ndim), tensor_(t), present_(true) {
    if (t.device.device_type != kDLExtDev) sdk::fail(TSR_INVALID_ARGUMENT, "a tensor is not on the fake device");
    tensor_.data = to_host_address(static_cast<char*>(t.data));
    tensor_.device = {kDLCPU, 0};
  }
  explicit HostView(const DLTensor* t) : HostView(t ? HostView(*t) : HostView()) {}
  // Valid while this object is not moved.
  const DLTensor* get() {
    tensor_.shape = shape_.data();
    return present_ ? &tensor_ : nullptr;
  }

 private:
  std::vector<int64_t> shape_;
  DLTensor tensor_{};
  bool present_ = false;
};

// A batch that outlives the call.
struct Batch {
  explicit Batch(const tsr_lookup& raw) : lookup(raw), ids(raw.ids), offsets(raw.offsets), weights(raw.weights) {
    for (uint32_t i = 0; i < raw.num_features; ++i) features.push_back(sdk::feature_of(raw, i));
  }
  tsr_lookup get() {
    lookup.feature_stride = sizeof(tsr_lookup_feature);
    lookup.features = features.data();
    lookup.ids = ids.get();
    lookup.offsets = offsets.get();
    lookup.weights = weights.get();
    return lookup;
  }
  tsr_lookup lookup;
  std::vector<tsr_lookup_feature> features;
  HostView ids, offsets, weights;
};

struct Context {
  tsr_context* inner = nullptr;
  FakeStream* stream = nullptr;
};

class Instance : public sdk::KernelInstance {
 public:
  Instance(const tsr_kernel& api, void* inner) : api_(api), inner_(inner) {}
  ~Instance() override {
    finish();
    api_.close(inner_);
  }

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, tsr_context** context) override {
    auto* kept = context == nullptr ? nullptr : new Context{nullptr, &queue(stream)};
    auto batch = std::make_shared<Batch>(lookup);
    auto out = std::make_shared<HostView>(output);
    queue(stream).enqueue([this, batch, out, kept] {
      const tsr_lookup l = batch->get();
      sdk::Call call;
      call.check(api_.forward(inner_, &l, out->get(), nullptr, kept ? &kept->inner : nullptr, call.err()));
    });
    if (context != nullptr) *context = reinterpret_cast<tsr_context*>(kept);
  }

  void backward(tsr_context* context, const tsr_backward& args, tsr_stream stream) override {
    auto* kept = reinterpret_cast<Context*>(context);
    auto batch = std::make_shared<Batch>(*args.lookup);
    auto grad = std::make_shared<HostView>(args.grad_output), weights = std::make_shared<HostView>(args.grad_weights);
    queue(stream).enqueue([this, kept, batch, grad, weights, scale = args.grad_scale, update = *args.update] {
      const tsr_lookup l = batch->get();
      const tsr_backward a{sizeof(a), 0, &l, grad->get(), weights->get(), scale, &update};
      sdk::Call call;
      call.check(api_.backward(inner_, kept->inner, &a, nullptr, call.err()));
    });
  }

  void backward_rows(tsr_context* context, const tsr_backward& args, std::span<tsr_row_gradient> out,
                     tsr_stream stream) override {
    queue(stream).synchronize();
    Batch batch(*args.lookup);
    HostView grad(args.grad_output), weights(args.grad_weights);
    const tsr_lookup l = batch.get();
    const tsr_backward a{sizeof(a), 0, &l, grad.get(), weights.get(), args.grad_scale, args.update};
    sdk::Call call;
    call.check(
        api_.backward_rows(inner_, reinterpret_cast<Context*>(context)->inner, &a, out.data(), nullptr, call.err()));
    for (tsr_row_gradient& g : out) {
      for (DLTensor* t : {&g.rows, &g.values}) {
        t->data = to_device_address(static_cast<char*>(t->data));
        t->device = {kDLExtDev, 0};
      }
    }
  }

  void apply(uint32_t table, const DLTensor& rows, const DLTensor& values, const tsr_update& update,
             tsr_stream stream) override {
    auto r = std::make_shared<HostView>(rows), v = std::make_shared<HostView>(values);
    queue(stream).enqueue([this, table, r, v, update] {
      sdk::Call call;
      call.check(api_.apply(inner_, table, r->get(), v->get(), &update, nullptr, call.err()));
    });
  }

  void release(tsr_context* context) noexcept override {
    auto* kept = reinterpret_cast<Context*>(context);
    kept->stream->enqueue([this, kept] {
      if (kept->inner) api_.release(inner_, kept->inner);
      delete kept;
    });
  }

  void export_rows(uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    checked([&](tsr_error* err) { return api_.export_rows(inner_, table, &cursor, &rows, err); });
  }
  void import_rows(uint32_t table, const tsr_rows& rows) override {
    checked([&](tsr_error* err) { return api_.import_rows(inner_, table, &rows, err); });
  }
  void read_rows(uint32_t table, tsr_rows& rows) override {
    checked([&](tsr_error* err) { return api_.read_rows(inner_, table, &rows, err); });
  }
  tsr_kernel_stats stats(uint32_t table) override {
    tsr_kernel_stats out{};
    out.struct_size = sizeof(out);
    checked([&](tsr_error* err) { return api_.stats(inner_, table, &out, err); });
    return out;
  }

 private:
  FakeStream& queue(tsr_stream stream) {
    if (stream == nullptr) sdk::fail(TSR_INVALID_ARGUMENT, "the fake kernel works on streams of its caller");
    streams_.insert(&FakeStream::of(stream));
    return FakeStream::of(stream);
  }
  void finish() noexcept {
    for (FakeStream* stream : streams_) {
      try {
        stream->synchronize();
      } catch (const sdk::Failure&) {  // reported by the next wait for the stream
      }
    }
  }
  template <class Call>
  void checked(const Call& body) {
    finish();
    sdk::Call call;
    call.check(body(call.err()));
  }

  const tsr_kernel& api_;
  void* inner_;
  std::set<FakeStream*> streams_;
};

class FakeKernel : public sdk::Kernel {
 public:
  using Instance = test::Instance;
  static constexpr const char* kComputeKernels[] = {"fused", "dense", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLExtDev, 0};
  static constexpr uint32_t kFlags = TSR_KERNEL_WRAPS;
  explicit FakeKernel(const sdk::Setup& setup) : inner_(setup.inner) {}

  void supports(const tsr_kernel_config& config) const override {
    const tsr_kernel_config inner = of_cpu(config);
    sdk::Call call;
    call.check(api().supports(inner_->self, &inner, call.err()));
  }
  std::unique_ptr<sdk::KernelInstance> open(const tsr_kernel_config& config) const override {
    const tsr_kernel_config inner = of_cpu(config);
    void* instance = nullptr;
    sdk::Call call;
    call.check(api().open(inner_->self, &inner, &instance, call.err()));
    return std::make_unique<Instance>(api(), instance);
  }

 private:
  tsr_kernel_config of_cpu(const tsr_kernel_config& config) const {
    if (inner_ == nullptr) sdk::fail(TSR_FAILED_PRECONDITION, "it wraps a kernel of the CPU: \"fake(reference)\"");
    if (config.device.device_type != kDLExtDev) sdk::fail(TSR_UNIMPLEMENTED, "it serves the fake device only");
    tsr_kernel_config inner = config;
    inner.device = {kDLCPU, 0};
    return inner;
  }
  const tsr_kernel& api() const { return *static_cast<const tsr_kernel*>(inner_->component->api); }

  const tsr_instance* inner_;
};

}  // namespace
}  // namespace tessera::test

using tessera::sdk::component;
TESSERA_PLUGIN("fake-device", "1.0.0",
               component<tessera::test::FakeDeviceWithRows>(
                   {.id = "fake", .version = "1.0.0", .about = "two devices in host memory, for tests", .priority = 1}),
               component<tessera::test::FakeDeviceThatTrains>(
                   {.id = "fake-training", .version = "1.0.0", .about = "the same with the arithmetic of training"}),
               component<tessera::test::FakeDevice>(
                   {.id = "fake-bare", .version = "1.0.0", .about = "the same without what is optional"}),
               component<tessera::test::FakeKernel>({.id = "fake",
                                                     .version = "1.0.0",
                                                     .about = "a kernel of the CPU behind the fake device's streams"}));
