#include "losses.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sequences.h"

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;
using tessera::sdk::Value;

// Checks the inputs from `first` on, each one value wide: at most one has floats (none unless `floats`), and at most
// one integers.
void check_columns(std::span<const Value> inputs, size_t first, bool floats, const char* layer, const char* what) {
  size_t of_floats = 0, of_integers = 0;
  for (size_t i = first; i < inputs.size(); ++i) {
    if (inputs[i].jagged || inputs[i].width > 1) fail(TSR_INVALID_ARGUMENT, layer, " takes ", what);
    ++(is_float(inputs[i].dtype) ? of_floats : of_integers);
  }
  if (of_floats > (floats ? 1 : 0) || of_integers > 1) fail(TSR_INVALID_ARGUMENT, layer, " takes ", what);
}

// Writes zeros to the gradients of the inputs from `first` on, which have labels, ids and the like.
void no_gradient(const ModuleCall& call, size_t first) {
  for (size_t i = first; i < call.grad_inputs.size(); ++i) {
    const DLTensor& t = call.grad_inputs[i];
    if (t.data != nullptr) std::fill_n(tessera::sdk::data_as<float>(t), tessera::sdk::numel(t), 0.0f);
  }
}

// The inputs of a loss of two values with the same width.
struct Pairs {
  int64_t batch, width;
  const float *x, *y;
  explicit Pairs(const ModuleCall& call) : batch(batch_of(call.inputs, 2, "mse")), width(call.inputs[0].shape[1]) {
    x = matrix(call.inputs[0], batch, width, "mse's prediction");
    y = matrix(call.inputs[1], batch, width, "mse's label");
  }
};

}  // namespace

std::vector<Value> SquaredError::outputs(std::span<const Value> inputs) const {
  const std::vector<int64_t> widths = tessera::sdk::dense_widths(inputs, "mse");
  if (widths.size() != 2)
    fail(TSR_INVALID_ARGUMENT, "mse takes a prediction and a label, not ", widths.size(), " inputs");
  if (widths[0] != widths[1])
    fail(TSR_INVALID_ARGUMENT, "mse takes a prediction and a label of one width, not of ", widths[0], " and ",
         widths[1], " values");
  return {Value{1}};
}

void SquaredError::compute(const ModuleCall& call) {
  const Pairs in(call);
  float* out = matrix(call.outputs[0], in.batch, 1, "mse's output");
  for (int64_t s = 0; s < in.batch; ++s) {
    double sum = 0;
    for (int64_t i = s * in.width; i < (s + 1) * in.width; ++i) {
      const double d = static_cast<double>(in.x[i]) - static_cast<double>(in.y[i]);
      sum += d * d;
    }
    out[s] = static_cast<float>(sum / static_cast<double>(in.width));
  }
}

void SquaredError::compute_back(const ModuleCall& call) {
  const Pairs in(call);
  const float* grad = matrix(call.grad_outputs[0], in.batch, 1, "the gradient of mse's output");
  float* dx = matrix_or_null(call.grad_inputs[0], in.batch, in.width, "the gradient of mse's prediction");
  float* dy = matrix_or_null(call.grad_inputs[1], in.batch, in.width, "the gradient of mse's label");
  for (int64_t i = 0; i < in.batch * in.width; ++i) {
    const float d = 2 * (in.x[i] - in.y[i]) * grad[i / in.width] / static_cast<float>(in.width);
    if (dx) dx[i] = d;
    if (dy) dy[i] = -d;
  }
}

SampledSoftmax::SampledSoftmax(const tessera::sdk::Setup& setup) : host_(setup.host) {
  tessera::sdk::joined_width(setup.options);
  const double temperature = setup.options.number("temperature", 1);
  if (!(temperature > 0)) fail(TSR_INVALID_ARGUMENT, "option \"temperature\" must be above 0, not ", temperature);
  scale_ = static_cast<float>(1 / temperature);
}

