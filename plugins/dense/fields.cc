#include "fields.h"

#include "chain_layer.h"

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;
using tessera::sdk::Setup;
using tessera::sdk::Value;

constexpr float kSlope = 0.01f;  // slope of leaky_relu below 0

const float* field_input(const ModuleCall& call, size_t i) {
  return matrix(call.inputs[i], call.batch, call.inputs[i].shape[1], "a layer's input");
}
float* field_gradient(const ModuleCall& call, size_t i) {
  return matrix_or_null(call.grad_inputs[i], call.batch, call.inputs[i].shape[1], "the gradient of an input");
}
float* field_output(const ModuleCall& call) {
  return matrix(call.outputs[0], call.batch, call.outputs[0].shape[1], "a layer's output");
}
const float* output_gradient(const ModuleCall& call) {
  return matrix(call.grad_outputs[0], call.batch, call.grad_outputs[0].shape[1], "the gradient of an output");
}

std::vector<int64_t> two_widths(std::span<const Value> inputs, const char* layer) {
  std::vector<int64_t> widths = tessera::sdk::dense_widths(inputs, layer);
  if (widths.size() != 2) fail(TSR_INVALID_ARGUMENT, layer, " takes two inputs, not ", widths.size());
  return widths;
}

int64_t above_zero(const Setup& setup, const char* name, int64_t otherwise) {
  const int64_t value = setup.options.integer(name, otherwise);
  if (value < 1) fail(TSR_INVALID_ARGUMENT, "option \"", name, "\" must be above 0, not ", value);
  return value;
}

}  // namespace

FieldLayer::FieldLayer(const Setup& setup, const char* layer)
    : host_(setup.host), layer_(layer), loops_(*choose_loops().of_rows), dim_(setup.options.integer("dim", 0)) {
  if (dim_ < 1) fail(TSR_INVALID_ARGUMENT, "option \"dim\" must be the number of values of a field, above 0");
}

int64_t FieldLayer::fields_of(int64_t width) const {
  if (width % dim_ != 0)
    fail(TSR_INVALID_ARGUMENT, layer_, " takes fields of ", dim_, " values (its \"dim\"), and ", width,
         " values are no multiple of that");
  return width / dim_;
}

// ---- field_linear

FieldLinear::FieldLinear(const Setup& setup)
    : FieldLayer(setup, "field_linear"),
      fields_(above_zero(setup, "fields", 0)),
      from_(fields_of(needed_width(setup.options, "field_linear"))),
      joined_(setup.host, "field_linear", from_ * dim_) {
  prepare_products();
  parameters_.push_back({"weight", {fields_, from_}, tessera::sdk::xavier_normal(fields_, from_)});
  if (setup.options.flag("bias", false)) parameters_.push_back({"bias", {fields_}});
}

std::vector<Value> FieldLinear::outputs(std::span<const Value> inputs) const {
  joined_.width_of(inputs);
  return {Value{fields_ * dim_}};
}

void FieldLinear::compute(const ModuleCall& call) {
  const float* x = joined_.rows(call);
  float* y = field_output(call);
  parameter_data(call.parameters, parameters_, pointers_);
  const int64_t block = std::max<int64_t>(16, kProductsWorthAThread / (fields_ * from_ * dim_));
  in_blocks(host_, call.batch, block, [&](int64_t begin, int64_t end, int64_t) {
    const OneThread alone;
    for (int64_t s = begin; s < end; ++s) {
      float* to = y + s * fields_ * dim_;
      multiply({'N', 'N', fields_, dim_, from_, 1, pointers_[0], from_, x + s * from_ * dim_, dim_, 0, to, dim_});
      for (int64_t i = 0; parameters_.size() > 1 && i < fields_ * dim_; ++i) to[i] += pointers_[1][i / dim_];
    }
  });
}

void FieldLinear::compute_back(const ModuleCall& call) {
  const float *x = joined_.rows(call), *dy = output_gradient(call);
  float* dx = joined_.gradient(call);
  parameter_data(call.parameters, parameters_, pointers_);
  parameter_data(call.grad_parameters, parameters_, gradients_);
  const OneThread alone;
  for (int64_t s = 0; s < call.batch; ++s) {
    const float *from = x + s * from_ * dim_, *grad = dy + s * fields_ * dim_;
    multiply({'N', 'T', fields_, from_, dim_, 1, grad, dim_, from, dim_, 1, gradients_[0], from_});
    if (dx)
      multiply({'T', 'N', from_, dim_, fields_, 1, pointers_[0], from_, grad, dim_, 0, dx + s * from_ * dim_, dim_});
    for (int64_t i = 0; parameters_.size() > 1 && i < fields_ * dim_; ++i) gradients_[1][i / dim_] += grad[i];
  }
  if (dx) joined_.give(call);
}

// ---- field_products

FieldProducts::FieldProducts(const Setup& setup)
    : FieldLayer(setup, "field_products"), later_(setup.options.flag("later", false)) {
  tessera::sdk::joined_width(setup.options);
}

