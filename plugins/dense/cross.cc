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
    if (low_rank_ > 0) matrices_.add(width_, low_rank_);
    matrices_.add(shape_.inner(), width_);
  }
}

void Cross::forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) {
  const int64_t batch = batch_of(args.inputs, 1, "cross");
  const float* x0 = matrix(args.inputs[0], batch, width_, "cross's input");
  float* output = matrix(args.outputs[0], batch, width_, "cross's output");
  take_weights(args.parameters);
  auto lease = contexts_.take();
  lease->kept.at_least(host_, shape_.kept_floats(batch));
  matrices_.transpose(host_, loops_, weights_);
  in_blocks(host_, batch, matrices_.block(), [&](int64_t begin, int64_t end, int64_t) {
    const OneThread alone;
    const int64_t rows = end - begin, at = begin * width_;
    const float* x = x0 + at;
    for (int64_t k = 0; k < layers_; ++k) {
      const Kept kept = shape_.kept(lease->kept.data(), batch, k);
      const float* in = x;
      if (low_rank_ > 0) {
        float* projected = kept.projected + begin * low_rank_;
        multiply(rows, width_, low_rank_, x, matrices_.transposed(down(k)), projected);
        in = projected;
      }
      multiply(rows, shape_.inner(), width_, in, matrices_.transposed(up(k)), kept.y + at);
      loops_.add_bias(rows, width_, biases_[static_cast<size_t>(k)], false, kept.y + at);
      float* next = (k + 1 == layers_ ? output : shape_.kept(lease->kept.data(), batch, k + 1).x) + at;
      loops_.multiply_add(rows * width_, x0 + at, kept.y + at, x, next);
      x = next;
    }
  });
  contexts_.hand_out(std::move(lease), context);
}

void Cross::backward(const tessera::sdk::ModuleCall& args, tsr_module_context* context) {
  const int64_t batch = batch_of(args.inputs, 1, "cross"), n = batch * width_;
  const Context& saved = *contexts_.of(context);
  const float* x0 = matrix(args.inputs[0], batch, width_, "cross's input");
  const float* grad = matrix(args.grad_outputs[0], batch, width_, "the gradient of cross's output");
  take_weights(args.parameters);
  parameter_data(args.grad_parameters, parameters(), parameters_);
  inner_.at_least(host_, batch * layers_ * (width_ + low_rank_));
  dx_.at_least(host_, n);
  dout_.at_least(host_, n);
  float* dx0 = args.grad_inputs[0].data == nullptr ? dx0_.at_least(host_, n)
                                                   : matrix(args.grad_inputs[0], batch, width_, "cross's gradient");
  list_gradients(batch, x0, saved);
  in_blocks(host_, batch, matrices_.block(), [&](int64_t begin, int64_t end, int64_t) {
    const OneThread alone;
    back_through({x0, grad, dx0, saved}, batch, begin, end);
  });
  matrices_.add_gradients(host_, loops_, batch, gradients_);
}

// Samples [begin, end) from the last layer to the first.
void Cross::back_through(const Way& way, int64_t batch, int64_t begin, int64_t end) const {
  const int64_t rows = end - begin, n = rows * width_, at = begin * width_;
  float *dout = dout_.data() + at, *dx = dx_.data() + at, *dx0 = way.dx0 + at;
  memcpy(dout, way.grad + at, sizeof(float) * static_cast<size_t>(n));
  memset(dx0, 0, sizeof(float) * static_cast<size_t>(n));
  for (int64_t k = layers_; k-- > 0;) {
    const Inner inside = inner(batch, k);
    float* dy = inside.dy + at;
    loops_.multiply(n, dout, way.x0 + at, dy);
    loops_.add_product(n, dout, shape_.kept(way.saved.kept.data(), batch, k).y + at, dx0);
    if (low_rank_ > 0) {
      float* dv = inside.dv + begin * low_rank_;
      multiply_back(rows, low_rank_, width_, dy, weights_[up(k)], dv);
      multiply_back(rows, width_, low_rank_, dv, weights_[down(k)], dx);
    } else {
      multiply_back(rows, width_, width_, dy, weights_[up(k)], dx);
    }
    loops_.add(n, dx, dout);  // the way around the layer
  }
  loops_.add(n, dout, dx0);
}

Cross::Inner Cross::inner(int64_t batch, int64_t k) const {
  float* dy = inner_.data() + k * batch * (width_ + low_rank_);
  return {dy, dy + batch * width_};
}

// `parameters_`: the gradients of the parameters.
void Cross::list_gradients(int64_t batch, const float* x0, const Context& saved) {
  gradients_.clear();
  for (int64_t k = 0; k < layers_; ++k) {
    const Kept kept = shape_.kept(saved.kept.data(), batch, k);
    const Inner inside = inner(batch, k);
    float* const* g = parameters_.data() + shape_.first_parameter(k);
    const float* x = k == 0 ? x0 : kept.x;
    if (low_rank_ > 0) gradients_.push_back({x, inside.dv, *g++, nullptr});
    gradients_.push_back({low_rank_ > 0 ? kept.projected : x, inside.dy, g[0], g[1]});
  }
}

void Cross::take_weights(std::span<const DLTensor> tensors) {
  parameter_data(tensors, parameters(), parameters_);
  weights_.clear();
  biases_.clear();
  for (int64_t k = 0; k < layers_; ++k) {
    float* const* p = parameters_.data() + shape_.first_parameter(k);
    if (low_rank_ > 0) weights_.push_back(*p++);
    weights_.push_back(p[0]);
    biases_.push_back(p[1]);
  }
}

}  // namespace tessera_dense