std::vector<Value> SampledSoftmax::outputs(std::span<const Value> inputs) const {
  constexpr const char* kWhat = "queries and items of one width, and then log_q (a float) and ids (an integer)";
  if (inputs.size() < 2) fail(TSR_INVALID_ARGUMENT, "sampled_softmax takes ", kWhat);
  const std::vector<int64_t> widths = tessera::sdk::dense_widths(inputs.first(2), "sampled_softmax");
  if (widths[0] != widths[1])
    fail(TSR_INVALID_ARGUMENT, "sampled_softmax takes queries and items of one width, not of ", widths[0], " and ",
         widths[1], " values");
  if (widths[0] == 1)
    fail(TSR_INVALID_ARGUMENT,
         "sampled_softmax takes queries and items of several values each, not a prediction and a "
         "label of one value: make it a layer over both towers, and \"product\" the loss of its head");
  check_columns(inputs, 2, true, "sampled_softmax", kWhat);
  return {Value{1}};
}

SampledSoftmax::Inputs SampledSoftmax::inputs_of(const ModuleCall& call) const {
  if (call.inputs.size() < 2 || call.inputs[0].ndim != 2)
    fail(TSR_INVALID_ARGUMENT, "sampled_softmax takes queries and items [batch, width]");
  const int64_t width = call.inputs[0].shape[1];
  Inputs in{call.batch,
            width,
            matrix(call.inputs[0], call.batch, width, "the queries"),
            matrix(call.inputs[1], call.batch, width, "the items"),
            nullptr,
            nullptr,
            nullptr};
  for (const DLTensor& t : call.inputs.subspan(2)) {
    if (is_float(t.dtype))
      in.log_q = matrix(t, call.batch, 1, "log_q");
    else
      in.ids = &t;
  }
  return in;
}

// The number of samples to process at once, chosen for about a million logits.
int64_t SampledSoftmax::block(int64_t batch) const {
  constexpr int64_t kLogits = 1 << 20;
  return std::max<int64_t>(1, std::min<int64_t>(256, kLogits / std::max<int64_t>(batch, 1)));
}

float* SampledSoftmax::logits(const Inputs& in, int64_t begin, int64_t end, float* to) const {
  multiply({'N', 'T', end - begin, in.batch, in.width, scale_, in.queries + begin * in.width, in.width, in.items,
            in.width, 0, to, in.batch});
  for (int64_t s = begin; s < end; ++s) {
    float* row = to + (s - begin) * in.batch;
    for (int64_t j = 0; in.log_q && j < in.batch; ++j) row[j] -= in.log_q[j];
    if (!in.ids) continue;
    const int64_t own = integer_at(*in.ids, s);
    for (int64_t j = 0; j < in.batch; ++j) {
      if (j != s && integer_at(*in.ids, j) == own) row[j] = -INFINITY;
    }
  }
  return to;
}

void SampledSoftmax::forward(const ModuleCall& call, tsr_module_context** context) {
  const Inputs in = inputs_of(call);
  float* out = matrix(call.outputs[0], in.batch, 1, "sampled_softmax's output");
  auto lease = contexts_.take();
  float* log_sums = lease->log_sums.at_least(host_, in.batch);
  const int64_t size = block(in.batch), room = size * in.batch;
  float* scratch = scratch_.at_least(host_, room * slots_of(host_, in.batch, size));
  in_blocks(host_, in.batch, size, [&](int64_t begin, int64_t end, int64_t slot) {
    const OneThread alone;
    const float* rows = logits(in, begin, end, scratch + slot * room);
    for (int64_t s = begin; s < end; ++s, rows += in.batch) {
      const float largest = *std::max_element(rows, rows + in.batch);
      double sum = 0;
      for (int64_t j = 0; j < in.batch; ++j) sum += std::exp(rows[j] - largest);
      log_sums[s] = largest + static_cast<float>(std::log(sum));
      out[s] = log_sums[s] - rows[s];
    }
  });
  contexts_.hand_out(std::move(lease), context);
}

