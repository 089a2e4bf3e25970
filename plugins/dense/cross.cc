#include "cross.h"

#include "cross_mixture.h"

namespace tessera_dense {
namespace {

std::unique_ptr<tessera::sdk::Module> make_cross(const tessera::sdk::Setup& setup) {
  const std::string kind = setup.options.string("kind", "");
  (void)read_precision(setup);  // the kinds "vector" and "mixture" accept it, and compute in float32
  if (kind == "vector" && setup.options.has("rank"))
    tessera::sdk::fail(TSR_INVALID_ARGUMENT, "option \"rank\" belongs to the kinds low_rank and mixture, ",
                       "not to \"vector\"");
  if (kind == "vector") return std::make_unique<VectorCross>(setup);
  if (kind == "mixture") return std::make_unique<MixtureCross>(setup);
  if (kind != "" && kind != "full" && kind != "low_rank") {
    tessera::sdk::fail(TSR_INVALID_ARGUMENT, "option \"kind\" is \"", kind,
                       "\", but must be full, low_rank, vector or mixture");
  }
  return std::make_unique<MatrixCross>(setup);
}

}  // namespace

Cross::Cross(const tessera::sdk::Setup& setup) : EitherLayer(make_cross(setup)) {}

MatrixCross::MatrixCross(const tessera::sdk::Setup& setup)
    : host_(setup.host),
      loops_(choose_loops()),
      shape_(setup.options),
      described_(shape_.parameters()),
      width_(shape_.width()),
      layers_(shape_.count()),
      low_rank_(shape_.low_rank()),
      joined_(setup.host, "cross", width_),
      matrices_(setup.host, read_precision(setup)) {
  for (int64_t k = 0; k < layers_; ++k) {
    if (low_rank_ > 0) matrices_.add(width_, low_rank_);
    matrices_.add(shape_.inner(), width_);
  }
  mark_int8(read_precision(setup), described_);
}

// The inputs of layers stay in the caches: backward computes them again. Without a backward, so do W x + b and V x.
void MatrixCross::forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) {
  const int64_t batch = args.batch, block = matrices_.block(batch), slots = slots_of(host_, batch, block);
  const bool infers = context == nullptr;
  float* output = matrix(args.outputs[0], batch, width_, "cross's output");
  take_weights(args.parameters);
  auto lease = contexts_.take();
  const float* x0 = joined_.place(args, lease->joined);
  float* const memory = lease->kept.at_least(host_, (infers ? slots * block : layers_ * batch) * (width_ + low_rank_));
  between_.at_least(host_, slots * 2 * block * width_);
  matrices_.prepare(loops_, weights_);
  in_blocks(host_, batch, block, [&](int64_t begin, int64_t end, int64_t slot) {
    const OneThread alone;
    const int64_t rows = end - begin, at = begin * width_, first = infers ? 0 : begin;
    const float* x = x0 + at;
    joined_.join(args, lease->joined, begin, end);
    for (int64_t k = 0; k < layers_; ++k) {
      const Kept kept = infers ? kept_of(memory, block, slot) : kept_of(memory, batch, k);
      const float* in = x;
      if (low_rank_ > 0) {
        float* projected = kept.projected + first * low_rank_;
        matrices_.multiply(loops_, down(k), rows, x, width_, projected, low_rank_);
        in = projected;
      }
      float* y = kept.y + first * width_;
      matrices_.multiply(loops_, up(k), rows, in, shape_.inner(), y, width_);
      float* next = k + 1 == layers_ ? output + at : between_.data() + (2 * slot + k % 2) * block * width_;
      loops_.cross(rows, width_, biases_[static_cast<size_t>(k)], x0 + at, x, y, next);
      x = next;
    }
  });
  contexts_.hand_out(std::move(lease), context);
}

