#include "dense/elementwise.h"
#include "dense/modules.h"

namespace tessera::gpu {

GpuCross::GpuCross(const sdk::Setup& setup)
    : host_(setup.host),
      shape_(setup.options),
      down_{shape_.width(), shape_.low_rank(), false},
      up_{shape_.inner(), shape_.width(), false} {}

void GpuCross::forward(const sdk::ModuleCall& args, tsr_module_context** context) {
  const int64_t batch = sdk::batch_of(args.inputs, 1, "cross"), n = batch * shape_.width();
  const float* x0 = sdk::matrix(args.inputs[0], batch, shape_.width(), "cross's input");
  float* output = sdk::matrix(args.outputs[0], batch, shape_.width(), "cross's output");
  sdk::parameter_data(args.parameters, parameters(), weights_);
  const Call call{host_, device_of(args.inputs[0], "cross"), static_cast<Stream>(args.stream)};
  const DeviceScope scope(call.device.device_id);
  auto lease = contexts_.take();
  float* memory = lease->kept.at_least(host_, call.device, shape_.kept_floats(batch), call.stream);
  const float* x = x0;
  for (int64_t k = 0; k < shape_.count(); ++k) {
    const auto kept = shape_.kept(memory, batch, k);
    float* const* w = weights_.data() + shape_.first_parameter(k);
    const float* in = x;
    if (shape_.low_rank() > 0) {
      down_.forward(call, batch, x, *w++, nullptr, kept.projected, products_);
      in = kept.projected;
    }
    up_.forward(call, batch, in, w[0], w[1], kept.y, products_);
    float* next = k + 1 == shape_.count() ? output : shape_.kept(memory, batch, k + 1).x;
    multiply_add(n, x0, kept.y, x, next, call.stream);
    x = next;
  }
  sdk::ContextPool<Context>::hand_out(std::move(lease), context);
}

// Computes a layer's gradients. dy is the gradient of W x + b; dx is written.
void GpuCross::backward_layer(const Call& call, int64_t batch, int64_t k, const sdk::CrossLayers::Kept& kept,
                              const float* x, const float* dy, float* dx) {
  float* const* w = weights_.data() + shape_.first_parameter(k);
  float* const* g = gradients_.data() + shape_.first_parameter(k);
  float* bias = g[shape_.low_rank() > 0 ? 2 : 1];
  products_.run(call, MaskAndSum{batch, shape_.width(), nullptr, dy, nullptr, bias});
  if (shape_.low_rank() == 0) return up_.backward(call, batch, x, w[0], dy, dx, g[0], products_);
  float* dv = dv_.at_least(host_, call.device, batch * shape_.low_rank(), call.stream);
  up_.backward(call, batch, kept.projected, w[1], dy, dv, g[1], products_);
  down_.backward(call, batch, x, w[0], dv, dx, g[0], products_);
}

void GpuCross::backward(const sdk::ModuleCall& args, tsr_module_context* context) {
  const int64_t batch = sdk::batch_of(args.inputs, 1, "cross"), n = batch * shape_.width();
  const float* x0 = sdk::matrix(args.inputs[0], batch, shape_.width(), "cross's input");
  const float* grad = sdk::matrix(args.grad_outputs[0], batch, shape_.width(), "the gradient of cross's output");
  float* dx0 = sdk::matrix_or_null(args.grad_inputs[0], batch, shape_.width(), "cross's gradient");
  sdk::parameter_data(args.parameters, parameters(), weights_);
  sdk::parameter_data(args.grad_parameters, parameters(), gradients_);
  if (n == 0) return;
  const Call call{host_, device_of(args.inputs[0], "cross"), static_cast<Stream>(args.stream)};
  const DeviceScope scope(call.device.device_id);
  float* memory = sdk::ContextPool<Context>::of(context)->kept.data();
  float* dy = dy_.at_least(host_, call.device, n, call.stream);
  float* dx = dx_.at_least(host_, call.device, n, call.stream);
  float* dout = dout_.at_least(host_, call.device, n, call.stream);
  if (dx0 == nullptr) dx0 = dx0_.at_least(host_, call.device, n, call.stream);
  memcpy_async(dout, grad, sizeof(float) * static_cast<size_t>(n), call.stream);
  memset_async(dx0, 0, sizeof(float) * static_cast<size_t>(n), call.stream);
  for (int64_t k = shape_.count(); k-- > 0;) {
    const auto kept = shape_.kept(memory, batch, k);
    multiply_add(n, dout, x0, nullptr, dy, call.stream);
    multiply_add(n, dout, kept.y, dx0, dx0, call.stream);
    backward_layer(call, batch, k, kept, k == 0 ? x0 : kept.x, dy, dx);
    add(n, dx, dout, call.stream);  // the gradient that bypasses the layer
  }
  add(n, dout, dx0, call.stream);
}

}  // namespace tessera::gpu
