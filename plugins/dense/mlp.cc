#include "mlp.h"

#include "chain_layer.h"

namespace tessera_dense {

namespace {

std::unique_ptr<tessera::sdk::Module> make_mlp(const tessera::sdk::Setup& setup) {
  tessera::sdk::MlpLayers shape(setup.options);
  if (!shape.plain()) return std::make_unique<AnyMlp>(setup, shape);
  return std::make_unique<PlainMlp>(setup, std::move(shape));
}

}  // namespace

Mlp::Mlp(const tessera::sdk::Setup& setup) : EitherLayer(make_mlp(setup)) {}

PlainMlp::PlainMlp(const tessera::sdk::Setup& setup, tessera::sdk::MlpLayers shape)
    : host_(setup.host), loops_(choose_loops()), shape_(std::move(shape)), joined_(setup.host, "mlp", shape_.input()) {
  for (size_t k = 0; k < shape_.count(); ++k) {
    matrices_.add(shape_.in(k), shape_.out(k));
    products_ += shape_.in(k)*shape_.out(k);
  }
}

void PlainMlp::forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) {
  const int64_t batch = args.batch;
  const float* x = joined_.rows(args);
  float* output = matrix(args.outputs[0], batch, shape_.output(), "mlp's output");
  take_weights(args.parameters);
  auto lease = contexts_.take();
  lease->hidden.at_least(host_, batch * shape_.hidden_width());
  if (context == nullptr) return infer(batch, x, output, *lease);
  matrices_.transpose(host_, loops_, weights_);
  in_blocks(host_, batch, matrices_.block(), [&](int64_t begin, int64_t end, int64_t) {
    const OneThread alone;
    const float* from = x + begin * shape_.input();
    for (size_t k = 0; k < shape_.count(); ++k) {
      float* to = values(k, batch, output, *lease) + begin * shape_.out(k);
      multiply(end - begin, shape_.in(k), shape_.out(k), from, matrices_.transposed(k), to);
      loops_.add_bias(end - begin, shape_.out(k), biases_[k], shape_.relu(k), to);
      from = to;
    }
  });
  contexts_.hand_out(std::move(lease), context);
}

void PlainMlp::infer(int64_t batch, const float* x, float* output, const Context& memory) {
  constexpr int64_t kProducts = 256 << 10, kUnit = 4;
  // A sample's values do not depend on its block. The larger, the fewer times weights are read; some for each thread,
  // so that all end together.
  const int64_t blocks = host_.num_threads() == 1 ? 1 : 4 * int64_t{host_.num_threads()};
  const int64_t samples = std::max({(batch + blocks - 1) / blocks, kProducts / products_, kUnit});
  const int64_t block = (samples + kUnit - 1) / kUnit * kUnit;
  in_blocks(host_, batch, block, [&](int64_t begin, int64_t end, int64_t) {
    const float* from = x;
    for (size_t k = 0; k < shape_.count(); ++k) {
      float* to = values(k, batch, output, memory);
      loops_.affine(
          {begin, end - begin, shape_.in(k), shape_.out(k), from, weights_[k], biases_[k], to, shape_.relu(k)});
      from = to;
    }
  });
}

void PlainMlp::backward(const tessera::sdk::ModuleCall& args, tsr_module_context* context) {
  if (nothing_comes_back(args)) return;
  const int64_t batch = args.batch;
  const Context& kept = *contexts_.of(context);
  const float* input = joined_.rows(args);
  float* output = matrix(args.outputs[0], batch, shape_.output(), "mlp's output");
  const float* grad = matrix(args.grad_outputs[0], batch, shape_.output(), "the gradient of mlp's output");
  float* grad_input = joined_.gradient(args);
  take_weights(args.parameters);
  parameter_data(args.grad_parameters, parameters(), parameters_);
  const size_t last = shape_.count() - 1;
  float* dz = dz_.at_least(host_, batch * (shape_.hidden_width() + shape_.output()));
  gradients_.clear();
  for (size_t k = 0; k <= last; ++k) {
    const float* dy = k == last && !shape_.relu(k) ? grad : shape_.hidden(dz, batch, k);
    gradients_.push_back(
        {k == 0 ? input : values(k - 1, batch, output, kept), dy, parameters_[2 * k], parameters_[2 * k + 1]});
  }
  in_blocks(host_, batch, matrices_.block(), [&](int64_t begin, int64_t end, int64_t) {
    const OneThread alone;
    const float* dy = grad;  // before the ReLU
    for (size_t k = last + 1; k-- > 0;) {
      const int64_t in = shape_.in(k), out = shape_.out(k), rows = end - begin, at = begin * out;
      if (shape_.relu(k)) {
        float* masked = shape_.hidden(dz, batch, k);
        loops_.mask(rows * out, values(k, batch, output, kept) + at, dy + at, masked + at);
        dy = masked;
      }
      float* dx = k == 0 ? grad_input : shape_.hidden(dz, batch, k - 1);
      if (dx) multiply_back(rows, in, out, dy + at, weights_[k], dx + begin * in);
      dy = dx;
    }
  });
  matrices_.add_gradients(host_, loops_, batch, gradients_);
  if (grad_input) joined_.give(args);
}

void PlainMlp::take_weights(std::span<const DLTensor> tensors) {
  parameter_data(tensors, parameters(), parameters_);
  weights_.clear();
  biases_.clear();
  for (size_t k = 0; k < shape_.count(); ++k) {
    weights_.push_back(parameters_[2 * k]);
    biases_.push_back(parameters_[2 * k + 1]);
  }
}

// What layer `k` has put out.
float* PlainMlp::values(size_t k, int64_t batch, float* output, const Context& kept) const {
  return k + 1 == shape_.count() ? output : shape_.hidden(kept.hidden.data(), batch, k);
}

}  // namespace tessera_dense
