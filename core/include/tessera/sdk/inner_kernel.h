// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/inner_kernel.h - kernels that work around another one (TSR_KERNEL_WRAPS): the caller's half, as C++.
#pragma once

#include <utility>

#include "tessera/sdk/kernel.h"

namespace tessera::sdk {

// The wrapped kernel, a part that somebody else made and that outlives this. Every call throws Failure with that
// kernel's own sentence. Of use to wrappers alone: without a part (`inner` of the Setup is NULL) it is false.
class InnerKernel {
 public:
  explicit InnerKernel(const tsr_part* part) : part_(part) {}
  explicit operator bool() const { return part_ != nullptr; }
  const tsr_kernel& api() const { return *static_cast<const tsr_kernel*>(part_->component->api); }
  const char* id() const { return part_->component->id; }

  void supports(const tsr_kernel_config& config) const {
    Call call;
    call.check(api().supports(part_->self, &config, call.err()));
  }
  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const {
    tsr_estimate out{};
    out.struct_size = sizeof(out);
    Call call;
    if (TSR_HAS(tsr_kernel, &api(), estimate))
      call.check(api().estimate(part_->self, &config, &work, &out, call.err()));
    return out;
  }

 private:
  friend class InnerInstance;
  const tsr_part* part_;
};

// One of its instances, closed when this goes; its functions are those of abi/kernel.h, of its first table.
class InnerInstance {
 public:
  InnerInstance(const InnerKernel& kernel, const tsr_kernel_config& config) : api_(&kernel.api()) {
    Call call;
    call.check(api_->open(kernel.part_->self, &config, &raw_, call.err()));
  }
  ~InnerInstance() {
    if (raw_ != nullptr) api_->close(raw_);
  }
  InnerInstance(InnerInstance&& other) noexcept : api_(other.api_), raw_(std::exchange(other.raw_, nullptr)) {}
  InnerInstance& operator=(InnerInstance&&) = delete;

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, tsr_context** context) const {
    Call call;
    call.check(api_->forward(raw_, &lookup, &output, stream, context, call.err()));
  }
  void backward(tsr_context* context, const tsr_backward& args, tsr_stream stream) const {
    Call call;
    call.check(api_->backward(raw_, context, &args, stream, call.err()));
  }
  void release(tsr_context* context) const noexcept { api_->release(raw_, context); }
  // Rows from number `cursor` on.
  void export_rows(uint64_t cursor, tsr_rows& rows) const {
    Call call;
    call.check(api_->export_rows(raw_, 0, &cursor, &rows, call.err()));
  }
  void import_rows(const tsr_rows& rows) const {
    Call call;
    call.check(api_->import_rows(raw_, 0, &rows, call.err()));
  }
  void save(const tsr_stream_io& io) const {
    Call call;
    call.check(api_->save(raw_, 0, &io, call.err()));
  }
  void load(const tsr_stream_io& io) const {
    Call call;
    call.check(api_->load(raw_, 0, &io, call.err()));
  }
  tsr_kernel_stats stats() const {
    tsr_kernel_stats out{};
    out.struct_size = sizeof(out);
    Call call;
    call.check(api_->stats(raw_, 0, &out, call.err()));
    return out;
  }

 private:
  const tsr_kernel* api_;
  void* raw_ = nullptr;
};

}  // namespace tessera::sdk