int64_t FieldProducts::pairs_of(int64_t x, int64_t y) const {
  if (!later_) return x * y;
  if (x != y || x < 2)
    fail(TSR_INVALID_ARGUMENT,
         "field_products with \"later\" takes two inputs of the same number of fields, at least 2,", " not of ", x,
         " and ", y);
  return x * (x - 1) / 2;
}

std::vector<Value> FieldProducts::outputs(std::span<const Value> inputs) const {
  const std::vector<int64_t> widths = two_widths(inputs, layer_);
  if (widths[0] == 0 || widths[1] == 0) return {Value{0}};  // not known yet
  return {Value{pairs_of(fields_of(widths[0]), fields_of(widths[1])) * dim_}};
}

void FieldProducts::compute(const ModuleCall& call) {
  const int64_t a = call.inputs[0].shape[1], b = call.inputs[1].shape[1], fields = fields_of(a), others = fields_of(b);
  const int64_t width = pairs_of(fields, others) * dim_;
  const float *x = field_input(call, 0), *y = field_input(call, 1);
  float* out = field_output(call);
  in_blocks(host_, call.batch, std::max<int64_t>(16, kProductsWorthAThread / width), [&](auto begin, auto end, auto) {
    for (int64_t s = begin; s < end; ++s) {
      for_pairs(fields, others, [&](int64_t i, int64_t j, int64_t k) {
        loops_.multiply(dim_, x + s * a + i * dim_, y + s * b + j * dim_, 1, out + s * width + k * dim_);
      });
    }
  });
}

void FieldProducts::compute_back(const ModuleCall& call) {
  const int64_t a = call.inputs[0].shape[1], b = call.inputs[1].shape[1], fields = fields_of(a), others = fields_of(b);
  const int64_t width = pairs_of(fields, others) * dim_;
  const float *x = field_input(call, 0), *y = field_input(call, 1), *grad = output_gradient(call);
  float *dx = field_gradient(call, 0), *dy = field_gradient(call, 1);
  if (dx) std::fill_n(dx, call.batch * a, 0.0f);
  if (dy) std::fill_n(dy, call.batch * b, 0.0f);
  in_blocks(host_, call.batch, std::max<int64_t>(16, kProductsWorthAThread / width), [&](auto begin, auto end, auto) {
    for (int64_t s = begin; s < end; ++s) {
      for_pairs(fields, others, [&](int64_t i, int64_t j, int64_t k) {
        const int64_t at = s * a + i * dim_, row = s * b + j * dim_;
        const float* g = grad + s * width + k * dim_;
        for (int64_t d = 0; dx && d < dim_; ++d) dx[at + d] += g[d] * y[row + d];
        for (int64_t d = 0; dy && d < dim_; ++d) dy[row + d] += g[d] * x[at + d];
      });
    }
  });
}

// ---- field_sum

FieldSum::FieldSum(const Setup& setup)
    : FieldLayer(setup, "field_sum"),
      factor_(setup.options.flag("mean", false) ? 1.0f / static_cast<float>(dim_) : 1.0f),
      joined_(setup.host, "field_sum", tessera::sdk::joined_width(setup.options)) {}

std::vector<Value> FieldSum::outputs(std::span<const Value> inputs) const {
  return {Value{fields_of(joined_.width_of(inputs))}};
}

void FieldSum::compute(const ModuleCall& call) {
  const int64_t rows = call.batch * call.outputs[0].shape[1];
  const float* x = joined_.rows(call);
  float* y = field_output(call);
  for (int64_t r = 0; r < rows; ++r, x += dim_) y[r] = factor_ * std::accumulate(x, x + dim_, 0.0f);
}

void FieldSum::compute_back(const ModuleCall& call) {
  const int64_t rows = call.batch * call.grad_outputs[0].shape[1];
  const float* dy = output_gradient(call);
  float* dx = joined_.gradient(call);
  if (dx == nullptr) return;
  for (int64_t r = 0; r < rows; ++r) std::fill_n(dx + r * dim_, dim_, factor_ * dy[r]);
  joined_.give(call);
}

// ---- field_scale

FieldScale::FieldScale(const Setup& setup) : FieldLayer(setup, "field_scale") {
  tessera::sdk::joined_width(setup.options);
}

std::vector<Value> FieldScale::outputs(std::span<const Value> inputs) const {
  const std::vector<int64_t> widths = two_widths(inputs, layer_);
  if (widths[0] != 0 && widths[1] != 0 && fields_of(widths[0]) != widths[1])
    fail(TSR_INVALID_ARGUMENT, "field_scale takes fields and a value for each, and ", fields_of(widths[0]),
         " fields are not ", widths[1], " values");
  return {Value{widths[0]}};
}

void FieldScale::compute(const ModuleCall& call) {
  const float *x = field_input(call, 0), *factors = field_input(call, 1);
  float* y = field_output(call);
  const int64_t rows = call.batch * call.inputs[1].shape[1];
  for (int64_t r = 0; r < rows; ++r) loops_.scale(dim_, factors[r], x + r * dim_, y + r * dim_);
}

