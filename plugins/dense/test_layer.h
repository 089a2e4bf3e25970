// Runs layers of the plugin through their function tables, for tests. It owns everything that the core would own.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "tessera/abi/module.h"

extern "C" const tsr_plugin* tessera_plugin_v1(const tsr_host* host, tsr_error* err);

namespace {

// A host with its own threads, which counts how often it lends them.
struct TestHost {
  explicit TestHost(uint32_t n = 1) : threads(n) {
    raw = {sizeof(tsr_host), 0, this, log, alloc, release, parallel_for, num_threads, extension};
  }
  tsr_host raw;
  uint32_t threads;
  std::atomic<int> allocations = 0;  // counts those of all threads
  std::atomic<int> live = 0;
  int lent = 0;  // number of parallel_for calls that used threads

  static TestHost& of(const tsr_host* host) { return *static_cast<TestHost*>(host->self); }
  static void log(const tsr_host*, int32_t, const char*) {}
  static void* alloc(const tsr_host* host, DLDevice, uint64_t bytes, tsr_stream, tsr_error*) {
    ++of(host).allocations;
    ++of(host).live;
    return aligned_alloc(64, (bytes + 64) / 64 * 64);
  }
  static void release(const tsr_host* host, DLDevice, void* memory, uint64_t, tsr_stream) {
    --of(host).live;
    free(memory);
  }
  static void parallel_for(const tsr_host* host, uint64_t n, void (*body)(void*, uint64_t), void* ctx) {
    const uint32_t threads = of(host).threads;
    if (threads == 1) return for_each(0, 1, n, body, ctx);
    ++of(host).lent;
    std::vector<std::thread> running;
    for (uint32_t t = 0; t < threads; ++t) running.emplace_back([=] { for_each(t, threads, n, body, ctx); });
    for (std::thread& t : running) t.join();
  }
  static void for_each(uint64_t first, uint64_t step, uint64_t n, void (*body)(void*, uint64_t), void* ctx) {
    for (uint64_t i = first; i < n; i += step) body(ctx, i);
  }
  static uint32_t num_threads(const tsr_host* host) { return of(host).threads; }
  static const void* extension(const tsr_host*, const char*) { return nullptr; }
};

struct Matrix {
  std::vector<int64_t> shape;
  std::vector<float> data;
  std::vector<int64_t> counts;  // int64 values; used instead of data if not empty
  Matrix() = default;
  explicit Matrix(std::vector<int64_t> s) : shape(std::move(s)) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    data.resize(static_cast<size_t>(n));
  }
  DLTensor dl() const {
    DLTensor t{};
    t.data = const_cast<float*>(data.data());
    t.device = {kDLCPU, 0};
    t.ndim = static_cast<int32_t>(shape.size());
    t.dtype = {kDLFloat, 32, 1};
    if (!counts.empty()) {
      t.data = const_cast<int64_t*>(counts.data());
      t.dtype = {kDLInt, 64, 1};
    }
    t.shape = const_cast<int64_t*>(shape.data());
    return t;
  }
};

// Numbers in [-1, 1), the same in every run.
struct Noise {
  uint32_t state = 12345;
  float next() { return static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) / 8388608.0f - 1; }
  void fill(Matrix& m) {
    for (float& v : m.data) v = next();
  }
};

std::vector<DLTensor> views(const std::vector<Matrix>& all) {
  std::vector<DLTensor> out;
  for (const Matrix& m : all) out.push_back(m.dl());
  return out;
}

// A layer, with the tensors that the core would own.
class Layer {
 public:
  Layer(TestHost& host, const std::string& id, const std::string& options) {
    const tsr_plugin* plugin = tessera_plugin_v1(&host.raw, &error_);
    for (uint32_t i = 0; i < plugin->num_components; ++i) {
      if (id == plugin->components[i]->id) component_ = plugin->components[i];
    }
    api_ = static_cast<const tsr_module*>(component_->api);
    code = component_->create(component_, &host.raw, options.c_str(), nullptr, &self_, &error_);
    if (code != TSR_OK) return;
    tsr_parameter p{};
    p.struct_size = sizeof(p);
    for (uint32_t i = 0; api_->parameter(self_, i, &p, &error_) == TSR_OK; ++i) {
      names.emplace_back(p.name);
      inits.push_back(p.init);
      spreads.push_back(p.init_values[1]);
      parameters.emplace_back(std::vector<int64_t>(p.shape, p.shape + p.ndim));
      noise.fill(parameters.back());
      grad_parameters.emplace_back(parameters.back().shape);
    }
    for (uint32_t i = 0; api_->buffer(self_, i, &p, &error_) == TSR_OK; ++i) {
      buffers.emplace_back(std::vector<int64_t>(p.shape, p.shape + p.ndim));
      if (p.dtype.code == kDLInt) buffers.back().counts.resize(1);
      std::fill(buffers.back().data.begin(), buffers.back().data.end(), static_cast<float>(p.init_values[0]));
    }
  }
  ~Layer() {
    if (code == TSR_OK) component_->destroy(self_);
  }

