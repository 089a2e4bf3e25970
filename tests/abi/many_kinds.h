// A component of every kind, as small as the interfaces allow.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/sdk/collective.h"
#include "tessera/sdk/kernel.h"
#include "tessera/sdk/module.h"
#include "tessera/sdk/optimizer.h"
#include "tessera/sdk/sharder.h"

namespace many_kinds {

using namespace tessera::sdk;

class Sum : public Optimizer {
 public:
  explicit Sum(Options& options) : learning_rate_(options.number("learning_rate", 0.5)) {
    if (learning_rate_ < 0) fail(TSR_INVALID_ARGUMENT, "learning_rate is ", learning_rate_, ", but must be 0 or more");
  }
  double learning_rate() const { return learning_rate_; }
  std::vector<State> states() const {
    return {{"momentum1", TSR_STATE_PER_ELEMENT}, {"momentum2", TSR_STATE_PER_ROW, learning_rate_}};
  }
  void update_row(const tsr_update& update, int64_t dim, float* weight, const float* grad,
                  float* const*) const noexcept {
    for (int64_t i = 0; i < dim; ++i) weight[i] += static_cast<float>(update.learning_rate) * grad[i];
  }

 private:
  double learning_rate_;
};

// No update_row, no states.
class Nothing : public Optimizer {
 public:
  double learning_rate() const { return 0; }
};

// The table of an extension.
struct Answer {
  uint32_t struct_size;
  uint32_t flags;
  int64_t value;
};

class Plain : public Sharder {
 public:
  std::vector<Layout> propose(const Table& table, const Topology&, const Constraints&) const override {
    return {Layout{{{.rectangles = {{0, table.rows, 0, table.cols}}}}}};
  }
  const void* extension(std::string_view id) const {
    static constexpr Answer kAnswer{sizeof(Answer), 0, 42}, kFlagged{sizeof(Answer), 1u << 20, 42};
    if (id == "many.flagged/draft-1") return &kFlagged;
    return id == "many.answer/draft-1" ? &kAnswer : nullptr;
  }
};

class Echo : public Module {
 public:
  const std::vector<Parameter>& parameters() const override { return parameters_; }
  const std::vector<Parameter>& buffers() const override { return buffers_; }
  std::vector<Value> outputs(std::span<const Value> inputs) const override {
    if (inputs.size() != 1)
      fail(TSR_INVALID_ARGUMENT, "takes one input, not ", inputs.size(), " of ", inputs[0].width, " and ",
           inputs[1].width);
    return {inputs[0]};
  }
  void forward(const ModuleCall& call, tsr_module_context** context) override {
    const std::span<float> in = elements<float>(call.inputs[0], "input");
    std::copy(in.begin(), in.end(), elements<float>(call.outputs[0], "output").begin());
    if (context != nullptr) *context = reinterpret_cast<tsr_module_context*>(new int(live_ += 1));
  }
  void backward(const ModuleCall&, tsr_module_context*) override { throw 1; }
  void release(tsr_module_context* context) noexcept override {
    if (context != nullptr) live_ -= 1;
    delete reinterpret_cast<int*>(context);
  }
  int live() const { return live_; }

 private:
  std::vector<Parameter> parameters_{{"weight", {2, 3}, xavier_normal(2, 3)}, {"bias", {2}}};
  std::vector<Parameter> buffers_{{"seen", {}, {}, dtype_of<int64_t>()}};
  int live_ = 0;
};

class DoneWork : public Work {
 public:
  explicit DoneWork(bool bad) : bad_(bad) {}
  void wait() override {
    if (bad_) throw Failure(TSR_ABORTED, "rank 0 failed in the barrier", 0);
  }

 private:
  bool bad_;
};

class LoopGroup : public Group {
 public:
  int32_t rank() const override { return 0; }
  int32_t world_size() const override { return 1; }
  std::unique_ptr<Group> split(int32_t color, int32_t, const CollectiveCall&) override {
    return color < 0 ? nullptr : std::make_unique<LoopGroup>();
  }
  Work* all_to_all_v(const DLTensor& send, Counts send_counts, const DLTensor& recv, Counts,
                     const CollectiveCall&) override {
    const std::span<int64_t> in = elements<int64_t>(send);
    std::copy_n(in.begin(), send_counts[0], elements<int64_t>(recv).begin());
    return new DoneWork(false);
  }
  Work* all_reduce(const DLTensor&, int32_t op, const CollectiveCall&) override {
    if (op > TSR_REDUCE_MIN) fail(TSR_UNIMPLEMENTED, "reduction ", op, " is not known");
    return new DoneWork(false);
  }
  Work* reduce_scatter_v(const DLTensor&, Counts, const DLTensor&, int32_t, const CollectiveCall&) override {
    return new DoneWork(false);
  }
  Work* all_gather_v(const DLTensor&, const DLTensor&, Counts, const CollectiveCall&) override {
    return new DoneWork(false);
  }
  Work* broadcast(const DLTensor&, int32_t, const CollectiveCall&) override { return new DoneWork(false); }
  Work* barrier(const CollectiveCall&) override { return new DoneWork(aborted_); }
  void abort(const char*) noexcept override { aborted_ = true; }
  uint64_t bytes_sent() const override { return 0; }
  void status() const override {
    if (aborted_) fail(TSR_CANCELLED, "aborted");
  }

 private:
  bool aborted_ = false;
};

class Loop : public Collective {
 public:
  std::unique_ptr<Group> connect(const tsr_rendezvous&) override { return std::make_unique<LoopGroup>(); }
};

// A wrapping transport: needs an inner component that is no wrapper, and only knows its id and its own name.
class Wrap : public Collective {
 public:
  static constexpr uint32_t kFlags = TSR_COLLECTIVE_WRAPS;
  explicit Wrap(const Setup& setup) : name_(setup.options.string("name", "")) {
    if (setup.inner == nullptr) fail(TSR_INTERNAL, "the host created a wrapper without an inner component");
    inner_ = setup.inner->component->id;
    if (inner_ == "many.wrap") fail(TSR_INVALID_ARGUMENT, "needs a transport to wrap: wrap(tcp)");
  }
  std::unique_ptr<Group> connect(const tsr_rendezvous&) override {
    fail(TSR_UNAVAILABLE, "named ", name_, ", wraps ", inner_);
  }

 private:
  std::string name_, inner_;
};

class OnesInstance : public KernelInstance {
 public:
  void forward(const tsr_lookup&, const DLTensor& output, tsr_stream, tsr_context**) override {
    for (float& f : elements<float>(output, "output")) f = 1;
  }
  void release(tsr_context*) noexcept override {}
  tsr_kernel_stats stats(uint32_t) override { return {}; }
  void backward_rows(tsr_context*, const tsr_backward&, std::span<tsr_row_gradient> out, tsr_stream) override {
    if (out.size() != num_tables()) fail(TSR_INTERNAL, "wrong number of gradients");
  }
};

class Ones : public Kernel {
 public:
  using Instance = OnesInstance;
  static constexpr const char* kComputeKernels[] = {"dense", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  void supports(const tsr_kernel_config& config) const override {
    if (config.mode != TSR_MODE_INFER) fail(TSR_UNIMPLEMENTED, "only infers");
  }
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config&) const override {
    return std::make_unique<OnesInstance>();
  }
};

class Never : public Sharder {
 public:
  static void probe(Host) { fail(TSR_UNAVAILABLE, "never can run"); }
  std::vector<Layout> propose(const Table&, const Topology&, const Constraints&) const override { return {}; }
};

}  // namespace many_kinds
