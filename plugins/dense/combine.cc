#include "combine.h"

#include <string.h>

#include <cmath>

#include "loops.h"

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;
using tessera::sdk::Value;

constexpr const char* kInput = "an input or its gradient";

const float* input(const ModuleCall& call, size_t i) {
  return matrix(call.inputs[i], call.batch, call.inputs[i].shape[1], kInput);
}
// NULL if the gradient is not wanted.
float* gradient(const ModuleCall& call, size_t i) {
  return matrix_or_null(call.grad_inputs[i], call.batch, call.inputs[i].shape[1], kInput);
}

}  // namespace

void Concat::compute(const ModuleCall& call) {
  const int64_t width = joined_.width_of(call);
  float* y = matrix(call.outputs[0], call.batch, width, "concat's output");
  for (size_t i = 0; i < call.inputs.size(); ++i) input(call, i);  // checks its shape
  in_row_blocks(host_, call.batch, width, [&](int64_t begin, int64_t end) {
    float* to = y + begin * width;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const int64_t w = call.inputs[i].shape[1];
      copy_columns(end - begin, w, input(call, i) + begin * w, w, to, width);
      to += w;
    }
  });
}

void Concat::compute_back(const ModuleCall& call) {
  const int64_t width = joined_.width_of(call);
  const float* grad = matrix(call.grad_outputs[0], call.batch, width, "the gradient of concat's output");
  for (size_t i = 0; i < call.inputs.size(); ++i) gradient(call, i);  // checks its shape
  in_row_blocks(host_, call.batch, width, [&](int64_t begin, int64_t end) {
    const float* from = grad + begin * width;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const int64_t w = call.inputs[i].shape[1];
      if (float* const to = gradient(call, i)) copy_columns(end - begin, w, from, width, to + begin * w, w);
      from += w;
    }
  });
}

Split::Split(const tessera::sdk::Setup& setup)
    : host_(setup.host),
      widths_(setup.options.integers("widths", {})),
      joined_(setup.host, "split_columns", tessera::sdk::joined_width(setup.options)) {
  for (const int64_t width : widths_) {
    if (width < 1) fail(TSR_INVALID_ARGUMENT, "option \"widths\" must list widths above 0, not ", width);
  }
  if (widths_.empty()) fail(TSR_INVALID_ARGUMENT, "option \"widths\" must list the width of each output");
  check_width(joined_.width());
}

// The core creates a layer again without "inputs" if it was refused with them, so outputs() checks the width as well.
void Split::check_width(int64_t width) const {
  const int64_t all = std::accumulate(widths_.begin(), widths_.end(), int64_t{0});
  if (width > 0 && width != all)
    fail(TSR_INVALID_ARGUMENT, "option \"widths\" must list the width of each output, together as wide as the inputs, ",
         width, " values, not ", all);
}

std::vector<Value> Split::outputs(std::span<const Value> inputs) const {
  const int64_t width = joined_.width_of(inputs);
  if (std::all_of(inputs.begin(), inputs.end(), [](const Value& value) { return value.width > 0; })) check_width(width);
  std::vector<Value> out;
  for (const int64_t one : widths_) out.push_back(Value{one});
  return out;
}

void Split::forward(const ModuleCall& call, tsr_module_context** context) {
  const float* rows = joined_.rows(call);
  const int64_t width = joined_.width_of(call);
  int64_t at = 0;
  for (size_t k = 0; k < widths_.size(); ++k) {
    float* to = matrix(call.outputs[k], call.batch, widths_[k], "split's output");
    copy_columns(host_, call.batch, widths_[k], rows + at, width, to, widths_[k]);
    at += widths_[k];
  }
  if (context) *context = reinterpret_cast<tsr_module_context*>(this);
}

void Split::backward(const ModuleCall& call, tsr_module_context*) {
  float* to = joined_.gradient(call);
  if (!to) return;
  const int64_t width = joined_.width_of(call);
  int64_t at = 0;
  for (size_t k = 0; k < widths_.size(); ++k) {
    const float* from = matrix_or_null(call.grad_outputs[k], call.batch, widths_[k], "a gradient of split");
    if (from) copy_columns(host_, call.batch, widths_[k], from, widths_[k], to + at, width);
    for (int64_t s = 0; !from && s < call.batch; ++s) std::fill_n(to + s * width + at, widths_[k], 0.0f);
    at += widths_[k];
  }
  joined_.give(call);
}

Elementwise::Elementwise(const tessera::sdk::Setup& setup, const char* layer)
    : host_(setup.host), layer_(layer), loops_(choose_loops()) {
  tessera::sdk::joined_width(setup.options);  // the value is not needed, because the inputs give their widths
}

std::vector<Value> Elementwise::outputs(std::span<const Value> inputs) const {
  const std::vector<int64_t> widths = tessera::sdk::dense_widths(inputs, layer_);
  if (widths.empty()) fail(TSR_INVALID_ARGUMENT, layer_, " takes at least one input, not 0");
  for (const int64_t w : widths) {
    if (w != widths[0]) {
      fail(TSR_INVALID_ARGUMENT, layer_, " takes inputs of one width, not of ", widths[0], " and ", w,
           " values: put the layer \"projection\" before it");
    }
  }
  return {Value{widths[0]}};
}

