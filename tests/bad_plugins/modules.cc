// A linear layer, y = W x + b, of 6 to 3 values.
#include "tessera/sdk/module.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <thread>

#include "faults.h"

namespace {

using namespace tessera::sdk;
using bad::has;

constexpr int64_t kIn = 6, kOut = 3;

class Linear : public Module {
 public:
  const std::vector<Parameter>& parameters() const override { return parameters_; }
  std::vector<Value> outputs(std::span<const Value> inputs) const override {
    if (has("takes_anything")) return {{kOut}};
    if (inputs.size() != 1 || inputs[0].jagged || !same_dtype(inputs[0].dtype, dtype_of<float>()) ||
        (inputs[0].width != kIn && inputs[0].width != 0))
      fail(TSR_INVALID_ARGUMENT, "linear takes one input of ", kIn, " values");
    return {{kOut}};
  }
  void forward(const ModuleCall& args, tsr_module_context** context) override {
    if (has("leaves_a_thread_in_forward") && !started_) {
      std::thread([] { pause(); }).detach();
      started_ = true;
    }
    const float *x = data_as<float>(args.inputs[0]), *w = data_as<float>(args.parameters[0]);
    const float* b = data_as<float>(args.parameters[1]);
    float* y = data_as<float>(args.outputs[0]);
    const char* const rank = std::getenv("RANK");
    const bool spoils = has("knows_its_rank") && rank != nullptr && *rank == '1';
    const bool otherwise = has("evaluates_100_otherwise") && !args.trains && args.batch >= 100;
    if (has("keeps_each_batch")) batches_.emplace_back(16384);
    last_ = x;
    for (int64_t n = 0; n < args.inputs[0].shape[0]; ++n) {
      for (int64_t o = 0; o < kOut; ++o) {
        float sum = has("infers_otherwise") && context == nullptr ? 0 : b[o];
        for (int64_t i = 0; i < kIn; ++i) sum += w[o * kIn + i] * x[n * kIn + i];
        if (has("adds_to_the_output")) sum += y[n * kOut + o];
        y[n * kOut + o] = spoils ? std::nanf("") : otherwise ? 1.01f * sum : sum;
      }
    }
    if (has("writes_behind_its_output")) y[args.inputs[0].shape[0] * kOut] = 1;
    if (context != nullptr) *context = reinterpret_cast<tsr_module_context*>(this);
  }
  void backward(const ModuleCall& args, tsr_module_context*) override {
    const float* x = has("remembers_the_last_input") ? last_ : data_as<float>(args.inputs[0]);
    const float* w = data_as<float>(args.parameters[0]);
    const float* g = data_as<float>(args.grad_outputs[0]);
    float *dx = data_as<float>(args.grad_inputs[0]), *dw = data_as<float>(args.grad_parameters[0]);
    float* db = data_as<float>(args.grad_parameters[1]);
    const int64_t batch = args.inputs[0].shape[0];
    if (has("overwrites_gradients")) std::fill(dw, dw + kIn * kOut, 0.0f);
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t i = 0; i < kIn && (dx != nullptr || has("writes_unwanted_gradients")); ++i) {
        if (!has("adds_input_gradients")) dx[n * kIn + i] = 0;
        for (int64_t o = 0; o < kOut; ++o) dx[n * kIn + i] += g[n * kOut + o] * w[o * kIn + i];
        if (has("is_one_percent_off")) dx[n * kIn + i] *= 1.01f;
        if (has("is_off_beyond_500_samples") && n >= 500) dx[n * kIn + i] *= 2;
      }
      for (int64_t o = 0; o < kOut; ++o) {
        if (!has("forgets_the_bias")) db[o] += g[n * kOut + o];
        for (int64_t i = 0; i < kIn; ++i) dw[o * kIn + i] += g[n * kOut + o] * x[n * kIn + i];
      }
      if (has("forgets_a_sample") && n + 2 == batch) break;
    }
  }

 private:
  bool started_ = false;
  const float* last_ = nullptr;
  std::vector<std::vector<char>> batches_;
  std::vector<Parameter> parameters_{{"weight", {kOut, kIn}, xavier_normal(kOut, kIn)},
                                     {has("names_twice") ? "weight" : "bias", {kOut}}};
};

// Keeps the last three rows of each sample.
class Newest : public Module {
 public:
  std::vector<Value> outputs(std::span<const Value> inputs) const override {
    if (inputs.size() != 1 || !inputs[0].jagged || !same_dtype(inputs[0].dtype, dtype_of<float>()))
      fail(TSR_INVALID_ARGUMENT, "it takes one sequence");
    return {Value::own_rows(inputs[0].width)};
  }
  void max_rows(const ModuleCall& call, std::span<int64_t> rows) const override {
    rows[0] = std::min(call.inputs[0].shape[0], kKept * call.batch);
  }
  void forward(const ModuleCall& call, tsr_module_context** context) override {
    int64_t* const out = data_as<int64_t>(call.output_offsets[0]);
    out[0] = 0;
    copies(call, [&](int64_t sample, int64_t from, int64_t count, int64_t width) {
      out[sample + 1] = out[sample] + count;
      std::copy_n(data_as<float>(call.inputs[0]) + from * width, count * width,
                  data_as<float>(call.outputs[0]) + out[sample] * width);
    });
    if (context != nullptr) *context = reinterpret_cast<tsr_module_context*>(this);
  }
  void backward(const ModuleCall& call, tsr_module_context*) override {
    float* const dx = data_as<float>(call.grad_inputs[0]);
    if (dx == nullptr) return;
    if (!has("leaves_gradients_unwritten")) std::fill_n(dx, numel(call.inputs[0]), 0.0f);
    copies(call, [&](int64_t sample, int64_t from, int64_t count, int64_t width) {
      std::copy_n(data_as<float>(call.grad_outputs[0]) + data_as<int64_t>(call.output_offsets[0])[sample] * width,
                  count * width, dx + from * width);
    });
  }

 private:
  static constexpr int64_t kKept = 3;
  template <class Body>  // body(sample, first row, rows, width)
  static void copies(const ModuleCall& call, const Body& body) {
    const int64_t* const offsets = data_as<int64_t>(call.offsets[0]);
    for (int64_t s = 0; s < call.batch; ++s) {
      const int64_t count = std::min(kKept, offsets[s + 1] - offsets[s]);
      body(s, offsets[s + 1] - count, count, call.inputs[0].shape[1]);
    }
  }
};

// Returns values that the SDK would refuse.
tsr_code nine_dimensions(void* self, uint32_t i, tsr_parameter* out, tsr_error* err) {
  const tsr_code code = Linear::table<Linear>.parameter(self, i, out, err);
  if (code == TSR_OK && has("has_nine_dimensions")) out->ndim = 9;
  return code;
}
tsr_module with_faults() {
  tsr_module table = Linear::table<Linear>;
  table.parameter = nine_dimensions;
  return table;
}
const tsr_module kTable = with_faults();
constexpr tsr_component linear() {
  tsr_component c = component<Linear>(
      {.id = "bad.linear", .version = "1.0.0", .about = "has the fault that BAD_PLUGINS_FAULT names"});
  c.api = &kTable;
  return c;
}

}  // namespace

TESSERA_PLUGIN("bad-modules", "1.0.0", linear(),
               component<Newest>({.id = "bad.newest", .version = "1.0.0", .about = "the last rows of each sample"}));
