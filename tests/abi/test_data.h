// The data that tests of transports send.
#pragma once

#include <numeric>
#include <vector>

#include "tessera/sdk/collective.h"

namespace tessera::sdk {

// A vector's floats as a one-dimensional tensor.
class View {
 public:
  explicit View(std::vector<float>& data) : size_(static_cast<int64_t>(data.size())) {
    tensor_ = {data.data(), {kDLCPU, 0}, 1, dtype_of<float>(), &size_, nullptr, 0};
  }
  View(const View&) = delete;
  operator const DLTensor&() const { return tensor_; }

 private:
  int64_t size_;
  DLTensor tensor_;
};

inline std::vector<float> counting(size_t n, float first) {
  std::vector<float> out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

}  // namespace tessera::sdk