void MatrixCross::backward(const tessera::sdk::ModuleCall& args, tsr_module_context* context) {
  if (nothing_comes_back(args)) return;
  const int64_t batch = args.batch;
  const Context& saved = *contexts_.of(context);
  const float* x0 = joined_.rows_again(args, saved.joined);
  const float* grad = matrix(args.grad_outputs[0], batch, width_, "the gradient of cross's output");
  take_weights(args.parameters);
  parameter_data(args.grad_parameters, parameters(), parameters_);
  matrices_.start_gradients(batch);
  for (int64_t first = 0, rows; first < batch; first += rows) {
    rows = matrices_.part(batch - first);
    inner_.at_least(host_, rows * layers_ * (width_ + low_rank_));
    dout_.at_least(host_, rows * width_);
    between_.at_least(host_, (layers_ - 1) * rows * width_);
    float* const wanted = joined_.gradient(args, first, rows);
    float* const dx0 = wanted ? wanted : dx0_.at_least(host_, rows * width_);
    const Way way = {x0, grad, dx0, saved, batch, first, rows};
    list_gradients(way);
    in_blocks(host_, rows, matrices_.block(rows), [&](int64_t begin, int64_t end, int64_t) {
      const OneThread alone;
      back_through(way, begin, end);
      if (wanted) joined_.give(args, first + begin, first + end, first);
      matrices_.take_rows(loops_, rows, begin, end, gradients_);
    });
    matrices_.add_gradients(loops_, rows, gradients_);
  }
}

// Computes the gradients of rows [begin, end) of the part, from the last layer to the first.
void MatrixCross::back_through(const Way& way, int64_t begin, int64_t end) const {
  const int64_t rows = end - begin, n = rows * width_, at = (way.first + begin) * width_;
  float *dout = dout_.data() + begin * width_, *dx0 = way.dx0 + begin * width_;
  const auto y_of = [&](int64_t k) { return kept_of(way.saved.kept.data(), way.batch, k).y + at; };
  const float* x = way.x0 + at;
  for (int64_t k = 0; k + 1 < layers_; ++k) {
    float* const next = between_.data() + (k * way.rows + begin) * width_;
    loops_.cross_again(n, way.x0 + at, x, y_of(k), next);
    x = next;
  }
  for (int64_t k = layers_; k-- > 0;) {
    const Inner inside = inner(way.rows, k);
    float* dy = inside.dy + begin * width_;
    const bool first = k + 1 == layers_;
    loops_.cross_back({n, first ? way.grad + at : dout, way.x0 + at, y_of(k), dy, dx0, first ? dout : nullptr});
    // dout already has the gradient that bypasses the layer; the layer's own is added to it.
    if (low_rank_ > 0) {
      float* dv = inside.dv + begin * low_rank_;
      matrices_.multiply_back(loops_, up(k), rows, dy, width_, dv, low_rank_, false);
      matrices_.multiply_back(loops_, down(k), rows, dv, low_rank_, dout, width_, true);
    } else {
      matrices_.multiply_back(loops_, up(k), rows, dy, width_, dout, width_, true);
    }
  }
  loops_.add(n, dout, dx0);
}

MatrixCross::Kept MatrixCross::kept_of(float* memory, int64_t rows, int64_t k) const {
  float* y = memory + k * rows * (width_ + low_rank_);
  return {y, y + rows * width_};
}

MatrixCross::Inner MatrixCross::inner(int64_t rows, int64_t k) const {
  float* dy = inner_.data() + k * rows * (width_ + low_rank_);
  return {dy, dy + rows * width_};
}

// Sets gradients_. At this point `parameters_` points to the gradients of the parameters.
void MatrixCross::list_gradients(const Way& way) {
  gradients_.clear();
  for (int64_t k = 0; k < layers_; ++k) {
    const Kept kept = kept_of(way.saved.kept.data(), way.batch, k);
    const Inner inside = inner(way.rows, k);
    float* const* g = parameters_.data() + shape_.first_parameter(k);
    const float* x = k == 0 ? way.x0 + way.first * width_ : between_.data() + (k - 1) * way.rows * width_;
    const float* in = x;
    if (low_rank_ > 0) {
      gradients_.push_back({x, width_, inside.dv, low_rank_, *g++, nullptr});
      in = kept.projected + way.first * low_rank_;
    }
    gradients_.push_back({in, shape_.inner(), inside.dy, width_, g[0], g[1]});
  }
}

