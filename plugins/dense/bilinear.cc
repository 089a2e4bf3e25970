#include "bilinear.h"

namespace tessera_dense {

using tessera::sdk::fail;
using tessera::sdk::xavier_normal;

Bilinear::Bilinear(const tessera::sdk::Setup& setup)
    : host_(setup.host),
      loops_(*choose_loops().of_rows),
      widths_(setup.options.integers("inputs", {})),
      heads_(setup.options.integer("heads", 1)),
      part_{} {
  if (widths_.size() != 2 || widths_[0] < 1 || widths_[1] < 1)
    fail(TSR_INVALID_ARGUMENT, "option \"inputs\" must list the widths of its two inputs");
  if (heads_ < 1 || widths_[0] % heads_ != 0 || widths_[1] % heads_ != 0) {
    fail(TSR_INVALID_ARGUMENT, "option \"heads\" must divide the widths ", widths_[0], " and ", widths_[1], ", which ",
         heads_, " does not");
  }
  for (size_t i = 0; i < 2; ++i) {
    const std::string name = i == 0 ? "x" : "y";
    part_[i] = widths_[i] / heads_;
    parameters_.push_back({name + ".weight", {1, widths_[i]}, xavier_normal(1, widths_[i])});
    parameters_.push_back({name + ".bias", {1}});
  }
  parameters_.push_back({"xy.weight", {heads_, part_[0], part_[1]}, xavier_normal(part_[0], part_[1])});
}

std::vector<tessera::sdk::Value> Bilinear::outputs(std::span<const tessera::sdk::Value> inputs) const {
  const std::vector<int64_t> widths = tessera::sdk::dense_widths(inputs, "bilinear");
  if (widths != widths_)
    fail(TSR_INVALID_ARGUMENT, "bilinear takes two inputs, of ", widths_[0], " and of ", widths_[1], " values");
  return {tessera::sdk::Value{1}};
}

const float* Bilinear::input(const tessera::sdk::ModuleCall& call, size_t i) const {
  return matrix(call.inputs[i], call.batch, widths_[i], "bilinear's input");
}

void Bilinear::forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) {
  const int64_t a = widths_[0], b = widths_[1];
  const float *x = input(call, 0), *y = input(call, 1);
  float* out = matrix(call.outputs[0], call.batch, 1, "bilinear's output");
  parameter_data(call.parameters, parameters_, pointers_);
  auto lease = contexts_.take();
  float* turned = lease->turned.at_least(host_, call.batch * b);
  const int64_t block = std::max<int64_t>(64, rows_of_block(a + 2 * b));
  in_blocks(host_, call.batch, block, [&](int64_t begin, int64_t end, int64_t) {
    const OneThread alone;
    for (int64_t h = 0; h < heads_; ++h) {
      multiply({'N', 'N', end - begin, part_[1], part_[0], 1, x + begin * a + h * part_[0], a, weights(h, pointers_),
                part_[1], 0, turned + begin * b + h * part_[1], b});
    }
    for (int64_t s = begin; s < end; ++s) {
      out[s] = loops_.dot(a, x + s * a, pointers_[0]) + pointers_[1][0] + loops_.dot(b, y + s * b, pointers_[2]) +
               pointers_[3][0] + loops_.dot(b, turned + s * b, y + s * b);
    }
  });
  contexts_.hand_out(std::move(lease), context);
}

void Bilinear::backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) {
  if (nothing_comes_back(call)) return;
  const int64_t a = widths_[0], b = widths_[1], batch = call.batch;
  const float *x = input(call, 0), *y = input(call, 1), *turned = contexts_.of(context)->turned.data();
  const float* grad = matrix(call.grad_outputs[0], batch, 1, "the gradient of bilinear's output");
  float* dx = matrix_or_null(call.grad_inputs[0], batch, a, "the gradient of an input");
  float* dy = matrix_or_null(call.grad_inputs[1], batch, b, "the gradient of an input");
  parameter_data(call.parameters, parameters_, pointers_);
  parameter_data(call.grad_parameters, parameters_, gradients_);
  float* dturned = dturned_.at_least(host_, batch * b);
  in_row_blocks(host_, batch, a + 2 * b, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      loops_.scale_both(b, grad[s], y + s * b, nullptr, dturned + s * b);
      if (dx) loops_.scale_both(a, grad[s], pointers_[0], nullptr, dx + s * a);
      if (dy) loops_.scale_both(b, grad[s], pointers_[2], turned + s * b, dy + s * b);
    }
  });
  // The last two tasks sum the gradients of the two linear terms over the batch; the others are the heads.
  one_by_one(host_, heads_ + 2, batch * (a + b) >= kValuesWorthAThread, [&](int64_t h) {
    if (h >= heads_) return add_linear(h == heads_ ? 0 : 2, h == heads_ ? a : b, batch, h == heads_ ? x : y, grad);
    const OneThread alone;
    const int64_t at = h * part_[0];
    const float* d = dturned + h * part_[1];
    if (dx) multiply({'N', 'T', batch, part_[0], part_[1], 1, d, b, weights(h, pointers_), part_[1], 1, dx + at, a});
    multiply({'T', 'N', part_[0], part_[1], batch, 1, x + at, a, d, b, 1, gradients_[4] + at * part_[1], part_[1]});
  });
}

// Adds the gradients of the linear term whose weight is parameter `first`, before its bias.
void Bilinear::add_linear(size_t first, int64_t width, int64_t batch, const float* x, const float* grad) const {
  for (int64_t s = 0; s < batch; ++s) {
    loops_.add_scaled(width, grad[s], x + s * width, gradients_[first]);
    gradients_[first + 1][0] += grad[s];
  }
}

}  // namespace tessera_dense
