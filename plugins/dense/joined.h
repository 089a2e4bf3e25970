// The inputs of layers that take one vector: such a layer accepts any number of inputs and concatenates them in order.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "support.h"

namespace tessera_dense {

// Returns true if a layer's only output has no gradient: the core then passes a gradient without data, which means
// zeros. In that case it has written zeros to the inputs' gradients, and the parameters' gradients stay as they are.
inline bool nothing_comes_back(const tessera::sdk::ModuleCall& call) {
  if (call.grad_outputs[0].data != nullptr) return false;
  for (const DLTensor& t : call.grad_inputs) {
    if (t.data != nullptr) std::fill_n(tessera::sdk::data_as<float>(t), tessera::sdk::numel(t), 0.0f);
  }
  return true;
}

// Copies `width` columns of each row. Rows are `stride` and `to_stride` floats apart.
inline void copy_columns(int64_t rows, int64_t width, const float* from, int64_t stride, float* to, int64_t to_stride) {
  for (int64_t s = 0; s < rows; ++s) std::copy_n(from + s * stride, width, to + s * to_stride);
}
// Does the same on the host's threads.
inline void copy_columns(tessera::sdk::Host host, int64_t rows, int64_t width, const float* from, int64_t stride,
                         float* to, int64_t to_stride) {
  in_row_blocks(host, rows, width, [&](int64_t begin, int64_t end) {
    copy_columns(end - begin, width, from + begin * stride, stride, to + begin * to_stride, to_stride);
  });
}

class Joined {
 public:
  // `width` is the sum of the inputs' widths; 0 accepts any. Only inputs from `first` on are concatenated.
  Joined(tessera::sdk::Host host, std::string layer, int64_t width, size_t first = 0)
      : host_(host),
        layer_(std::move(layer)),
        what_(layer_ + "'s input or its gradient"),
        width_(width),
        first_(first) {}

  int64_t width() const { return width_; }
  // The sum of the inputs' widths. A width of 0 is not known yet, and is accepted.
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
    if (call.inputs.size() <= first_)
      tessera::sdk::fail(TSR_INVALID_ARGUMENT, layer_, " takes more than ", call.inputs.size(), " inputs");
    int64_t width = 0;
    for (const DLTensor& t : call.inputs.subspan(first_)) {
      if (t.ndim != 2) tessera::sdk::fail(TSR_INVALID_ARGUMENT, layer_, " takes inputs [batch, width]");
      width += t.shape[1];
    }
    if (width_ > 0 && width != width_)
      tessera::sdk::fail(TSR_INVALID_ARGUMENT, layer_, " takes ", width_, " values of a sample, not ", width);
    return width;
  }

  // Returns [batch, width]: the only input, or a copy of all inputs in `memory`.
  const float* rows(const tessera::sdk::ModuleCall& call, Floats& memory) const {
    const float* const all = place(call, memory);
    if (!one(call))
      in_row_blocks(host_, call.batch, width_of(call),
                    [&](int64_t begin, int64_t end) { join(call, memory, begin, end); });
    return all;
  }
  // Does the same, but copies nothing: if there are several inputs, call join() for all rows, block by block.
  const float* place(const tessera::sdk::ModuleCall& call, Floats& memory) const {
    const int64_t width = width_of(call);
    if (one(call)) return matrix(call.inputs[first_], call.batch, width, what_.c_str());
    for (const DLTensor& t : call.inputs.subspan(first_)) matrix(t, call.batch, t.shape[1], what_.c_str());
    return memory.at_least(host_, call.batch * width);
  }
  // Copies rows [begin, end) into the memory given to place(). [any-thread]
  void join(const tessera::sdk::ModuleCall& call, const Floats& memory, int64_t begin, int64_t end) const {
    if (one(call)) return;
    const auto inputs = call.inputs.subspan(first_);
    int64_t width = 0;
    for (const DLTensor& t : inputs) width += t.shape[1];
    float* to = memory.data() + begin * width;
    for (const DLTensor& t : inputs) {
      const int64_t w = t.shape[1];
      copy_columns(end - begin, w, tessera::sdk::data_as<float>(t) + begin * w, w, to, width);
      to += w;
    }
  }
  const float* rows(const tessera::sdk::ModuleCall& call) { return rows(call, rows_); }
  // For backward: returns the rows that forward got from rows() with this memory.
  const float* rows_again(const tessera::sdk::ModuleCall& call, const Floats& memory) const {
    return one(call) ? matrix(call.inputs[first_], call.batch, width_of(call), what_.c_str()) : memory.data();
  }
  // Returns the buffer for the gradient of rows(), or NULL if no input's gradient is wanted. After writing it, call
  // give(), which copies it to the inputs' gradients.
  float* gradient(const tessera::sdk::ModuleCall& call) { return gradient(call, 0, call.batch); }
  // Does the same for rows [first, first + rows), which give() must copy before the next such call.
  float* gradient(const tessera::sdk::ModuleCall& call, int64_t first, int64_t rows) {
    const auto wanted = [](const DLTensor& t) { return t.data != nullptr; };
    const auto gradients = call.grad_inputs.subspan(first_);
    if (std::none_of(gradients.begin(), gradients.end(), wanted)) return nullptr;
    const int64_t width = width_of(call);
    if (one(call)) return matrix(gradients[0], call.batch, width, what_.c_str()) + first * width;
    return gradient_.at_least(host_, rows * width);
  }
  void give(const tessera::sdk::ModuleCall& call) const {
    if (!one(call))
      in_row_blocks(host_, call.batch, width_of(call), [&](int64_t begin, int64_t end) { give(call, begin, end); });
  }
  // Does the same for rows [begin, end) of a buffer that begins with row `first`. [any-thread]
  void give(const tessera::sdk::ModuleCall& call, int64_t begin, int64_t end, int64_t first = 0) const {
    if (one(call)) return;
    const int64_t width = width_of(call);
    const float* from = gradient_.data() + (begin - first) * width;
    for (size_t i = first_; i < call.inputs.size(); ++i) {
      const int64_t w = call.inputs[i].shape[1];
      float* const to = matrix_or_null(call.grad_inputs[i], call.batch, w, what_.c_str());
      if (to) copy_columns(end - begin, w, from, width, to + begin * w, w);
      from += w;
    }
  }

 private:
  bool one(const tessera::sdk::ModuleCall& call) const { return call.inputs.size() == first_ + 1; }

  tessera::sdk::Host host_;
  std::string layer_, what_;
  int64_t width_;
  size_t first_;
  Floats rows_, gradient_;
};

// Joins a call's inputs and gives their gradients block by block, while the rows are in the caches.
struct JoinedBlocks {
  void join(int64_t begin, int64_t end) const { joined.join(call, memory, begin, end); }
  float* gradient(int64_t first, int64_t rows) const { return joined.gradient(call, first, rows); }
  void give(int64_t begin, int64_t end, int64_t first) const { joined.give(call, begin, end, first); }
  Joined& joined;
  const tessera::sdk::ModuleCall& call;
  const Floats& memory;
};

}  // namespace tessera_dense