void MatrixCross::take_weights(std::span<const DLTensor> tensors) {
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

VectorCross::VectorCross(const tessera::sdk::Setup& setup)
    : host_(setup.host),
      loops_(*choose_loops().of_rows),
      joined_(setup.host, "cross", setup.options.integer("width", tessera::sdk::joined_width(setup.options))),
      layers_(setup.options.integer("layers", 3)) {
  const int64_t width = joined_.width();
  if (width < 1) tessera::sdk::fail(TSR_INVALID_ARGUMENT, "option \"inputs\" must list its inputs' widths");
  if (layers_ < 1) tessera::sdk::fail(TSR_INVALID_ARGUMENT, "option \"layers\" must be above 0, not ", layers_);
  for (int64_t k = 0; k < layers_; ++k) {
    parameters_.push_back({std::to_string(k) + ".weight", {width}, tessera::sdk::xavier_normal(1, width)});
    parameters_.push_back({std::to_string(k) + ".bias", {width}});
  }
}

void VectorCross::forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) {
  const int64_t width = joined_.width(), n = args.batch * width;
  float* output = matrix(args.outputs[0], args.batch, width, "cross's output");
  parameter_data(args.parameters, parameters_, weights_);
  auto lease = contexts_.take();
  const float *x0 = joined_.rows(args, lease->joined), *x = x0;
  float* kept = lease->kept.at_least(host_, (layers_ - 1) * n + layers_ * args.batch);
  float* dots = kept + (layers_ - 1) * n;
  for (int64_t k = 0; k < layers_; ++k, dots += args.batch) {
    const float *weight = weights_[2 * static_cast<size_t>(k)], *bias = weights_[2 * static_cast<size_t>(k) + 1];
    float* next = k + 1 == layers_ ? output : kept + k * n;
    for (int64_t s = 0; s < args.batch; ++s) {
      const int64_t at = s * width;
      dots[s] = loops_.dot(width, x + at, weight);
      std::copy_n(x + at, width, next + at);
      loops_.add_scaled(width, dots[s], x0 + at, next + at);
      loops_.add_scaled(width, 1, bias, next + at);
    }
    x = next;
  }
  contexts_.hand_out(std::move(lease), context);
}

void VectorCross::backward(const tessera::sdk::ModuleCall& args, tsr_module_context* context) {
  if (nothing_comes_back(args)) return;
  const int64_t width = joined_.width(), n = args.batch * width;
  const float* x0 = joined_.rows_again(args, contexts_.of(context)->joined);
  const float* grad = matrix(args.grad_outputs[0], args.batch, width, "the gradient of cross's output");
  const float* kept = contexts_.of(context)->kept.data();
  parameter_data(args.parameters, parameters_, weights_);
  parameter_data(args.grad_parameters, parameters_, gradients_);
  float* dx = grad_.at_least(host_, n);  // the gradient of a layer's output, later of its input
  std::copy_n(grad, n, dx);
  float* dx0 = joined_.gradient(args);
  if (dx0) std::fill_n(dx0, n, 0.0f);
  for (int64_t k = layers_; k-- > 0;) {
    const size_t at_weight = 2 * static_cast<size_t>(k);
    const float *x = k == 0 ? x0 : kept + (k - 1) * n, *dots = kept + (layers_ - 1) * n + k * args.batch;
    for (int64_t s = 0; s < args.batch; ++s) {
      const int64_t at = s * width;
      const float along = loops_.dot(width, dx + at, x0 + at);  // gradient of x_k . k_k
      loops_.add_scaled(width, along, x + at, gradients_[at_weight]);
      loops_.add_scaled(width, 1, dx + at, gradients_[at_weight + 1]);
      if (dx0) loops_.add_scaled(width, dots[s], dx + at, dx0 + at);
      loops_.add_scaled(width, along, weights_[at_weight], dx + at);
    }
  }
  if (!dx0) return;
  loops_.add_scaled(n, 1, dx, dx0);
  joined_.give(args);
}

}  // namespace tessera_dense