int64_t Elementwise::size(const ModuleCall& call) const {
  const int64_t n = tessera::sdk::numel(call.outputs[0]);
  for (const DLTensor& t : call.inputs) {
    if (tessera::sdk::numel(t) != n) fail(TSR_INVALID_ARGUMENT, layer_, " takes inputs as large as its output");
  }
  return n;
}

void Sum::compute(const ModuleCall& call) {
  const int64_t n = size(call);
  float* to = matrix(call.outputs[0], call.batch, call.outputs[0].shape[1], "sum's output");
  in_blocks(host_, n, kValuesWorthAThread, [&](int64_t begin, int64_t end, int64_t) {
    std::copy(input(call, 0) + begin, input(call, 0) + end, to + begin);
    for (size_t k = 1; k < call.inputs.size(); ++k) loops_.add(end - begin, input(call, k) + begin, to + begin);
  });
}

void Sum::compute_back(const ModuleCall& call) {
  const int64_t n = size(call);
  const float* grad =
      matrix(call.grad_outputs[0], call.batch, call.outputs[0].shape[1], "the gradient of sum's output");
  in_blocks(host_, n, kValuesWorthAThread, [&](int64_t begin, int64_t end, int64_t) {
    for (size_t k = 0; k < call.inputs.size(); ++k) {
      if (float* to = gradient(call, k)) std::copy(grad + begin, grad + end, to + begin);
    }
  });
}

namespace {

// to = the product of `first` and all inputs except input `without`.
void multiply_all(tessera::sdk::Host host, const RowLoops& loops, const ModuleCall& call, int64_t n, const float* first,
                  size_t without, float* to) {
  in_blocks(host, n, kValuesWorthAThread, [&](int64_t begin, int64_t end, int64_t) {
    const float* from = first + begin;
    for (size_t k = 0; k < call.inputs.size(); ++k) {
      if (k == without) continue;
      loops.multiply(end - begin, from, input(call, k) + begin, 1, to + begin);
      from = to + begin;
    }
    if (from == first + begin) std::copy(from, from + (end - begin), to + begin);
  });
}

}  // namespace

void Hadamard::compute(const ModuleCall& call) {
  const int64_t n = size(call);
  float* to = matrix(call.outputs[0], call.batch, call.outputs[0].shape[1], "product's output");
  multiply_all(host_, *loops_.of_rows, call, n, input(call, 0), 0, to);
}

// Multiplies the other inputs; dividing the product would fail if an input is 0.
void Hadamard::compute_back(const ModuleCall& call) {
  const int64_t n = size(call);
  const float* grad =
      matrix(call.grad_outputs[0], call.batch, call.outputs[0].shape[1], "the gradient of product's output");
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    if (float* to = gradient(call, k)) multiply_all(host_, *loops_.of_rows, call, n, grad, k, to);
  }
}

// Let s be the sum of softplus(-x). The product is exp(-s), and its logit is -ln(exp(s) - 1). s is a double, because a
// float would lose the small terms of a small s.
void LogitProduct::compute(const ModuleCall& call) {
  const int64_t n = size(call);
  float* to = matrix(call.outputs[0], call.batch, call.outputs[0].shape[1], "logit_product's output");
  for (int64_t i = 0; i < n; ++i) {
    double s = 0;
    for (size_t k = 0; k < call.inputs.size(); ++k) {
      const double x = input(call, k)[i];
      s += x > 0 ? std::log1p(std::exp(-x)) : std::log1p(std::exp(x)) - x;
    }
    to[i] = static_cast<float>(s > 30 ? -s : -std::log(std::expm1(std::max(s, 1e-30))));
  }
}

// The derivative with respect to x is sigmoid(-x) / (1 - product).
void LogitProduct::compute_back(const ModuleCall& call) {
  const int64_t n = size(call), width = call.outputs[0].shape[1];
  const float* y = matrix(call.outputs[0], call.batch, width, "logit_product's output");
  const float* grad = matrix(call.grad_outputs[0], call.batch, width, "the gradient of logit_product's output");
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    const float* x = input(call, k);
    float* to = gradient(call, k);
    for (int64_t i = 0; to && i < n; ++i) {
      const double rest = 1 / (1 + std::exp(static_cast<double>(y[i])));  // 1 - product
      const double other = 1 / (1 + std::exp(static_cast<double>(x[i])));
      to[i] = static_cast<float>(static_cast<double>(grad[i]) * other / std::max(rest, 1e-30));
    }
  }
}

Matmul::Matmul(const tessera::sdk::Setup& setup)
    : loops_(*choose_loops().of_rows),
      dim_(setup.options.integer("dim", 0)),
      transposed_(setup.options.flag("transposed", false)) {
  tessera::sdk::joined_width(setup.options);
  if (dim_ < 1) fail(TSR_INVALID_ARGUMENT, "option \"dim\" must be the dimension to sum over, above 0");
}

