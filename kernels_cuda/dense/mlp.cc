#include "dense/modules.h"

namespace tessera::gpu {

GpuMlp::GpuMlp(const sdk::Setup& setup) : host_(setup.host), shape_(setup.options) {
  shape_.need_plain("on this device");
  for (size_t k = 0; k < shape_.count(); ++k) layers_.push_back({shape_.in(k), shape_.out(k), shape_.relu(k)});
}

void GpuMlp::forward(const sdk::ModuleCall& args, tsr_module_context** context) {
  const int64_t batch = sdk::batch_of(args.inputs, 1, "mlp");
  const float* x = sdk::matrix(args.inputs[0], batch, shape_.input(), "mlp's input");
  float* output = sdk::matrix(args.outputs[0], batch, shape_.output(), "mlp's output");
  sdk::parameter_data(args.parameters, parameters(), weights_);
  const Call call{host_, device_of(args.inputs[0], "mlp"), static_cast<Stream>(args.stream)};
  const DeviceScope scope(call.device.device_id);
  auto lease = contexts_.take();
  float* hidden = lease->hidden.at_least(host_, call.device, batch * shape_.hidden_width(), call.stream);
  for (size_t k = 0; k < layers_.size(); ++k) {
    float* y = k + 1 == layers_.size() ? output : shape_.hidden(hidden, batch, k);
    layers_[k].forward(call, batch, x, weights_[2 * k], weights_[2 * k + 1], y, products_);
    x = y;
  }
  sdk::ContextPool<Context>::hand_out(std::move(lease), context);
}

void GpuMlp::backward(const sdk::ModuleCall& args, tsr_module_context* context) {
  const int64_t batch = sdk::batch_of(args.inputs, 1, "mlp");
  const float* input = sdk::matrix(args.inputs[0], batch, shape_.input(), "mlp's input");
  const float* y = sdk::matrix(args.outputs[0], batch, shape_.output(), "mlp's output");
  const float* dy = sdk::matrix(args.grad_outputs[0], batch, shape_.output(), "the gradient of mlp's output");
  float* grad_input = sdk::matrix_or_null(args.grad_inputs[0], batch, shape_.input(), "the gradient of mlp's input");
  sdk::parameter_data(args.parameters, parameters(), weights_);
  sdk::parameter_data(args.grad_parameters, parameters(), gradients_);
  const Call call{host_, device_of(args.inputs[0], "mlp"), static_cast<Stream>(args.stream)};
  const DeviceScope scope(call.device.device_id);
  float* hidden = sdk::ContextPool<Context>::of(context)->hidden.data();
  float* dz = dz_.at_least(host_, call.device, batch * shape_.widest(), call.stream);
  float* dx = dx_.at_least(host_, call.device, batch * shape_.widest(), call.stream);
  for (size_t k = layers_.size(); k-- > 0;) {
    const Linear& layer = layers_[k];
    products_.run(call, MaskAndSum{batch, layer.out, layer.relu ? y : nullptr, dy, dz, gradients_[2 * k + 1]});
    const float* x = k == 0 ? input : shape_.hidden(hidden, batch, k - 1);
    layer.backward(call, batch, x, weights_[2 * k], layer.relu ? dz : dy, k == 0 ? grad_input : dx, gradients_[2 * k],
                   products_);
    y = x;
    dy = dx;
  }
}

}  // namespace tessera::gpu
