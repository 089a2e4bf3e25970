// A layer of one vector takes any number of inputs: it sees them beside each other, in their order.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "support.h"

namespace tessera_dense {

class Joined {
 public:
  // `width`: of all inputs together; 0: whatever is given.
  Joined(tessera::sdk::Host host, std::string layer, int64_t width)
      : host_(host), layer_(std::move(layer)), width_(width) {}

  int64_t width() const { return width_; }
  // The width of such inputs together. Those of width 0, which the caller does not know yet, fit everything.
  int64_t width_of(std::span<const tessera::sdk::Value> inputs) const {
    const std::vector<int64_t> widths = tessera::sdk::dense_widths(inputs, layer_.c_str());
    if (widths.empty()) tessera::sdk::fail(TSR_INVALID_ARGUMENT, layer_, " takes at least one input, not 0");
    const bool known = std::find(widths.begin(), widths.end(), 0) == widths.end();
    const int64_t width = std::accumulate(widths.begin(), widths.end(), int64_t{0});
    if (known && width_ > 0 && width != width_) {
      tessera::sdk::fail(TSR_INVALID_ARGUMENT, layer_, " takes ", widths.size() == 1 ? "one input of " : "inputs of ",
                         width_, " values", widths.size() == 1 ? "" : " together", ", not ", width, " values");
    }
    return width_ > 0 ? width_ : width;
  }

  int64_t width_of(const tessera::sdk::ModuleCall& call) const {
    int64_t width = 0;
    for (const DLTensor& t : call.inputs) {
      if (t.ndim != 2) tessera::sdk::fail(TSR_INVALID_ARGUMENT, layer_, " takes inputs [batch, width]");
      width += t.shape[1];
    }
    if (width_ > 0 && width != width_)
      tessera::sdk::fail(TSR_INVALID_ARGUMENT, layer_, " takes ", width_, " values of a sample, not ", width);
    return width;
  }

  // [batch, width]: the one input, or a copy of all.
  const float* rows(const tessera::sdk::ModuleCall& call) {
    const int64_t width = width_of(call);
    if (call.inputs.size() == 1) return matrix(call.inputs[0], call.batch, width, what().c_str());
    float* to = rows_.at_least(host_, call.batch * width);
    each(call.inputs, call.batch, [&](const float* from, int64_t w, int64_t at) {
      for (int64_t s = 0; s < call.batch; ++s) std::copy_n(from + s * w, w, to + s * width + at);
    });
    return to;
  }
  // Where the gradient of rows() goes; NULL where no input's is wanted. Then give().
  float* gradient(const tessera::sdk::ModuleCall& call) {
    const auto wanted = [](const DLTensor& t) { return t.data != nullptr; };
    if (std::none_of(call.grad_inputs.begin(), call.grad_inputs.end(), wanted)) return nullptr;
    const int64_t width = width_of(call);
    if (call.inputs.size() == 1) return matrix(call.grad_inputs[0], call.batch, width, what().c_str());
    return gradient_.at_least(host_, call.batch * width);
  }
  void give(const tessera::sdk::ModuleCall& call) const {
    if (call.inputs.size() == 1) return;
    const int64_t width = width_of(call);
    int64_t at = 0;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const int64_t w = call.inputs[i].shape[1];
      float* to = matrix_or_null(call.grad_inputs[i], call.batch, w, what().c_str());
      for (int64_t s = 0; to && s < call.batch; ++s) std::copy_n(gradient_.data() + s * width + at, w, to + s * w);
      at += w;
    }
  }

 private:
  std::string what() const { return layer_ + "'s input or its gradient"; }
  template <class Body>
  void each(std::span<const DLTensor> tensors, int64_t batch, const Body& body) const {
    int64_t at = 0;
    for (const DLTensor& t : tensors) {
      body(matrix(t, batch, t.shape[1], what().c_str()), t.shape[1], at);
      at += t.shape[1];
    }
  }

  tessera::sdk::Host host_;
  std::string layer_;
  int64_t width_;
  Floats rows_, gradient_;
};

}  // namespace tessera_dense
