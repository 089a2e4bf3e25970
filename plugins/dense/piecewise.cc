#include "piecewise.h"

#include <algorithm>
#include <cmath>

namespace tessera_dense {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;
using tessera::sdk::Value;

Piecewise::Piecewise(const tessera::sdk::Setup& setup)
    : at_(setup.options.numbers("at", {})), values_(setup.options.numbers("values", {})) {
  tessera::sdk::joined_width(setup.options);
  if (at_.empty() || at_.size() != values_.size())
    fail(TSR_INVALID_ARGUMENT, "options \"at\" and \"values\" must list as many numbers, at least one, not ",
         at_.size(), " and ", values_.size());
  for (size_t k = 0; k < at_.size(); ++k) {
    if (!std::isfinite(at_[k]) || !std::isfinite(values_[k]) || (k > 0 && !(at_[k - 1] < at_[k])))
      fail(TSR_INVALID_ARGUMENT, "option \"at\" must list finite numbers in ascending order");
  }
}

std::vector<Value> Piecewise::outputs(std::span<const Value> inputs) const {
  const std::vector<int64_t> widths = tessera::sdk::dense_widths(inputs, "piecewise");
  if (widths.size() != 1) fail(TSR_INVALID_ARGUMENT, "piecewise takes one input, not ", widths.size());
  return {Value{widths[0]}};
}

void Piecewise::compute(const ModuleCall& call) {
  batch_of(call.inputs, 1, "piecewise");
  const int64_t n = tessera::sdk::numel(call.inputs[0]);
  const float* x = tessera::sdk::elements<float>(call.inputs[0], "the input").data();
  float* y = tessera::sdk::elements<float>(call.outputs[0], "piecewise's output").data();
  for (int64_t i = 0; i < n; ++i) {
    const auto k = static_cast<size_t>(std::upper_bound(at_.begin(), at_.end(), x[i]) - at_.begin());
    if (k == 0 || k == at_.size()) {
      y[i] = static_cast<float>(values_[k == 0 ? 0 : k - 1]);
      continue;
    }
    const double part = (x[i] - at_[k - 1]) / (at_[k] - at_[k - 1]);
    y[i] = static_cast<float>(values_[k - 1] + part * (values_[k] - values_[k - 1]));
  }
}

void Piecewise::compute_back(const ModuleCall& call) {
  const DLTensor& wanted = call.grad_inputs[0];
  if (wanted.data == nullptr) return;
  const int64_t n = tessera::sdk::numel(call.inputs[0]);
  const float* x = tessera::sdk::elements<float>(call.inputs[0], "the input").data();
  const float* dy = tessera::sdk::elements<float>(call.grad_outputs[0], "the gradient").data();
  float* dx = tessera::sdk::elements<float>(wanted, "the gradient of the input").data();
  for (int64_t i = 0; i < n; ++i) {
    const auto k = static_cast<size_t>(std::upper_bound(at_.begin(), at_.end(), x[i]) - at_.begin());
    const bool between = k > 0 && k < at_.size();
    const double slope = between ? (values_[k] - values_[k - 1]) / (at_[k] - at_[k - 1]) : 0;
    dx[i] = static_cast<float>(slope * dy[i]);
  }
}

}  // namespace tessera_dense
