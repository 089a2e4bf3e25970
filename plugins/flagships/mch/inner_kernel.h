// The kernel that holds the rows, as C++: each call throws Failure with that kernel's own sentence.
#pragma once

#include <tessera/sdk/kernel.h>

#include <utility>

namespace flagships {

namespace sdk = tessera::sdk;

class InnerKernel {
 public:
  explicit InnerKernel(const tsr_part* part) : part_(part) {}
  explicit operator bool() const { return part_ != nullptr; }
  const tsr_kernel& api() const { return *static_cast<const tsr_kernel*>(part_->component->api); }
  const char* id() const { return part_->component->id; }

  void supports(const tsr_kernel_config& config) const {
    sdk::Call call;
    call.check(api().supports(part_->self, &config, call.err()));
  }
  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const {
    tsr_estimate out{};
    out.struct_size = sizeof(out);
    sdk::Call call;
    if (TSR_HAS(tsr_kernel, &api(), estimate))
      call.check(api().estimate(part_->self, &config, &work, &out, call.err()));
    return out;
  }

 private:
  friend class InnerRows;
  const tsr_part* part_;
};

// An instance with one table.
class InnerRows {
 public:
  InnerRows(const InnerKernel& kernel, const tsr_kernel_config& config) : api_(&kernel.api()) {
    sdk::Call call;
    call.check(api_->open(kernel.part_->self, &config, &raw_, call.err()));
  }
  ~InnerRows() {
    if (raw_ != nullptr) api_->close(raw_);
  }
  InnerRows(InnerRows&& other) noexcept : api_(other.api_), raw_(std::exchange(other.raw_, nullptr)) {}
  InnerRows& operator=(InnerRows&&) = delete;

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, tsr_context** context) const {
    sdk::Call call;
    call.check(api_->forward(raw_, &lookup, &output, stream, context, call.err()));
  }
  void backward(tsr_context* context, const tsr_backward& args, tsr_stream stream) const {
    sdk::Call call;
    call.check(api_->backward(raw_, context, &args, stream, call.err()));
  }
  void release(tsr_context* context) const noexcept { api_->release(raw_, context); }
  // Rows from number `cursor` on.
  void export_rows(uint64_t cursor, tsr_rows& rows) const {
    sdk::Call call;
    call.check(api_->export_rows(raw_, 0, &cursor, &rows, call.err()));
  }
  void import_rows(const tsr_rows& rows) const {
    sdk::Call call;
    call.check(api_->import_rows(raw_, 0, &rows, call.err()));
  }
  void save(const tsr_stream_io& io) const {
    sdk::Call call;
    call.check(api_->save(raw_, 0, &io, call.err()));
  }
  void load(const tsr_stream_io& io) const {
    sdk::Call call;
    call.check(api_->load(raw_, 0, &io, call.err()));
  }
  tsr_kernel_stats stats() const {
    tsr_kernel_stats out{};
    out.struct_size = sizeof(out);
    sdk::Call call;
    call.check(api_->stats(raw_, 0, &out, call.err()));
    return out;
  }

 private:
  const tsr_kernel* api_;
  void* raw_ = nullptr;
};

}  // namespace flagships