Matmul::Shape Matmul::shape_of(std::span<const int64_t> widths) const {
  if (widths.size() != 2) fail(TSR_INVALID_ARGUMENT, "matmul takes two inputs, not ", widths.size());
  for (const int64_t w : widths) {
    if (w % dim_ != 0)
      fail(TSR_INVALID_ARGUMENT, "matmul takes inputs of a multiple of ", dim_, " values (its \"dim\"), not ", w);
  }
  return {widths[0] / dim_, widths[1] / dim_};
}

Matmul::Shape Matmul::shape_of(const ModuleCall& call) const {
  if (call.inputs.size() != 2) fail(TSR_INVALID_ARGUMENT, "matmul takes two inputs, not ", call.inputs.size());
  const int64_t widths[] = {call.inputs[0].shape[1], call.inputs[1].shape[1]};
  return shape_of(widths);
}

std::vector<Value> Matmul::outputs(std::span<const Value> inputs) const {
  const Shape shape = shape_of(tessera::sdk::dense_widths(inputs, "matmul"));
  return {Value{shape.rows * shape.columns}};
}

void Matmul::compute(const ModuleCall& call) {
  const auto [rows, columns] = shape_of(call);
  const float *a = input(call, 0), *b = input(call, 1);
  float* out = matrix(call.outputs[0], call.batch, rows * columns, "matmul's output");
  std::fill_n(out, call.batch * rows * columns, 0.0f);
  for (int64_t s = 0; s < call.batch; ++s, a += rows * dim_, b += dim_ * columns, out += rows * columns) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; transposed_ && c < columns; ++c)
        out[r * columns + c] = loops_.dot(dim_, a + r * dim_, b + c * dim_);
      for (int64_t d = 0; !transposed_ && d < dim_; ++d)
        loops_.add_scaled(columns, a[r * dim_ + d], b + d * columns, out + r * columns);
    }
  }
}

void Matmul::compute_back(const ModuleCall& call) {
  const auto [rows, columns] = shape_of(call);
  const float *a = input(call, 0), *b = input(call, 1);
  const float* grad = matrix(call.grad_outputs[0], call.batch, rows * columns, "the gradient of matmul's output");
  float *da = gradient(call, 0), *db = gradient(call, 1);
  if (da) std::fill_n(da, call.batch * rows * dim_, 0.0f);
  if (db) std::fill_n(db, call.batch * dim_ * columns, 0.0f);
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t of_a = s * rows * dim_, of_b = s * dim_ * columns;
    for (int64_t r = 0; r < rows; ++r) {
      const float* g = grad + (s * rows + r) * columns;
      for (int64_t c = 0; transposed_ && c < columns; ++c) {
        const int64_t at = of_a + r * dim_, row = of_b + c * dim_;
        if (da) loops_.add_scaled(dim_, g[c], b + row, da + at);
        if (db) loops_.add_scaled(dim_, g[c], a + at, db + row);
      }
      for (int64_t d = 0; !transposed_ && d < dim_; ++d) {
        const int64_t at = of_a + r * dim_ + d, row = of_b + d * columns;
        if (da) da[at] += loops_.dot(columns, g, b + row);
        if (db) loops_.add_scaled(columns, a[at], g, db + row);
      }
    }
  }
}

Fm::Fm(const tessera::sdk::Setup& setup)
    : host_(setup.host),
      loops_(*choose_loops().of_rows),
      dim_(setup.options.integer("dim", 1)),
      joined_(setup.host, "fm", tessera::sdk::joined_width(setup.options)) {
  if (dim_ < 1) fail(TSR_INVALID_ARGUMENT, "option \"dim\" must be above 0, not ", dim_);
  check_width(joined_.width());
}

void Fm::check_width(int64_t width) const {
  if (width % dim_ != 0)
    fail(TSR_INVALID_ARGUMENT, "fm takes vectors of ", dim_, " values (its \"dim\"), but ", width,
         " are not a multiple");
}

std::vector<Value> Fm::outputs(std::span<const Value> inputs) const {
  check_width(joined_.width_of(inputs));
  return {Value{1}};
}

void Fm::compute(const ModuleCall& call) {
  const float* x = joined_.rows(call);
  float* out = matrix(call.outputs[0], call.batch, 1, "fm's output");
  const int64_t width = joined_.width_of(call);
  check_width(width);
  float* scratch = sums_.at_least(host_, 2 * dim_);
  for (int64_t s = 0; s < call.batch; ++s) out[s] = loops_.pairs(width / dim_, dim_, x + s * width, scratch);
}

void Fm::compute_back(const ModuleCall& call) {
  float* dx = joined_.gradient(call);
  if (!dx) return;
  const float* x = joined_.rows(call);
  const float* grad = matrix(call.grad_outputs[0], call.batch, 1, "the gradient of fm's output");
  const int64_t width = joined_.width_of(call);
  float* scratch = sums_.at_least(host_, 2 * dim_);
  for (int64_t s = 0; s < call.batch; ++s)
    loops_.pairs_back(width / dim_, dim_, grad[s], x + s * width, dx + s * width, scratch);
  joined_.give(call);
}

}  // namespace tessera_dense
