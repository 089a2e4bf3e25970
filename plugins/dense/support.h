// What the three layers share: contexts that are used again, checked tensors, loops over chunks.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "tessera/sdk/module.h"

namespace tessera_dense {

// Floats from the host that grow and never shrink.
class Floats {
 public:
  float* at_least(tessera::sdk::Host host, int64_t count) {
    const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(float);
    if (buffer_.bytes() < bytes) buffer_ = tessera::sdk::Buffer(host, bytes);
    return data();
  }
  float* data() const { return buffer_.data<float>(); }

 private:
  tessera::sdk::Buffer buffer_;
};

// Contexts live as long as the module and go round: a step makes none once enough exist.
template <class Context>
class ContextPool {
 public:
  struct Return {
    ContextPool* pool;
    void operator()(Context* context) const { pool->give_back(context); }
  };
  using Lease = std::unique_ptr<Context, Return>;

  Lease take() {
    if (free_.empty()) {
      free_.reserve(all_.size() + 1);  // so that give_back() never allocates
      all_.push_back(std::make_unique<Context>());
      return Lease(all_.back().get(), {this});
    }
    Context* context = free_.back();
    free_.pop_back();
    return Lease(context, {this});
  }
  void give_back(Context* context) noexcept { free_.push_back(context); }
  void give_back(tsr_module_context* context) noexcept { give_back(of(context)); }

  static Context* of(tsr_module_context* context) { return reinterpret_cast<Context*>(context); }
  // Hands the context to the caller, or back to the pool where the caller wants none.
  static void hand_out(Lease lease, tsr_module_context** context) {
    if (context) *context = reinterpret_cast<tsr_module_context*>(lease.release());
  }

 private:
  std::vector<std::unique_ptr<Context>> all_;
  std::vector<Context*> free_;
};

// The floats of a [batch, width] tensor; refuses another type or shape.
inline float* matrix(const DLTensor& tensor, int64_t batch, int64_t width, const char* what) {
  if (tensor.ndim < 1 || tensor.shape[0] != batch || tessera::sdk::numel(tensor) != batch * width) {
    tessera::sdk::fail(TSR_INVALID_ARGUMENT, what, " must have ", batch, " rows of ", width, " values");
  }
  return tessera::sdk::elements<float>(tensor, what).data();
}

inline int64_t batch_of(std::span<const DLTensor> inputs, size_t wanted, const char* layer) {
  if (inputs.size() != wanted || inputs[0].ndim < 1) {
    tessera::sdk::fail(TSR_INVALID_ARGUMENT, layer, " takes ", wanted, " input", wanted == 1 ? "" : "s",
                       " [batch, width], not ", inputs.size());
  }
  return inputs[0].shape[0];
}

// The data of every parameter (or gradient), whose sizes must be those declared.
inline void parameter_data(std::span<const DLTensor> tensors, const std::vector<tessera::sdk::Parameter>& declared,
                           std::vector<float*>& out) {
  out.resize(declared.size());
  for (size_t i = 0; i < declared.size(); ++i) {
    int64_t count = 1;
    for (int64_t s : declared[i].shape) count *= s;
    if (tessera::sdk::numel(tensors[i]) != count) {
      tessera::sdk::fail(TSR_INVALID_ARGUMENT, declared[i].name, " must have ", count, " values, not ",
                         tessera::sdk::numel(tensors[i]));
    }
    out[i] = tessera::sdk::elements<float>(tensors[i], declared[i].name.c_str()).data();
  }
}

// body(begin, end, chunk) over [0, n) in at most one chunk per thread, cut at multiples of `unit`.
template <class Body>
void in_chunks(tessera::sdk::Host host, int64_t n, int64_t unit, Body&& body) {
  const int64_t units = (n + unit - 1) / unit;
  const int64_t chunks = std::min<int64_t>(host.num_threads(), units);
  if (chunks <= 1) {
    if (n > 0) body(int64_t{0}, n, int64_t{0});
    return;
  }
  host.parallel_for(static_cast<uint64_t>(chunks), [&](uint64_t i) {
    const auto c = static_cast<int64_t>(i);
    body(units * c / chunks * unit, std::min(n, units * (c + 1) / chunks * unit), c);
  });
}

}  // namespace tessera_dense
