// What the three layers share: memory, loops over chunks.
#pragma once

#include <algorithm>

#include "tessera/sdk/layers.h"

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

using tessera::sdk::batch_of;
using tessera::sdk::ContextPool;
using tessera::sdk::matrix;
using tessera::sdk::matrix_or_null;
using tessera::sdk::parameter_data;

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
