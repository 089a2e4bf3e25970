#include "cross_mixture.h"

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::xavier_normal;

Activation expert_activation(tessera::sdk::Options& options) {
  const std::string name = options.string("activation", "relu");
  if (name == "relu") return Activation::kRelu;
  if (name == "sigmoid") return Activation::kSigmoid;
  if (name == "tanh") return Activation::kTanh;
  fail(TSR_INVALID_ARGUMENT, "option \"activation\" is \"", name, "\", but must be relu, sigmoid or tanh");
}

}  // namespace

MixtureCross::MixtureCross(const tessera::sdk::Setup& setup)
    : host_(setup.host),
      loops_(*choose_loops().of_rows),
      width_(setup.options.integer("width", tessera::sdk::joined_width(setup.options))),
      layers_(setup.options.integer("layers", 3)),
      experts_(setup.options.integer("experts", 4)),
      rank_(setup.options.integer("rank", 64)),
      stacked_(experts_ * rank_),
      f_(expert_activation(setup.options)),
      joined_(setup.host, "cross", width_) {
  if (width_ < 1) fail(TSR_INVALID_ARGUMENT, "option \"inputs\" must list its inputs' widths");
  if (layers_ < 1 || experts_ < 1 || rank_ < 1) {
    fail(TSR_INVALID_ARGUMENT, "options \"layers\", \"experts\" and \"rank\" must be above 0, not ", layers_, ", ",
         experts_, " and ", rank_);
  }
  for (int64_t k = 0; k < layers_; ++k) {
    const std::string name = std::to_string(k);
    parameters_.push_back({name + ".u.weight", {experts_, width_, rank_}, xavier_normal(width_, rank_)});
    parameters_.push_back({name + ".v.weight", {experts_, rank_, width_}, xavier_normal(rank_, width_)});
    parameters_.push_back({name + ".c.weight", {experts_, rank_, rank_}, xavier_normal(rank_, rank_)});
    parameters_.push_back({name + ".bias", {width_}});
  }
  if (experts_ > 1) parameters_.push_back({"gates.weight", {experts_, width_}, xavier_normal(1, width_)});
}

MixtureCross::Kept MixtureCross::kept(float* memory, int64_t batch, int64_t k) const {
  float* next = memory + k * kept_floats(batch);
  float* v = next + batch * width_;
  const int64_t n = batch * stacked_;
  return {next, v, v + n, v + 2 * n, v + 3 * n, v + 4 * n, v + 4 * n + batch * experts_};
}

MixtureCross::LayerWeights MixtureCross::layer(const std::vector<float*>& of, int64_t k) const {
  float* const* at = of.data() + 4 * k;
  return {at[0], at[1], at[2], at[3]};
}

void MixtureCross::forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) {
  float* output = matrix(args.outputs[0], args.batch, width_, "cross's output");
  parameter_data(args.parameters, parameters_, weights_);
  auto lease = contexts_.take();
  const float* x0 = joined_.rows(args, lease->joined);
  float* memory = lease->kept.at_least(host_, layers_ * kept_floats(args.batch));
  const int64_t block = std::max<int64_t>(16, kProductsWorthAThread / (layers_ * stacked_ * (2 * width_ + rank_)));
  in_blocks(host_, args.batch, block, [&](int64_t begin, int64_t end, int64_t) {
    const OneThread alone;
    const float* x = x0;
    for (int64_t k = 0; k < layers_; ++k) {
      Kept at = kept(memory, args.batch, k);
      if (k + 1 == layers_) at.next = output;
      forward_rows(x0, x, layer(weights_, k), at, begin, end - begin);
      x = at.next;
    }
  });
  contexts_.hand_out(std::move(lease), context);
}

void MixtureCross::forward_rows(const float* x0, const float* x, const LayerWeights& w, const Kept& kept, int64_t begin,
                                int64_t rows) const {
  const int64_t from = begin * width_, at = begin * stacked_;
  x0 += from;
  x += from;
  float *h = kept.h + at, *a = kept.a + at, *gates = kept.gates + begin * experts_, *sum = kept.sum + from;
  multiply({'N', 'T', rows, stacked_, width_, 1, x, width_, w.v, width_, 0, kept.v + at, stacked_});
  loops_.activate(f_, rows * stacked_, 0, kept.v + at, h);
  for (int64_t e = 0; e < experts_; ++e) {
    multiply({'N', 'T', rows, rank_, rank_, 1, h + e * rank_, stacked_, w.c + e * rank_ * rank_, rank_, 0,
              kept.c + at + e * rank_, stacked_});
  }
  loops_.activate(f_, rows * stacked_, 0, kept.c + at, a);
  if (experts_ > 1) {
    multiply({'N', 'T', rows, experts_, width_, 1, x, width_, weights_.back(), width_, 0, gates, experts_});
    loops_.softmax(rows, experts_, gates, gates);
  } else {
    std::fill_n(gates, rows, 1.0f);
  }
  for (int64_t s = 0; s < rows; ++s) {
    for (int64_t i = 0; i < stacked_; ++i) a[s * stacked_ + i] *= gates[s * experts_ + i / rank_];
    std::copy_n(w.b, width_, sum + s * width_);
  }
  for (int64_t e = 0; e < experts_; ++e) {
    multiply(
        {'N', 'T', rows, width_, rank_, 1, a + e * rank_, stacked_, w.u + e * width_ * rank_, rank_, 1, sum, width_});
  }
  float* next = kept.next + from;
  for (int64_t i = 0; i < rows * width_; ++i) next[i] = x0[i] * sum[i] + x[i];
}

