#include "cross.h"

#include <string.h>

namespace tessera_dense {

Cross::Cross(const tessera::sdk::Setup& setup)
    : host_(setup.host),
      loops_(choose_loops()),
      shape_(setup.options),
      width_(shape_.width()),
      layers_(shape_.count()),
      low_rank_(shape_.low_rank()) {
  for (int64_t k = 0; k < layers_; ++k) {
    if (low_rank_ > 0) down_.emplace_back(width_, low_rank_, false, false);
    up_.emplace_back(shape_.inner(), width_, true, false);
  }
}

void Cross::forward(const tessera::sdk::ModuleForward& args, tsr_module_context** context) {
  const int64_t batch = batch_of(args.inputs, 1, "cross"), n = batch * width_;
  const float* x0 = matrix(args.inputs[0], batch, width_, "cross's input");
  float* output = matrix(args.output, batch, width_, "cross's output");
  parameter_data(args.parameters, parameters(), weights_);
  auto lease = contexts_.take();
  lease->kept.at_least(host_, shape_.kept_floats(batch));
  const ThreadScope threads(host_.num_threads());
  const float* x = x0;
  for (int64_t k = 0; k < layers_; ++k) {
    const Kept kept = shape_.kept(lease->kept.data(), batch, k);
    float* const* w = weights_.data() + shape_.first_parameter(k);
    const float* in = x;
    if (low_rank_ > 0) {
      down_[k].forward(batch, x, *w++, nullptr, kept.projected);
      in = kept.projected;
    }
    up_[k].forward(batch, in, w[0], w[1], kept.y);
    float* next = k + 1 == layers_ ? output : shape_.kept(lease->kept.data(), batch, k + 1).x;
    in_chunks(host_, n, 1024, [&](int64_t first, int64_t last, int64_t) {
      loops_.multiply_add(last - first, x0 + first, kept.y + first, x + first, next + first);
    });
    x = next;
  }
  contexts_.hand_out(std::move(lease), context);
}

// dy: the gradient of W x + b. dx is written.
void Cross::backward_layer(int64_t batch, int64_t k, const Kept& kept, const float* x, const float* dy, float* dx) {
  float* const* w = weights_.data() + shape_.first_parameter(k);
  float* const* g = gradients_.data() + shape_.first_parameter(k);
  float* bias = g[low_rank_ > 0 ? 2 : 1];
  in_chunks(host_, width_, 16, [&](int64_t first, int64_t last, int64_t) {
    loops_.mask_and_sum(batch, width_, first, last, nullptr, dy, nullptr, bias);
  });
  if (low_rank_ == 0) {
    up_[k].backward(batch, x, w[0], dy, dx, g[0]);
    return;
  }
  float* dv = dv_.at_least(host_, batch * low_rank_);
  up_[k].backward(batch, kept.projected, w[1], dy, dv, g[1]);
  down_[k].backward(batch, x, w[0], dv, dx, g[0]);
}

void Cross::backward(const tessera::sdk::ModuleBackward& args, tsr_module_context* context) {
  const int64_t batch = batch_of(args.inputs, 1, "cross"), n = batch * width_;
  const Context& saved = *contexts_.of(context);
  const float* x0 = matrix(args.inputs[0], batch, width_, "cross's input");
  const float* grad = matrix(args.grad_output, batch, width_, "the gradient of cross's output");
  parameter_data(args.parameters, parameters(), weights_);
  parameter_data(args.grad_parameters, parameters(), gradients_);
  float* dy = dy_.at_least(host_, n);
  float* dx = dx_.at_least(host_, n);
  float* dout = dout_.at_least(host_, n);
  float* dx0 = args.grad_inputs[0].data == nullptr ? dx0_.at_least(host_, n)
                                                   : matrix(args.grad_inputs[0], batch, width_, "cross's gradient");
  if (n == 0) return;
  const ThreadScope threads(host_.num_threads());
  memcpy(dout, grad, sizeof(float) * static_cast<size_t>(n));
  memset(dx0, 0, sizeof(float) * static_cast<size_t>(n));
  for (int64_t k = layers_; k-- > 0;) {
    const Kept kept = shape_.kept(saved.kept.data(), batch, k);
    in_chunks(host_, n, 1024, [&](int64_t first, int64_t last, int64_t) {
      loops_.multiply(last - first, dout + first, x0 + first, dy + first);
      loops_.add_product(last - first, dout + first, kept.y + first, dx0 + first);
    });
    backward_layer(batch, k, kept, k == 0 ? x0 : kept.x, dy, dx);
    in_chunks(host_, n, 1024, [&](int64_t first, int64_t last, int64_t) {
      loops_.add(last - first, dx + first, dout + first);  // the way around the layer
    });
  }
  loops_.add(n, dout, dx0);
}

}  // namespace tessera_dense
