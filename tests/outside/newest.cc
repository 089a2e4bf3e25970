// SPDX-License-Identifier: Apache-2.0 OR MIT
// outside.newest: a layer with a sequence as output. It keeps the last `count` rows of each sample, multiplied by
// weights of their place from the end. Options: "inputs", the width, which a model gives, and "count".
#include <tessera/sdk/module.h>

#include <algorithm>

using namespace tessera::sdk;

class Newest : public Module {
 public:
  explicit Newest(Options& options) : count_(options.integer("count", 3)) {
    const std::vector<int64_t> inputs = options.integers("inputs", {4});
    if (inputs.size() != 1 || inputs[0] < 1) fail(TSR_INVALID_ARGUMENT, "outside.newest takes one sequence");
    if (count_ < 1) fail(TSR_INVALID_ARGUMENT, "option \"count\" is ", count_, ", but must be 1 or more");
    width_ = inputs[0];
    parameters_ = {{"weight", {count_, width_}, constant(1)}};
  }
  const std::vector<Parameter>& parameters() const override { return parameters_; }
  std::vector<Value> outputs(std::span<const Value> inputs) const override {
    if (inputs.size() != 1 || !inputs[0].jagged || !same_dtype(inputs[0].dtype, dtype_of<float>()) ||
        (inputs[0].width != width_ && inputs[0].width != 0))
      fail(TSR_INVALID_ARGUMENT, "outside.newest takes one sequence of rows of ", width_, " values");
    return {Value::own_rows(width_)};
  }
  void max_rows(const ModuleCall& call, std::span<int64_t> rows) const override {
    rows[0] = std::min(call.inputs[0].shape[0], call.batch * count_);
  }

  void forward(const ModuleCall& call, tsr_module_context** context) override {
    const float *x = data_as<float>(call.inputs[0]), *w = data_as<float>(call.parameters[0]);
    float* y = data_as<float>(call.outputs[0]);
    int64_t* offsets = data_as<int64_t>(call.output_offsets[0]);
    offsets[0] = 0;
    for (int64_t s = 0; s < call.batch; ++s) {
      const int64_t end = data_as<int64_t>(call.offsets[0])[s + 1], kept = kept_of(call, s);
      offsets[s + 1] = offsets[s] + kept;
      for (int64_t i = 0; i < kept * width_; ++i)
        y[offsets[s] * width_ + i] = x[(end - kept) * width_ + i] * w[(count_ - kept) * width_ + i];
    }
    if (context != nullptr) *context = reinterpret_cast<tsr_module_context*>(this);
  }

  void backward(const ModuleCall& call, tsr_module_context*) override {
    const float *x = data_as<float>(call.inputs[0]), *w = data_as<float>(call.parameters[0]);
    const float* dy = data_as<float>(call.grad_outputs[0]);
    float *dx = data_as<float>(call.grad_inputs[0]), *dw = data_as<float>(call.grad_parameters[0]);
    if (dx != nullptr) std::fill_n(dx, numel(call.inputs[0]), 0.0f);  // rows that were left out have none
    if (dy == nullptr) return;
    for (int64_t s = 0; s < call.batch; ++s) {
      const int64_t end = data_as<int64_t>(call.offsets[0])[s + 1], kept = kept_of(call, s);
      const float* g = dy + data_as<int64_t>(call.output_offsets[0])[s] * width_;
      for (int64_t i = 0; i < kept * width_; ++i) {
        dw[(count_ - kept) * width_ + i] += g[i] * x[(end - kept) * width_ + i];
        if (dx != nullptr) dx[(end - kept) * width_ + i] = g[i] * w[(count_ - kept) * width_ + i];
      }
    }
  }

 private:
  int64_t kept_of(const ModuleCall& call, int64_t sample) const {
    const int64_t* offsets = data_as<int64_t>(call.offsets[0]);
    return std::min(count_, offsets[sample + 1] - offsets[sample]);
  }
  int64_t count_, width_ = 0;
  std::vector<Parameter> parameters_;
};

TESSERA_PLUGIN("newest", "1.0.0",
               component<Newest>({.id = "outside.newest", .version = "1", .about = "the last rows of each sample"}));