void FieldScale::compute_back(const ModuleCall& call) {
  const float *x = field_input(call, 0), *factors = field_input(call, 1), *dy = output_gradient(call);
  float *dx = field_gradient(call, 0), *dfactors = field_gradient(call, 1);
  const int64_t rows = call.batch * call.inputs[1].shape[1];
  for (int64_t r = 0; r < rows; ++r) {
    if (dx) loops_.scale(dim_, factors[r], dy + r * dim_, dx + r * dim_);
    if (dfactors) dfactors[r] = loops_.dot(dim_, dy + r * dim_, x + r * dim_);
  }
}

// ---- numeric_embedding

NumericEmbedding::NumericEmbedding(const Setup& setup)
    : FieldLayer(setup, "numeric_embedding"),
      buckets_(above_zero(setup, "buckets", 16)),
      temperature_(static_cast<float>(setup.options.number("temperature", 1))),
      skip_(static_cast<float>(setup.options.number("skip", 1))),
      joined_(setup.host, "numeric_embedding", needed_width(setup.options, "numeric_embedding")) {
  if (!(temperature_ > 0)) fail(TSR_INVALID_ARGUMENT, "option \"temperature\" must be above 0, not ", temperature_);
  const int64_t n = joined_.width();
  parameters_.push_back({"weight", {n, buckets_}, tessera::sdk::xavier_normal(buckets_, 1)});
  parameters_.push_back({"mix.weight", {n, buckets_, buckets_}, tessera::sdk::xavier_normal(buckets_, buckets_)});
  parameters_.push_back({"rows", {n, buckets_, dim_}, tessera::sdk::xavier_normal(buckets_, dim_)});
}

std::vector<Value> NumericEmbedding::outputs(std::span<const Value> inputs) const {
  return {Value{joined_.width_of(inputs) * dim_}};
}

void NumericEmbedding::weigh(int64_t j, float x, float* h, float* p) const {
  loops_.scale(buckets_, x, pointers_[0] + j * buckets_, h);
  loops_.activate(Activation::kLeakyRelu, buckets_, kSlope, h, h);
  const float* mix = pointers_[1] + j * buckets_ * buckets_;
  for (int64_t k = 0; k < buckets_; ++k)
    p[k] = (loops_.dot(buckets_, mix + k * buckets_, h) + skip_ * h[k]) / temperature_;
  loops_.softmax(1, buckets_, p, p);
}

void NumericEmbedding::compute(const ModuleCall& call) {
  const int64_t n = joined_.width();
  const float* x = joined_.rows(call);
  float *y = field_output(call), *h = scratch_.at_least(host_, 2 * buckets_), *p = h + buckets_;
  parameter_data(call.parameters, parameters_, pointers_);
  for (int64_t i = 0; i < call.batch * n; ++i, y += dim_) {
    weigh(i % n, x[i], h, p);
    const float* rows = pointers_[2] + i % n * buckets_ * dim_;
    loops_.scale(dim_, p[0], rows, y);
    for (int64_t k = 1; k < buckets_; ++k) loops_.add_scaled(dim_, p[k], rows + k * dim_, y);
  }
}

void NumericEmbedding::compute_back(const ModuleCall& call) {
  const int64_t n = joined_.width();
  const float *x = joined_.rows(call), *dy = output_gradient(call);
  float* dx = joined_.gradient(call);
  float* h = scratch_.at_least(host_, 4 * buckets_);
  float *p = h + buckets_, *dp = p + buckets_, *dh = dp + buckets_;
  parameter_data(call.parameters, parameters_, pointers_);
  parameter_data(call.grad_parameters, parameters_, gradients_);
  for (int64_t i = 0; i < call.batch * n; ++i, dy += dim_) {
    const int64_t j = i % n, square = j * buckets_ * buckets_, rows = j * buckets_ * dim_;
    weigh(j, x[i], h, p);
    for (int64_t k = 0; k < buckets_; ++k) {
      dp[k] = loops_.dot(dim_, dy, pointers_[2] + rows + k * dim_);
      loops_.add_scaled(dim_, p[k], dy, gradients_[2] + rows + k * dim_);
    }
    loops_.softmax_back(1, buckets_, p, dp, dp);
    loops_.scale(buckets_, 1 / temperature_, dp, dp);
    loops_.scale(buckets_, skip_, dp, dh);
    for (int64_t k = 0; k < buckets_; ++k) {
      loops_.add_scaled(buckets_, dp[k], h, gradients_[1] + square + k * buckets_);
      loops_.add_scaled(buckets_, dp[k], pointers_[1] + square + k * buckets_, dh);
    }
    // h can stand for leaky_relu's input, because it has the same sign.
    loops_.activate_back(Activation::kLeakyRelu, buckets_, kSlope, h, dh, dh);
    loops_.add_scaled(buckets_, x[i], dh, gradients_[0] + j * buckets_);
    if (dx) dx[i] = loops_.dot(buckets_, dh, pointers_[0] + j * buckets_);
  }
  if (dx) joined_.give(call);
}

}  // namespace tessera_dense
