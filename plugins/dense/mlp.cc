#include "mlp.h"

namespace tessera_dense {

Mlp::Mlp(const tessera::sdk::Setup& setup) : host_(setup.host), loops_(choose_loops()), shape_(setup.options) {
  for (size_t k = 0; k < shape_.count(); ++k) {
    layers_.emplace_back(shape_.in(k), shape_.out(k), true, shape_.relu(k));
    products_ += shape_.in(k)*shape_.out(k);
  }
}

void Mlp::forward(const tessera::sdk::ModuleForward& args, tsr_module_context** context) {
  const int64_t batch = batch_of(args.inputs, 1, "mlp");
  const float* x = matrix(args.inputs[0], batch, shape_.input(), "mlp's input");
  float* output = matrix(args.output, batch, shape_.output(), "mlp's output");
  parameter_data(args.parameters, parameters(), weights_);
  auto lease = contexts_.take();
  lease->hidden.at_least(host_, batch * shape_.hidden_width());
  if (context == nullptr) return infer(batch, x, output, *lease);
  const ThreadScope threads(host_.num_threads());
  for (size_t k = 0; k < layers_.size(); ++k) {
    float* y = k + 1 == layers_.size() ? output : shape_.hidden(lease->hidden.data(), batch, k);
    layers_[k].forward(batch, x, weights_[2 * k], weights_[2 * k + 1], y);
    x = y;
  }
  contexts_.hand_out(std::move(lease), context);
}

void Mlp::infer(int64_t batch, const float* x, float* output, Context& memory) {
  constexpr int64_t kProductsWorthAThread = 256 << 10;
  const int64_t unit = std::max<int64_t>(4, kProductsWorthAThread / products_);
  in_chunks(host_, batch, unit, [&](int64_t begin, int64_t end, int64_t) {
    const float* from = x;
    for (size_t k = 0; k < layers_.size(); ++k) {
      float* to = k + 1 == layers_.size() ? output : shape_.hidden(memory.hidden.data(), batch, k);
      loops_.affine({begin, end - begin, layers_[k].in(), layers_[k].out(), from, weights_[2 * k], weights_[2 * k + 1],
                     to, layers_[k].relu()});
      from = to;
    }
  });
}

void Mlp::backward(const tessera::sdk::ModuleBackward& args, tsr_module_context* context) {
  const int64_t batch = batch_of(args.inputs, 1, "mlp");
  const Context& kept = *contexts_.of(context);
  const float* input = matrix(args.inputs[0], batch, shape_.input(), "mlp's input");
  const float* y = matrix(args.output, batch, shape_.output(), "mlp's output");
  const float* dy = matrix(args.grad_output, batch, shape_.output(), "the gradient of mlp's output");
  float* grad_input = matrix_or_null(args.grad_inputs[0], batch, shape_.input(), "the gradient of mlp's input");
  parameter_data(args.parameters, parameters(), weights_);
  parameter_data(args.grad_parameters, parameters(), gradients_);
  float* dz = dz_.at_least(host_, batch * shape_.widest());  // where a layer's is masked
  float* dx = dx_.at_least(host_, batch * shape_.widest());
  const ThreadScope threads(host_.num_threads());
  for (size_t k = layers_.size(); k-- > 0;) {
    const Linear& layer = layers_[k];
    in_chunks(host_, layer.out(), 16, [&](int64_t first, int64_t last, int64_t) {
      loops_.mask_and_sum(batch, layer.out(), first, last, layer.relu() ? y : nullptr, dy, dz, gradients_[2 * k + 1]);
    });
    const float* x = k == 0 ? input : shape_.hidden(kept.hidden.data(), batch, k - 1);
    layer.backward(batch, x, weights_[2 * k], layer.relu() ? dz : dy, k == 0 ? grad_input : dx, gradients_[2 * k]);
    y = x;
    dy = dx;
    std::swap(dx, dz);  // the next layer masks in place
  }
}

}  // namespace tessera_dense