  // Fills inputs with noise and makes an output that fits.
  void with_inputs(const std::vector<std::vector<int64_t>>& shapes) {
    inputs.clear();
    grad_inputs.clear();
    std::vector<int64_t> widths;
    for (const auto& shape : shapes) {
      inputs.emplace_back(shape);
      grad_inputs.emplace_back(shape);
      noise.fill(inputs.back());
      widths.push_back(shape[1]);
    }
    ASSERT_EQ(width_of(widths), TSR_OK) << error_.message;
    batch_ = bounds.empty() ? shapes[0][0] : static_cast<int64_t>(bounds.size()) - 1;
    if (!all_bounds.empty() && !all_bounds[0].empty()) batch_ = static_cast<int64_t>(all_bounds[0].size()) - 1;
    output = Matrix({like_ < 0 ? batch_ : shapes[static_cast<size_t>(like_)][0], width_});
    grad_output = Matrix(output.shape);
    noise.fill(grad_output);
  }
  tsr_code width_of(const std::vector<int64_t>& widths) {
    std::vector<tsr_value> values;
    for (const int64_t w : widths) values.push_back({sizeof(tsr_value), 0, {kDLFloat, 32, 1}, 0, w});
    for (const size_t i : ids) values[i].dtype = {kDLInt, 64, 1};
    if (!bounds.empty()) {
      values.back().flags = TSR_VALUE_JAGGED;
      values.back().rows_like = static_cast<int32_t>(values.size()) - 1;
    }
    for (size_t i = 0; i < all_bounds.size(); ++i) {
      if (all_bounds[i].empty()) continue;
      values[i].flags = TSR_VALUE_JAGGED;
      const auto first = std::find(all_bounds.begin(), all_bounds.end(), all_bounds[i]);
      values[i].rows_like = static_cast<int32_t>(first - all_bounds.begin());
    }
    tsr_value out{};
    out.struct_size = sizeof(out);
    const tsr_code said =
        api_->output(self_, 0, static_cast<uint32_t>(values.size()), sizeof(tsr_value), values.data(), &out, &error_);
    width_ = out.width;
    like_ = (out.flags & TSR_VALUE_JAGGED) != 0 ? out.rows_like : -1;
    return said;
  }
  tsr_code forward(tsr_module_context** context = nullptr) {
    const auto in = views(inputs), p = views(parameters), b = views(buffers);
    const DLTensor out = output.dl();
    tsr_module_call call = call_with(in, p, out);
    call.buffers = b.data();
    return api_->forward(self_, &call, context, &error_);
  }
  tsr_code backward(tsr_module_context* context) {
    const auto in = views(inputs), p = views(parameters), gp = views(grad_parameters), b = views(buffers);
    auto gi = views(grad_inputs);
    for (size_t i = 0; i < gi.size(); ++i) {
      if (grad_inputs[i].data.empty()) gi[i].data = nullptr;
    }
    const DLTensor out = output.dl();
    DLTensor grad = grad_output.dl();
    if (grad_output.data.empty()) grad.data = nullptr;
    tsr_module_call call = call_with(in, p, out);
    call.buffers = b.data();
    call.grad_outputs = &grad;
    call.grad_inputs = gi.data();
    call.grad_parameters = gp.data();
    const tsr_code back = api_->backward(self_, &call, context, &error_);
    if (context != nullptr) api_->release(self_, context);
    return back;
  }
  void release(tsr_module_context* context) { api_->release(self_, context); }
  void step() {
    tsr_module_context* context = nullptr;
    ASSERT_EQ(forward(&context), TSR_OK) << error_.message;
    ASSERT_EQ(backward(context), TSR_OK) << error_.message;
  }
  std::string error() const { return error_.message; }

  tsr_code code = TSR_OK;
  Noise noise;
  std::vector<std::string> names;
  std::vector<int32_t> inits;
  std::vector<double> spreads;
  std::vector<Matrix> parameters, grad_parameters, buffers, inputs, grad_inputs;
  std::vector<int64_t> bounds;  // offsets of the last input's samples, if it is jagged; set before with_inputs()
  std::vector<std::vector<int64_t>> all_bounds;  // the same for each input; empty: dense
  Matrix output, grad_output;
  std::vector<size_t> ids;  // indices of the inputs that are int64
  bool trains = true;
  int64_t step_number = 0;
  tsr_code (*sum_over_ranks)(void*, const DLTensor*, tsr_error*) = nullptr;
  void* ranks = nullptr;
  int32_t rank = 0, world_size = 0;