void SampledSoftmax::backward(const ModuleCall& call, tsr_module_context* context) {
  if (nothing_comes_back(call)) return;
  Inputs in = inputs_of(call);
  in.log_sums = contexts_.of(context)->log_sums.data();
  const float* grad = matrix(call.grad_outputs[0], in.batch, 1, "the gradient of sampled_softmax's output");
  float* dqueries = matrix_or_null(call.grad_inputs[0], in.batch, in.width, "the gradient of the queries");
  float* ditems = matrix_or_null(call.grad_inputs[1], in.batch, in.width, "the gradient of the items");
  if (ditems) std::fill_n(ditems, in.batch * in.width, 0.0f);
  float* dlog_q = nullptr;
  for (size_t i = 2; i < call.inputs.size(); ++i) {
    if (is_float(call.inputs[i].dtype)) dlog_q = matrix_or_null(call.grad_inputs[i], in.batch, 1, "log_q's gradient");
  }
  if (dlog_q) std::fill_n(dlog_q, in.batch, 0.0f);
  const OneThread alone;
  const int64_t size = block(in.batch);
  float* scratch = scratch_.at_least(host_, size * in.batch);
  // Blocks run one after the other, so that gradients are added in this order.
  for (int64_t begin = 0; begin < in.batch; begin += size) {
    const int64_t rows = std::min(size, in.batch - begin);
    float* d = logits(in, begin, begin + rows, scratch);
    for (int64_t s = begin; s < begin + rows; ++s) {
      float* row = d + (s - begin) * in.batch;
      for (int64_t j = 0; j < in.batch; ++j) row[j] = grad[s] * std::exp(row[j] - in.log_sums[s]);
      row[s] -= grad[s];
      for (int64_t j = 0; dlog_q && j < in.batch; ++j) dlog_q[j] -= row[j];
    }
    if (dqueries) {
      multiply({'N', 'N', rows, in.width, in.batch, scale_, d, in.batch, in.items, in.width, 0,
                dqueries + begin * in.width, in.width});
    }
    if (ditems) {
      multiply({'T', 'N', in.batch, in.width, rows, scale_, d, in.batch, in.queries + begin * in.width, in.width, 1,
                ditems, in.width});
    }
  }
}

PairwiseLoss::PairwiseLoss(const tessera::sdk::Setup& setup) {
  tessera::sdk::joined_width(setup.options);
  hinge_ = setup.options.word("kind", {"logistic", "hinge"}) == 1;
  if (setup.options.has("margin") && !hinge_)
    fail(TSR_INVALID_ARGUMENT, "option \"margin\" belongs to the kind \"hinge\": \"logistic\" has none");
  const double margin = setup.options.number("margin", 1);
  if (!(margin > 0)) fail(TSR_INVALID_ARGUMENT, "option \"margin\" must be above 0, not ", margin);
  margin_ = static_cast<float>(margin);
}

std::vector<Value> PairwiseLoss::outputs(std::span<const Value> inputs) const {
  constexpr const char* kWhat = "values and labels, one for each sample, and then groups (an integer)";
  if (inputs.size() < 2) fail(TSR_INVALID_ARGUMENT, "pairwise_loss takes ", kWhat);
  for (const int64_t width : tessera::sdk::dense_widths(inputs.first(2), "pairwise_loss")) {
    if (width > 1) fail(TSR_INVALID_ARGUMENT, "pairwise_loss takes ", kWhat);
  }
  check_columns(inputs, 2, false, "pairwise_loss", kWhat);
  return {Value{1}};
}

template <class Body>
int64_t PairwiseLoss::each_pair(const ModuleCall& call, const Body& body) {
  const float* labels = matrix(call.inputs[1], call.batch, 1, "the labels");
  const auto group = [&](int64_t s) { return call.inputs.size() > 2 ? integer_at(call.inputs[2], s) : 0; };
  order_.resize(static_cast<size_t>(call.batch));
  std::iota(order_.begin(), order_.end(), int64_t{0});
  std::sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) {
    if (group(a) != group(b)) return group(a) < group(b);
    return labels[a] != labels[b] ? labels[a] < labels[b] : a < b;
  });
  int64_t pairs = 0;
  for (size_t first = 0, i = 0; i < order_.size(); ++i) {
    if (group(order_[i]) != group(order_[first])) first = i;
    for (size_t k = first; k < i && labels[order_[k]] < labels[order_[i]]; ++k, ++pairs) body(order_[i], order_[k]);
  }
  return pairs;
}

