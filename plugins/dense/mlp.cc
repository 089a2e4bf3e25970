#include "mlp.h"

#include <string>

namespace tessera_dense {

using tessera::sdk::fail;

Mlp::Mlp(const tessera::sdk::Setup& setup) : host_(setup.host), loops_(choose_loops()) {
  const std::vector<int64_t> widths = setup.options.integers("layers", {});
  const std::string final_activation = setup.options.string("final_activation", "none");
  if (widths.size() < 2 || *std::min_element(widths.begin(), widths.end()) < 1) {
    fail(TSR_INVALID_ARGUMENT,
         "mlp: option \"layers\" must list the input's width and at least one layer's, all above 0");
  }
  if (final_activation != "none" && final_activation != "relu") {
    fail(TSR_INVALID_ARGUMENT, "mlp: option \"final_activation\" is \"", final_activation,
         "\", but must be none or relu");
  }
  for (size_t k = 0; k + 1 < widths.size(); ++k) {
    const bool last = k + 2 == widths.size();
    layers_.emplace_back(widths[k], widths[k + 1], true, !last || final_activation == "relu");
    parameters_.push_back({std::to_string(k) + ".weight", {widths[k + 1], widths[k]}, TSR_INIT_XAVIER_NORMAL});
    parameters_.push_back({std::to_string(k) + ".bias", {widths[k + 1]}, TSR_INIT_ZERO});
    if (!last) hidden_width_ += widths[k + 1];
    widest_ = std::max(widest_, widths[k + 1]);
    products_ += widths[k] * widths[k + 1];
  }
}

int64_t Mlp::output_width(std::span<const int64_t> widths) const {
  if (widths.size() != 1 || (widths[0] != 0 && widths[0] != layers_.front().in())) {
    fail(TSR_INVALID_ARGUMENT, "mlp takes one input of ", layers_.front().in(), " values, not ",
         widths.size() == 1 ? std::to_string(widths[0]) + " values" : std::to_string(widths.size()) + " inputs");
  }
  return layers_.back().out();
}

float* Mlp::hidden_of(const Context& context, int64_t batch, size_t k) const {
  float* out = context.hidden.data();
  for (size_t i = 0; i < k; ++i) out += batch * layers_[i].out();
  return out;
}

void Mlp::forward(const tessera::sdk::ModuleForward& args, tsr_module_context** context) {
  const int64_t batch = batch_of(args.inputs, 1, "mlp");
  const float* x = matrix(args.inputs[0], batch, layers_.front().in(), "mlp's input");
  float* output = matrix(args.output, batch, layers_.back().out(), "mlp's output");
  parameter_data(args.parameters, parameters_, weights_);
  auto lease = contexts_.take();
  lease->hidden.at_least(host_, batch * hidden_width_);
  if (context == nullptr) return infer(batch, x, output, *lease);
  const ThreadScope threads(host_.num_threads());
  for (size_t k = 0; k < layers_.size(); ++k) {
    float* y = k + 1 == layers_.size() ? output : hidden_of(*lease, batch, k);
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
      float* to = k + 1 == layers_.size() ? output : hidden_of(memory, batch, k);
      loops_.affine({begin, end - begin, layers_[k].in(), layers_[k].out(), from, weights_[2 * k], weights_[2 * k + 1],
                     to, layers_[k].relu()});
      from = to;
    }
  });
}

void Mlp::backward(const tessera::sdk::ModuleBackward& args, tsr_module_context* context) {
  const int64_t batch = batch_of(args.inputs, 1, "mlp");
  const Context& kept = *contexts_.of(context);
  const float* input = matrix(args.inputs[0], batch, layers_.front().in(), "mlp's input");
  const float* y = matrix(args.output, batch, layers_.back().out(), "mlp's output");
  const float* dy = matrix(args.grad_output, batch, layers_.back().out(), "the gradient of mlp's output");
  float* grad_input = args.grad_inputs[0].data == nullptr
                          ? nullptr
                          : matrix(args.grad_inputs[0], batch, layers_.front().in(), "the gradient of mlp's input");
  parameter_data(args.parameters, parameters_, weights_);
  parameter_data(args.grad_parameters, parameters_, gradients_);
  float* dz = dz_.at_least(host_, batch * widest_);  // where a layer's is masked
  float* dx = dx_.at_least(host_, batch * widest_);
  const ThreadScope threads(host_.num_threads());
  for (size_t k = layers_.size(); k-- > 0;) {
    const Linear& layer = layers_[k];
    in_chunks(host_, layer.out(), 16, [&](int64_t first, int64_t last, int64_t) {
      loops_.mask_and_sum(batch, layer.out(), first, last, layer.relu() ? y : nullptr, dy, dz, gradients_[2 * k + 1]);
    });
    const float* x = k == 0 ? input : hidden_of(kept, batch, k - 1);
    layer.backward(batch, x, weights_[2 * k], layer.relu() ? dz : dy, k == 0 ? grad_input : dx, gradients_[2 * k]);
    y = x;
    dy = dx;
    std::swap(dx, dz);  // the next layer masks in place
  }
}

}  // namespace tessera_dense