 private:
  tsr_module_call call_with(const std::vector<DLTensor>& in, const std::vector<DLTensor>& values, const DLTensor& out) {
    offsets_.assign(in.size(), DLTensor{});
    bounds_shape_ = static_cast<int64_t>(bounds.size());
    offsets_.back() = {bounds.data(), {kDLCPU, 0}, 1, {kDLInt, 64, 1}, &bounds_shape_, nullptr, 0};
    tsr_module_call call{};
    for (size_t i = 0; i < all_bounds.size(); ++i) {
      bounds_shape_ = batch_ + 1;
      if (!all_bounds[i].empty())
        offsets_[i] = {all_bounds[i].data(), {kDLCPU, 0}, 1, {kDLInt, 64, 1}, &bounds_shape_, nullptr, 0};
    }
    if (!bounds.empty() || !all_bounds.empty()) call.offsets = offsets_.data();
    call.struct_size = sizeof(call);
    call.flags = trains ? uint32_t{TSR_MODULE_TRAIN} : 0;
    call.step = step_number;
    call.sum_over_ranks = sum_over_ranks;
    call.ranks = ranks;
    call.rank = rank;
    call.world_size = world_size;
    call.batch = batch_;
    call.num_inputs = static_cast<uint32_t>(in.size());
    call.num_outputs = 1;
    call.inputs = in.data();
    call.parameters = values.data();
    call.outputs = &out;
    return call;
  }

  std::vector<DLTensor> offsets_;
  int64_t bounds_shape_ = 0;
  int64_t width_ = 0, batch_ = 0;
  int32_t like_ = -1;  // the input whose rows the output has; -1: one row for each sample
  const tsr_component* component_ = nullptr;
  const tsr_module* api_ = nullptr;
  void* self_ = nullptr;
  tsr_error error_ TSR_ERROR_INIT;
};

// Returns sum(output * grad_output) in double. Its derivatives must equal the gradients of backward.
double objective(Layer& layer) {
  EXPECT_EQ(layer.forward(), TSR_OK) << layer.error();
  double sum = 0;
  for (size_t i = 0; i < layer.output.data.size(); ++i) sum += double{layer.output.data[i]} * layer.grad_output.data[i];
  return sum;
}

// Checks the gradient at every `stride`-th element. It must lie between the differences on both sides, even if a ReLU
// switches inside the step; elsewhere the two are nearly equal.
void check_gradient(Layer& layer, Matrix& at, const Matrix& gradient, const char* what) {
  constexpr float kStep = 4e-3f;
  int seen = 0, straight = 0;
  const size_t stride = at.data.size() / 60 + 1;
  const double middle = objective(layer);
  for (size_t i = 0; i < at.data.size(); i += stride, ++seen) {
    const float before = at.data[i];
    at.data[i] = before + kStep;
    const double right = (objective(layer) - middle) / (double{at.data[i]} - before);
    at.data[i] = before - kStep;
    const double left = (middle - objective(layer)) / (before - double{at.data[i]});
    at.data[i] = before;
    const double tolerance = 5e-3 * (1 + std::abs(right));
    straight += std::abs(right - left) <= 2 * tolerance;
    EXPECT_GE(gradient.data[i], std::min(left, right) - tolerance) << what << " " << i;
    EXPECT_LE(gradient.data[i], std::max(left, right) + tolerance) << what << " " << i;
  }
  EXPECT_GT(2 * straight, seen) << what << ": too many kinks to tell anything";
}

[[maybe_unused]] void check_all_gradients(Layer& layer) {
  layer.step();
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    check_gradient(layer, layer.inputs[i], layer.grad_inputs[i], "input");
  }
  for (size_t i = 0; i < layer.parameters.size(); ++i) {
    check_gradient(layer, layer.parameters[i], layer.grad_parameters[i], layer.names[i].c_str());
  }
}

// A layer with the option "precision".
struct PrecisionCase {
  const char *id, *options;  // without the last brace
  std::vector<std::vector<int64_t>> inputs;
  std::vector<int64_t> bounds = {};
};

[[maybe_unused]] std::string with_precision(const PrecisionCase& c, const char* precision) {
  return std::string(c.options) + R"(, "precision": ")" + precision + "\"}";
}

}  // namespace