void MixtureCross::backward(const tessera::sdk::ModuleCall& args, tsr_module_context* context) {
  if (nothing_comes_back(args)) return;
  const int64_t batch = args.batch, n = batch * width_;
  float* memory = contexts_.of(context)->kept.data();
  const float* x0 = joined_.rows_again(args, contexts_.of(context)->joined);
  parameter_data(args.parameters, parameters_, weights_);
  parameter_data(args.grad_parameters, parameters_, gradients_);
  float* wanted = joined_.gradient(args);
  Back back{x0, nullptr, dout_.at_least(host_, n), wanted ? wanted : dx0_.at_least(host_, n), {}};
  std::copy_n(matrix(args.grad_outputs[0], batch, width_, "the gradient of cross's output"), n, back.dout);
  std::fill_n(back.dx0, n, 0.0f);
  for (Floats* f : {&dc_, &dv_, &weighed_}) f->at_least(host_, batch * stacked_);
  dy_.at_least(host_, n);
  dgates_.at_least(host_, batch * experts_);
  for (int64_t k = layers_; k-- > 0;) {
    back.kept = kept(memory, batch, k);
    back.x = k == 0 ? x0 : kept(memory, batch, k - 1).next;
    backward_layer(back, batch, k);
  }
  if (!wanted) return;
  loops_.add_scaled(n, 1, back.dout, wanted);
  joined_.give(args);
}

void MixtureCross::backward_layer(const Back& back, int64_t batch, int64_t k) {
  const int64_t block = std::max<int64_t>(16, kProductsWorthAThread / (stacked_ * (2 * width_ + rank_)));
  in_blocks(host_, batch, block, [&](int64_t begin, int64_t end, int64_t) {
    const OneThread alone;
    backward_rows(back, layer(weights_, k), begin, end - begin);
  });
  add_weight_gradients(back, batch, k);
}

// Computes the gradients of the sum of u, of V x, of C h and of the gates' logits, which the weights' gradients need.
// The `a` that forward keeps is multiplied by its gate, which may be 0, so that f(C h) is computed again.
void MixtureCross::backward_rows(const Back& back, const LayerWeights& w, int64_t begin, int64_t rows) const {
  const int64_t from = begin * width_, at = begin * stacked_, n = rows * width_;
  const float *x0 = back.x0 + from, *gates = back.kept.gates + begin * experts_;
  float *dout = back.dout + from, *dy = dy_.data() + from, *dc = dc_.data() + at, *dv = dv_.data() + at;
  float *a = weighed_.data() + at, *dlogits = dgates_.data() + begin * experts_;
  for (int64_t i = 0; i < n; ++i) {
    dy[i] = dout[i] * x0[i];
    back.dx0[from + i] += dout[i] * back.kept.sum[from + i];
  }
  for (int64_t e = 0; e < experts_; ++e) {
    multiply(
        {'N', 'N', rows, rank_, width_, 1, dy, width_, w.u + e * width_ * rank_, rank_, 0, dc + e * rank_, stacked_});
  }
  loops_.activate(f_, rows * stacked_, 0, back.kept.c + at, a);
  for (int64_t s = 0; s < rows; ++s) {
    for (int64_t e = 0; e < experts_; ++e) {
      float* grad = dc + s * stacked_ + e * rank_;
      float sum = 0;
      for (int64_t i = 0; i < rank_; ++i) {
        sum += grad[i] * a[s * stacked_ + e * rank_ + i];
        grad[i] *= gates[s * experts_ + e];
      }
      dlogits[s * experts_ + e] = sum;
    }
  }
  loops_.activate_back(f_, rows * stacked_, 0, back.kept.c + at, dc, dc);
  for (int64_t e = 0; e < experts_; ++e) {
    multiply({'N', 'N', rows, rank_, rank_, 1, dc + e * rank_, stacked_, w.c + e * rank_ * rank_, rank_, 0,
              dv + e * rank_, stacked_});
  }
  loops_.activate_back(f_, rows * stacked_, 0, back.kept.v + at, dv, dv);
  multiply({'N', 'N', rows, width_, stacked_, 1, dv, stacked_, w.v, width_, 1, dout, width_});
  if (experts_ == 1) return;
  loops_.softmax_back(rows, experts_, gates, dlogits, dlogits);
  multiply({'N', 'N', rows, width_, experts_, 1, dlogits, experts_, weights_.back(), width_, 1, dout, width_});
}

// Each task computes the gradient of one expert's matrices over the whole batch, so that threads do not change results.
void MixtureCross::add_weight_gradients(const Back& back, int64_t batch, int64_t k) const {
  const LayerWeights g = layer(gradients_, k);
  const float* dy = dy_.data();
  one_by_one(host_, experts_ + 1, batch * stacked_ * width_ >= kProductsWorthAThread, [&](int64_t e) {
    const OneThread alone;
    if (e == experts_) {
      for (int64_t s = 0; s < batch; ++s) loops_.add_scaled(width_, 1, dy + s * width_, g.b);
      if (experts_ == 1) return;
      return multiply({'T', 'N', experts_, width_, batch, 1, dgates_.data(), experts_, back.x, width_, 1,
                       gradients_.back(), width_});
    }
    const int64_t at = e * rank_;
    multiply({'T', 'N', width_, rank_, batch, 1, dy, width_, back.kept.a + at, stacked_, 1, g.u + at * width_, rank_});
    multiply({'T', 'N', rank_, rank_, batch, 1, dc_.data() + at, stacked_, back.kept.h + at, stacked_, 1,
              g.c + at * rank_, rank_});
    multiply(
        {'T', 'N', rank_, width_, batch, 1, dv_.data() + at, stacked_, back.x, width_, 1, g.v + at * width_, width_});
  });
}

}  // namespace tessera_dense
