// SPDX-License-Identifier: Apache-2.0 OR MIT
// acme.linear: a dense layer, y = W x + b. Options: "inputs", the width of x, which a model gives; "width", that of y.
#include <tessera/sdk/module.h>

using namespace tessera::sdk;

class Linear : public Module {
 public:
  explicit Linear(Options& options) : out_(options.integer("width", 1)) {
    const std::vector<int64_t> inputs = options.integers("inputs", {8});
    if (inputs.size() != 1 || inputs[0] < 1)
      fail(TSR_INVALID_ARGUMENT, "acme.linear takes one input of 1 value or more");
    if (out_ < 1) fail(TSR_INVALID_ARGUMENT, "option \"width\" is ", out_, ", but must be 1 or more");
    in_ = inputs[0];
    parameters_ = {{"weight", {out_, in_}, xavier_normal(out_, in_)}, {"bias", {out_}}};  // which starts at 0
  }
  const std::vector<Parameter>& parameters() const override { return parameters_; }

  // Widths of the inputs are 0 where the caller does not know them yet.
  std::vector<Value> outputs(std::span<const Value> inputs) const override {
    if (inputs.size() != 1 || inputs[0].jagged || !same_dtype(inputs[0].dtype, dtype_of<float>()) ||
        (inputs[0].width != in_ && inputs[0].width != 0))
      fail(TSR_INVALID_ARGUMENT, "acme.linear takes one input of ", in_, " values");
    return {{out_}};
  }

  void forward(const ModuleCall& args, tsr_module_context** context) override {
    const float *x = data_as<float>(args.inputs[0]), *w = data_as<float>(args.parameters[0]);
    const float* b = data_as<float>(args.parameters[1]);
    float* y = data_as<float>(args.outputs[0]);
    for (int64_t n = 0; n < args.inputs[0].shape[0]; ++n) {
      for (int64_t o = 0; o < out_; ++o) {
        float sum = b[o];
        for (int64_t i = 0; i < in_; ++i) sum += w[o * in_ + i] * x[n * in_ + i];
        y[n * out_ + o] = sum;
      }
    }
    // The backward needs only the inputs, which the caller keeps. So there is nothing to store, and any pointer except
    // NULL can serve as the context.
    if (context != nullptr) *context = reinterpret_cast<tsr_module_context*>(this);
  }

  void backward(const ModuleCall& args, tsr_module_context*) override {
    const float *x = data_as<float>(args.inputs[0]), *w = data_as<float>(args.parameters[0]);
    const float* dy = data_as<float>(args.grad_outputs[0]);
    float* dx = data_as<float>(args.grad_inputs[0]);  // written; NULL: not wanted
    float *dw = data_as<float>(args.grad_parameters[0]), *db = data_as<float>(args.grad_parameters[1]);  // added to
    for (int64_t n = 0; n < args.inputs[0].shape[0]; ++n) {
      for (int64_t i = 0; i < in_ && dx != nullptr; ++i) {
        float sum = 0;
        for (int64_t o = 0; o < out_; ++o) sum += dy[n * out_ + o] * w[o * in_ + i];
        dx[n * in_ + i] = sum;
      }
      for (int64_t o = 0; o < out_; ++o) {
        db[o] += dy[n * out_ + o];
        for (int64_t i = 0; i < in_; ++i) dw[o * in_ + i] += dy[n * out_ + o] * x[n * in_ + i];
      }
    }
  }

 private:
  int64_t in_ = 0, out_;
  std::vector<Parameter> parameters_;
};

TESSERA_PLUGIN("acme-linear", "1.0.0",
               component<Linear>({.id = "acme.linear", .version = "1.0.0", .about = "y = W x + b"}));
