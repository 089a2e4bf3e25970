#include "label_losses.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "joined.h"
#include "sequences.h"

namespace tessera_dense {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;
using tessera::sdk::Setup;
using tessera::sdk::Value;

std::vector<Value> LabelLoss::outputs(std::span<const Value> inputs) const {
  if (inputs.size() < 2) fail(TSR_INVALID_ARGUMENT, loss_, " takes a prediction and a label");
  const std::vector<int64_t> widths = tessera::sdk::dense_widths(inputs.first(2), loss_);
  if (width_ > 0 ? widths[0] != width_ && widths[0] != 0 : widths[0] == 1)
    fail(TSR_INVALID_ARGUMENT, loss_, " takes a prediction of ", width_ > 0 ? std::to_string(width_) : "2 or more",
         width_ == 1 ? " value" : " values", " for each sample, not of ", widths[0]);
  if (widths[1] > 1) fail(TSR_INVALID_ARGUMENT, loss_, " takes a label of one value, not of ", widths[1]);
  if (groups_ && inputs.size() == 2)
    fail(TSR_INVALID_ARGUMENT, loss_, " compares the samples of one group: set groups, a column of ids, for its head");
  if (inputs.size() > (groups_ ? 3u : 2u))
    fail(TSR_INVALID_ARGUMENT, loss_, " takes a prediction and a label", groups_ ? ", and one column of groups" : "");
  if (groups_) check_integers(inputs[2], nullptr, loss_, "groups");
  return {Value{1}};
}

LabelLoss::Samples LabelLoss::samples_of(const ModuleCall& call) const {
  if (call.inputs.size() != (groups_ ? 3u : 2u) || call.inputs[0].ndim != 2)
    fail(TSR_INVALID_ARGUMENT, loss_, " takes a prediction [batch, width] and a label [batch, 1]");
  const int64_t width = call.inputs[0].shape[1];
  return {call.batch, width, matrix(call.inputs[0], call.batch, width, "the prediction"),
          matrix(call.inputs[1], call.batch, 1, "the labels"), groups_ ? &call.inputs[2] : nullptr};
}

void LabelLoss::check_binary(const Samples& in) const {
  for (int64_t s = 0; s < in.count; ++s) {
    if (in.labels[s] != 0 && in.labels[s] != 1)
      fail(TSR_INVALID_ARGUMENT, loss_, " takes the labels 0 and 1, but sample ", s, " of a batch has ", in.labels[s],
           ": give the label's column a threshold, or the head another loss, such as mse");
  }
}

void LabelLoss::forward(const ModuleCall& call, tsr_module_context** context) {
  values(samples_of(call), matrix(call.outputs[0], call.batch, 1, "the output of a loss"));
  if (context) *context = reinterpret_cast<tsr_module_context*>(this);
}

void LabelLoss::backward(const ModuleCall& call, tsr_module_context*) {
  if (nothing_comes_back(call)) return;
  for (size_t i = 1; i < call.grad_inputs.size(); ++i) clear_gradient(call, i);
  const Samples in = samples_of(call);
  float* out = matrix_or_null(call.grad_inputs[0], in.count, in.width, "the gradient of the prediction");
  if (out) gradient(in, matrix(call.grad_outputs[0], in.count, 1, "the gradient of a loss"), out);
}

Hinge::Hinge(const Setup& setup) : LabelLoss("hinge", 1, false) {
  tessera::sdk::joined_width(setup.options);
  const double margin = setup.options.number("margin", 1);
  if (!(margin > 0)) fail(TSR_INVALID_ARGUMENT, "option \"margin\" must be above 0, not ", margin);
  margin_ = static_cast<float>(margin);
}

void Hinge::values(const Samples& in, float* out) {
  check_binary(in);
  for (int64_t s = 0; s < in.count; ++s)
    out[s] = std::max(0.0f, margin_ - (in.labels[s] == 1 ? in.values[s] : -in.values[s]));
}

void Hinge::gradient(const Samples& in, const float* grad, float* out) {
  for (int64_t s = 0; s < in.count; ++s) {
    const float t = in.labels[s] == 1 ? 1.0f : -1.0f;
    out[s] = margin_ - t * in.values[s] > 0 ? -t * grad[s] : 0.0f;
  }
}

Contrastive::Contrastive(const Setup& setup) : LabelLoss("contrastive", 1, false) {
  tessera::sdk::joined_width(setup.options);
  distance_ = setup.options.word("kind", {"similarity", "distance"}) == 1;
  const double margin = setup.options.number("margin", distance_ ? 1 : 0);
  if (distance_ ? !(margin > 0) : !(margin >= -1 && margin < 1))
    fail(TSR_INVALID_ARGUMENT, "option \"margin\" of ", distance_ ? "distance" : "similarity", " must be ",
         distance_ ? "above 0" : "at least -1 and below 1", ", not ", margin);
  margin_ = static_cast<float>(margin);
}

std::vector<Value> Contrastive::outputs(std::span<const Value> inputs) const {
  std::vector<Value> out = LabelLoss::outputs(inputs);
  out[0].falls_with_label = distance_;
  return out;
}

void Contrastive::values(const Samples& in, float* out) {
  check_binary(in);
  for (int64_t s = 0; s < in.count; ++s) {
    const float x = in.values[s], apart = std::max(0.0f, distance_ ? margin_ - x : x - margin_);
    if (distance_)
      out[s] = in.labels[s] == 1 ? x * x : apart * apart;
    else
      out[s] = in.labels[s] == 1 ? 1 - x : apart;
  }
}

void Contrastive::gradient(const Samples& in, const float* grad, float* out) {
  for (int64_t s = 0; s < in.count; ++s) {
    const float x = in.values[s], apart = std::max(0.0f, distance_ ? margin_ - x : x - margin_);
    float slope = apart > 0 ? 1.0f : 0.0f;
    if (distance_)
      slope = in.labels[s] == 1 ? 2 * x : -2 * apart;
    else if (in.labels[s] == 1)
      slope = -1;
    out[s] = slope * grad[s];
  }
}

SoftmaxCrossEntropy::SoftmaxCrossEntropy(const Setup& setup)
    : LabelLoss("softmax_cross_entropy", 0, false),
      weights_(setup.options.numbers("class_weights", {})),
      smoothing_(setup.options.number("label_smoothing", 0)) {
  tessera::sdk::joined_width(setup.options);
  for (const double w : weights_) {
    if (!(w >= 0) || !std::isfinite(w))
      fail(TSR_INVALID_ARGUMENT, "option \"class_weights\" must list numbers of at least 0, not ", w);
  }
  if (!weights_.empty() && std::all_of(weights_.begin(), weights_.end(), [](double w) { return w == 0; }))
    fail(TSR_INVALID_ARGUMENT,
         "option \"class_weights\" has only zeros, so nothing would be learnt: give one class a weight");
  if (!(smoothing_ >= 0 && smoothing_ < 1))
    fail(TSR_INVALID_ARGUMENT, "option \"label_smoothing\" must be at least 0 and below 1, not ", smoothing_);
}

std::vector<Value> SoftmaxCrossEntropy::outputs(std::span<const Value> inputs) const {
  std::vector<Value> out = LabelLoss::outputs(inputs);
  if (!weights_.empty() && inputs[0].width != 0 && inputs[0].width != std::ssize(weights_))
    fail(TSR_INVALID_ARGUMENT, "option \"class_weights\" has ", weights_.size(), " numbers, but there are ",
         inputs[0].width, " classes: give each one");
  return out;
}

size_t SoftmaxCrossEntropy::label(const Samples& in, int64_t sample) const {
  const float label = in.labels[sample];
  if (!(label >= 0 && label < static_cast<float>(in.width)) || label != std::floor(label))
    fail(TSR_INVALID_ARGUMENT, loss_, " takes the number of a class for a label, from 0 to ", in.width - 1,
         ", but sample ", sample, " of a batch has ", label);
  return static_cast<size_t>(label);
}

double SoftmaxCrossEntropy::sample(const Samples& in, int64_t s, double grad, float* out) const {
  const float* x = in.values + s * in.width;
  const double largest = *std::max_element(x, x + in.width);
  double sum = 0;
  for (int64_t c = 0; c < in.width; ++c) sum += std::exp(x[c] - largest);
  const double log_sum = largest + std::log(sum);
  const size_t at = label(in, s);
  double loss = 0, all = 0;  // all: the sum of the factors of -log p
  for (int64_t c = 0; c < in.width; ++c) {
    const auto k = static_cast<size_t>(c);
    const double factor = weight(k) * (smoothing_ / static_cast<double>(in.width) + (k == at ? 1 - smoothing_ : 0.0));
    loss += factor * (log_sum - x[c]);
    all += factor;
    if (out) out[c] = static_cast<float>(-grad * factor);
  }
  for (int64_t c = 0; out && c < in.width; ++c) out[c] += static_cast<float>(grad * all * std::exp(x[c] - log_sum));
  return loss;
}

void SoftmaxCrossEntropy::values(const Samples& in, float* out) {
  for (int64_t s = 0; s < in.count; ++s) out[s] = static_cast<float>(sample(in, s, 0, nullptr));
}

void SoftmaxCrossEntropy::gradient(const Samples& in, const float* grad, float* out) {
  for (int64_t s = 0; s < in.count; ++s) sample(in, s, grad[s], out + s * in.width);
}

Jrc::Jrc(const Setup& setup) : LabelLoss("jrc", 2, true), alpha_(setup.options.number("alpha", 0.5)) {
  tessera::sdk::joined_width(setup.options);
  if (!(alpha_ >= 0 && alpha_ <= 1)) fail(TSR_INVALID_ARGUMENT, "option \"alpha\" must be from 0 to 1, not ", alpha_);
}

template <class Body>
void Jrc::each_group(const Samples& in, const Body& body) {
  order_.resize(static_cast<size_t>(in.count));
  std::iota(order_.begin(), order_.end(), int64_t{0});
  const auto group = [&](int64_t s) { return integer_at(*in.groups, s); };
  std::sort(order_.begin(), order_.end(),
            [&](int64_t a, int64_t b) { return group(a) != group(b) ? group(a) < group(b) : a < b; });
  for (size_t first = 0, last; first < order_.size(); first = last) {
    for (last = first + 1; last < order_.size() && group(order_[last]) == group(order_[first]);) ++last;
    body(first, last);
  }
}

namespace {

// log(sum of exp(value(i))) for i in [first, last).
template <class Of>
double log_sum_exp(size_t first, size_t last, const Of& value) {
  double largest = -INFINITY, sum = 0;
  for (size_t i = first; i < last; ++i) largest = std::max<double>(largest, value(i));
  for (size_t i = first; i < last; ++i) sum += std::exp(value(i) - largest);
  return largest + std::log(sum);
}

}  // namespace

void Jrc::values(const Samples& in, float* out) {
  check_binary(in);
  each_group(in, [&](size_t first, size_t last) {
    for (const int y : {0, 1}) {
      const auto value = [&](size_t i) { return double{in.values[2 * order_[i] + y]}; };
      const double among = log_sum_exp(first, last, value);
      for (size_t i = first; i < last; ++i) {
        const int64_t s = order_[i];
        if (in.labels[s] != static_cast<float>(y)) continue;
        const double own = log_sum_exp(0, 2, [&](size_t k) { return double{in.values[2 * s + static_cast<int>(k)]}; });
        out[s] = static_cast<float>(alpha_ * (own - value(i)) + (1 - alpha_) * (among - value(i)));
      }
    }
  });
}

void Jrc::gradient(const Samples& in, const float* grad, float* out) {
  each_group(in, [&](size_t first, size_t last) {
    for (const int y : {0, 1}) {
      const auto value = [&](size_t i) { return double{in.values[2 * order_[i] + y]}; };
      const double among = log_sum_exp(first, last, value);
      double all = 0;  // the sum of the gradients of the samples with this label
      for (size_t i = first; i < last; ++i) all += in.labels[order_[i]] == static_cast<float>(y) ? grad[order_[i]] : 0;
      for (size_t i = first; i < last; ++i) {
        const int64_t s = order_[i];
        const double g = grad[s], own = in.labels[s] == static_cast<float>(y) ? g : 0;
        const double p = 1 / (1 + std::exp(double{in.values[2 * s + 1 - y]} - value(i)));
        out[2 * s + y] =
            static_cast<float>(alpha_ * (g * p - own) + (1 - alpha_) * (all * std::exp(value(i) - among) - own));
      }
    }
  });
}

}  // namespace tessera_dense