void PairwiseLoss::forward(const ModuleCall& call, tsr_module_context** context) {
  const float* x = matrix(call.inputs[0], call.batch, 1, "the values");
  float* out = matrix(call.outputs[0], call.batch, 1, "pairwise_loss's output");
  std::fill_n(out, call.batch, 0.0f);
  const int64_t pairs = each_pair(call, [&](int64_t larger, int64_t smaller) {
    const float z = x[larger] - x[smaller];
    out[larger] += hinge_ ? std::max(margin_ - z, 0.0f) : std::max(-z, 0.0f) + std::log1p(std::exp(-std::fabs(z)));
  });
  if (call.trains) paired(call, pairs);
  const float each = pairs > 0 ? static_cast<float>(call.batch) / static_cast<float>(pairs) : 0.0f;
  for (int64_t s = 0; s < call.batch; ++s) out[s] *= each;
  if (context) *context = reinterpret_cast<tsr_module_context*>(this);
}

void PairwiseLoss::backward(const ModuleCall& call, tsr_module_context*) {
  if (nothing_comes_back(call)) return;
  no_gradient(call, 1);
  float* dx = matrix_or_null(call.grad_inputs[0], call.batch, 1, "the gradient of the values");
  if (!dx) return;
  const float* x = matrix(call.inputs[0], call.batch, 1, "the values");
  const float* grad = matrix(call.grad_outputs[0], call.batch, 1, "the gradient of pairwise_loss's output");
  std::fill_n(dx, call.batch, 0.0f);
  const int64_t pairs = each_pair(call, [&](int64_t larger, int64_t smaller) {
    const float z = x[larger] - x[smaller];
    const float slope = -grad[larger] * (hinge_ ? (margin_ > z ? 1.0f : 0.0f) : 1 / (1 + std::exp(z)));
    dx[larger] += slope;
    dx[smaller] -= slope;
  });
  const float each = pairs > 0 ? static_cast<float>(call.batch) / static_cast<float>(pairs) : 0.0f;
  for (int64_t s = 0; s < call.batch; ++s) dx[s] *= each;
}

Bpr::Bpr(const tessera::sdk::Setup& setup) : PairwiseLoss(false, 0) { tessera::sdk::joined_width(setup.options); }

std::vector<Value> Bpr::outputs(std::span<const Value> inputs) const {
  if (inputs.size() == 2)
    fail(TSR_INVALID_ARGUMENT,
         "bpr compares the items of one user: set groups, a column of ids such as the user, for its head");
  return PairwiseLoss::outputs(inputs);
}

void Bpr::forward(const ModuleCall& call, tsr_module_context** context) {
  const float* labels = matrix(call.inputs[1], call.batch, 1, "the labels");
  for (int64_t s = 0; s < call.batch; ++s) {
    if (labels[s] != 0 && labels[s] != 1)
      fail(TSR_INVALID_ARGUMENT, "bpr takes the labels 0 and 1, but sample ", s, " of a batch has ", labels[s],
           ": give the label's column a threshold, or the head the loss pairwise_loss");
  }
  PairwiseLoss::forward(call, context);
}

void Bpr::paired(const ModuleCall& call, int64_t pairs) {
  constexpr int64_t kLarge = 64;
  constexpr int kMost = 10;
  if (pairs > 0) unpaired_ = 0;
  if (pairs > 0 || call.batch < kLarge || ++unpaired_ < kMost) return;
  fail(TSR_INVALID_ARGUMENT, "bpr found no two samples of one group with the labels 1 and 0 in ", kMost,
       " batches, so it learns nothing: sort the data by group and set data.shuffle = false, or enlarge data.batch");
}

}  // namespace tessera_dense
