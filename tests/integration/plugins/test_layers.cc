// Layers for layers_test.cc. test.norm: batch normalisation over the samples of all ranks, without epsilon in backward;
// buffers "running_mean" and "batches". test.mixed: takes jagged float32 rows and an integer per sample; outputs are
// the rows' sum, and the integer plus noise from the call's seed and step. test.blend: takes inputs of one width, which
// it must be told; outputs are their sum weighted by its parameter, and the first one's squares. test.ragged: sequences
// as inputs and outputs. test.odd: does what the core must refuse, by its option `fault`. test.marked: passes its input
// on, adds a line to the file of its option `log` when it runs backward, and has a precision, but not "auto".
#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "tessera/sdk/layers.h"

namespace tessera::test {
namespace {

using namespace tessera::sdk;

class Norm final : public Module {
 public:
  static constexpr uint32_t kFlags = TSR_MODULE_SUMS_OVER_RANKS;
  explicit Norm(Options& options) : width_(options.integer("width", 2)) {
    parameters_ = {{"weight", {width_}, constant(1)}, {"bias", {width_}, uniform(2, 3)}};
    buffers_ = {{"running_mean", {width_}, constant(0.5)}, {"batches", {}, constant(7), dtype_of<int64_t>()}};
  }
  const std::vector<Parameter>& parameters() const override { return parameters_; }
  const std::vector<Parameter>& buffers() const override { return buffers_; }
  std::vector<Value> outputs(std::span<const Value> inputs) const override {
    if (dense_widths(inputs, "test.norm") != std::vector{width_})
      fail(TSR_INVALID_ARGUMENT, "test.norm takes one input of ", width_, " values");
    return {{width_}};
  }
  // y = weight (x - mean) + bias, with the mean over the samples of all ranks.
  void forward(const ModuleCall& call, tsr_module_context** context) override {
    float* running = data_as<float>(call.buffers[0]);
    const float *x = data_as<float>(call.inputs[0]), *w = data_as<float>(call.parameters[0]);
    const float* b = data_as<float>(call.parameters[1]);
    std::vector<double> mean(running, running + width_);
    if (call.trains) {
      mean = means(call, x);
      for (int64_t i = 0; i < width_; ++i) running[i] = static_cast<float>(mean[static_cast<size_t>(i)]);
      *data_as<int64_t>(call.buffers[1]) += 1;
    }
    float* y = data_as<float>(call.outputs[0]);
    for (int64_t n = 0; n < call.batch; ++n) {
      for (int64_t i = 0; i < width_; ++i)
        y[n * width_ + i] = w[i] * static_cast<float>(x[n * width_ + i] - mean[static_cast<size_t>(i)]) + b[i];
    }
    if (context != nullptr) *context = reinterpret_cast<tsr_module_context*>(this);
  }
  void backward(const ModuleCall& call, tsr_module_context*) override {
    const float *dy = data_as<float>(call.grad_outputs[0]), *w = data_as<float>(call.parameters[0]);
    const std::vector<double> mean = means(call, dy);
    const std::vector<double> centre = means(call, data_as<float>(call.inputs[0]));
    float *dw = data_as<float>(call.grad_parameters[0]), *db = data_as<float>(call.grad_parameters[1]);
    float* dx = data_as<float>(call.grad_inputs[0]);
    for (int64_t n = 0; n < call.batch; ++n) {
      for (int64_t i = 0; i < width_; ++i) {
        const auto k = static_cast<size_t>(i);
        const float g = dy[n * width_ + i];
        dw[i] += g * static_cast<float>(data_as<float>(call.inputs[0])[n * width_ + i] - centre[k]);
        db[i] += g;
        if (dx != nullptr) dx[n * width_ + i] = w[i] * static_cast<float>(g - mean[k]);
      }
    }
  }

 private:
  // Means of the columns over all ranks.
  std::vector<double> means(const ModuleCall& call, const float* x) const {
    std::vector<double> sums(static_cast<size_t>(width_ + 1));
    sums.back() = static_cast<double>(call.batch);
    for (int64_t n = 0; n < call.batch * width_; ++n) sums[static_cast<size_t>(n % width_)] += double{x[n]};
    int64_t shape = width_ + 1;
    call.sum_over_ranks({sums.data(), {kDLCPU, 0}, 1, dtype_of<double>(), &shape, nullptr, 0});
    for (double& sum : sums) sum /= sums.back();
    sums.pop_back();
    return sums;
  }
  int64_t width_;
  std::vector<Parameter> parameters_, buffers_;
};

class Mixed final : public Module {
 public:
  std::vector<Value> outputs(std::span<const Value> inputs) const override {
    if (inputs.size() != 2 || !inputs[0].jagged || inputs[1].jagged ||
        !same_dtype(inputs[1].dtype, dtype_of<int64_t>()))
      fail(TSR_INVALID_ARGUMENT, "test.mixed takes jagged rows and an int64 per sample");
    return {{inputs[0].width}, {1}};
  }
  void forward(const ModuleCall& call, tsr_module_context** context) override {
    const int64_t width = call.inputs[0].shape[1];
    const auto* offsets = data_as<int64_t>(call.offsets[0]);
    const float* x = data_as<float>(call.inputs[0]);
    float *sum = data_as<float>(call.outputs[0]), *noisy = data_as<float>(call.outputs[1]);
    for (int64_t n = 0; n < call.batch; ++n) {
      for (int64_t i = 0; i < width; ++i) {
        sum[n * width + i] = 0;
        for (int64_t row = offsets[n]; row < offsets[n + 1]; ++row) sum[n * width + i] += x[row * width + i];
      }
      const auto noise = call.trains ? static_cast<float>((call.seed % 997) * 100) + static_cast<float>(call.step) : 0;
      noisy[n] = static_cast<float>(data_as<int64_t>(call.inputs[1])[n]) + noise;
    }
    if (context != nullptr) *context = reinterpret_cast<tsr_module_context*>(this);
  }
  void backward(const ModuleCall& call, tsr_module_context*) override {
    const int64_t width = call.inputs[0].shape[1];
    const auto* offsets = data_as<int64_t>(call.offsets[0]);
    float* dx = data_as<float>(call.grad_inputs[0]);
    const float* dy = data_as<float>(call.grad_outputs[0]);
    for (int64_t n = 0; dx != nullptr && n < call.batch; ++n) {
      for (int64_t row = offsets[n]; row < offsets[n + 1]; ++row) {
        for (int64_t i = 0; i < width; ++i) dx[row * width + i] = dy == nullptr ? 0 : dy[n * width + i];
      }
    }
  }

 private:
};

class Blend final : public Module {
 public:
  explicit Blend(Options& options) : widths_(options.integers("inputs", {})), weight_(options.number("weight", 1)) {
    if (widths_.empty()) fail(TSR_INVALID_ARGUMENT, "test.blend must be told its inputs");
    parameters_ = {{"shares", {static_cast<int64_t>(widths_.size())}, normal(weight_, 0.25)}};
  }
  const std::vector<Parameter>& parameters() const override { return parameters_; }
  std::vector<Value> outputs(std::span<const Value> inputs) const override {
    for (const int64_t width : dense_widths(inputs, "test.blend")) {
      if (width != widths_[0])
        fail(TSR_INVALID_ARGUMENT, "test.blend adds up inputs of one width, not of ", widths_[0], " and ", width);
    }
    return {{widths_[0]}, {1}};
  }
  void forward(const ModuleCall& call, tsr_module_context** context) override {
    const int64_t width = widths_[0];
    const float *p = data_as<float>(call.parameters[0]), *first = data_as<float>(call.inputs[0]);
    float *sum = data_as<float>(call.outputs[0]), *squares = data_as<float>(call.outputs[1]);
    for (int64_t n = 0; n < call.batch * width; ++n) sum[n] = 0;
    for (size_t k = 0; k < widths_.size(); ++k) {
      for (int64_t n = 0; n < call.batch * width; ++n) sum[n] += p[k] * data_as<float>(call.inputs[k])[n];
    }
    for (int64_t b = 0; b < call.batch; ++b) {
      squares[b] = 0;
      for (int64_t i = b * width; i < (b + 1) * width; ++i) squares[b] += first[i] * first[i];
    }
    if (context != nullptr) *context = reinterpret_cast<tsr_module_context*>(this);
  }
  void backward(const ModuleCall& call, tsr_module_context*) override {
    const int64_t width = widths_[0];
    const float *p = data_as<float>(call.parameters[0]), *dsum = data_as<float>(call.grad_outputs[0]),
                *dsquares = data_as<float>(call.grad_outputs[1]);
    for (size_t k = 0; k < widths_.size(); ++k) {
      const float* x = data_as<float>(call.inputs[k]);
      float* dx = data_as<float>(call.grad_inputs[k]);
      for (int64_t n = 0; n < call.batch * width; ++n) {
        const float d = dsum == nullptr ? 0 : dsum[n];
        data_as<float>(call.grad_parameters[0])[k] += d * x[n];
        if (dx != nullptr) dx[n] = p[k] * d + (k == 0 && dsquares != nullptr ? 2 * x[n] * dsquares[n / width] : 0);
      }
    }
  }

 private:
  std::vector<int64_t> widths_;
  double weight_;
  std::vector<Parameter> parameters_;
};

// Takes a sequence a, int64 times of its rows, and another sequence b. Outputs are a with its times added; for each
// sample the rows of a and then those of b; and the number of those rows.
class Ragged final : public Module {
 public:
  explicit Ragged(Options& options) : fault_(options.string("fault", "")) {}
  std::vector<Value> outputs(std::span<const Value> inputs) const override {
    if (inputs.size() != 3 || !inputs[0].jagged || !inputs[1].has_rows_of(inputs[0]) || !inputs[2].jagged ||
        !same_dtype(inputs[1].dtype, dtype_of<int64_t>()) || inputs[2].width != inputs[0].width)
      fail(TSR_INVALID_ARGUMENT, "test.ragged takes a sequence, the times of its rows, and another sequence");
    Value like = inputs[0].with_width(inputs[0].width);
    if (fault_ == "like") like.rows_like = 7;
    return {like, Value::own_rows(inputs[0].width), {1}};
  }
  void max_rows(const ModuleCall& call, std::span<int64_t> rows) const override {
    rows[1] = fault_ == "bound" ? -1 : call.inputs[0].shape[0] + call.inputs[2].shape[0];
  }
  void forward(const ModuleCall& call, tsr_module_context** context) override {
    const int64_t width = call.inputs[0].shape[1];
    const float *a = data_as<float>(call.inputs[0]), *b = data_as<float>(call.inputs[2]);
    const auto *of_a = data_as<int64_t>(call.offsets[0]), *of_b = data_as<int64_t>(call.offsets[2]);
    const auto* times = data_as<int64_t>(call.inputs[1]);
    float* late = data_as<float>(call.outputs[0]);
    for (int64_t i = 0; i < call.inputs[0].shape[0] * width; ++i) late[i] = a[i] + static_cast<float>(times[i / width]);
    auto* bounds = data_as<int64_t>(call.output_offsets[1]);
    float* both = data_as<float>(call.outputs[1]);
    bounds[0] = 0;
    for (int64_t s = 0; s < call.batch; ++s) {
      both = std::copy(a + of_a[s] * width, a + of_a[s + 1] * width, both);
      both = std::copy(b + of_b[s] * width, b + of_b[s + 1] * width, both);
      const int64_t rows = of_a[s + 1] - of_a[s] + of_b[s + 1] - of_b[s];
      bounds[s + 1] = bounds[s] + (fault_ == "beyond" ? 1000 : fault_ == "falls" ? -1 : rows);
      data_as<float>(call.outputs[2])[s] = static_cast<float>(rows);
    }
    if (context != nullptr) *context = reinterpret_cast<tsr_module_context*>(this);
  }
  void backward(const ModuleCall& call, tsr_module_context*) override {
    const int64_t width = call.inputs[0].shape[1];
    const auto *of_a = data_as<int64_t>(call.offsets[0]), *of_b = data_as<int64_t>(call.offsets[2]);
    if (call.outputs[1].shape[0] != data_as<int64_t>(call.output_offsets[1])[call.batch])
      fail(TSR_INVALID_ARGUMENT, "the output has rows beyond its offsets");
    const float *late = data_as<float>(call.grad_outputs[0]), *both = data_as<float>(call.grad_outputs[1]);
    for (int64_t s = 0; s < call.batch; ++s) {
      for (const size_t k : {size_t{0}, size_t{2}}) {
        const int64_t* bounds = k == 0 ? of_a : of_b;
        float* to = data_as<float>(call.grad_inputs[k]);
        for (int64_t i = bounds[s] * width; i < bounds[s + 1] * width; ++i) {
          const float one = both == nullptr ? 0 : *both++;
          if (to != nullptr) to[i] = one + (k == 0 && late != nullptr ? late[i] : 0);
        }
      }
    }
  }
  void release(tsr_module_context*) noexcept override { released += 1; }
  int released = 0;

 private:
  std::string fault_;
};

class Marked final : public Module {
 public:
  static constexpr bool kPrecision = true;
  explicit Marked(Options& options) : width_(options.integer("width", 1)), path_(options.string("log", "")) {
    (void)options.word("precision", {"float32", "bfloat16"});
  }
  std::vector<Value> outputs(std::span<const Value>) const override { return {{width_}}; }
  void forward(const ModuleCall& call, tsr_module_context** context) override {
    std::copy_n(data_as<float>(call.inputs[0]), call.batch * width_, data_as<float>(call.outputs[0]));
    if (context != nullptr) *context = reinterpret_cast<tsr_module_context*>(this);
  }
  void backward(const ModuleCall& call, tsr_module_context*) override {
    float* const to = data_as<float>(call.grad_inputs[0]);
    if (to != nullptr) std::copy_n(data_as<float>(call.grad_outputs[0]), call.batch * width_, to);
    std::ofstream(path_, std::ios::app) << "backward|marked|0|0|0\n";
  }

 private:
  int64_t width_;
  std::string path_;
};

class Odd final : public Module {
 public:
  explicit Odd(Options& options) : fault(options.string("fault", "")) {}
  const std::vector<Parameter>& parameters() const override { return parameters_; }
  std::vector<Value> outputs(std::span<const Value>) const override { return {{1}}; }
  void forward(const ModuleCall&, tsr_module_context**) override {}
  void backward(const ModuleCall&, tsr_module_context*) override {}
  const std::string fault;

 private:
  std::vector<Parameter> parameters_{{"weight", {3}}};
};

// Returns a value that the SDK would not allow.
tsr_code odd_parameter(void* self, uint32_t i, tsr_parameter* out, tsr_error* err) {
  const tsr_code code = Odd::table<Odd>.parameter(self, i, out, err);
  if (code != TSR_OK) return code;
  const std::string& fault = static_cast<const Odd*>(self)->fault;
  if (fault == "ndim") out->ndim = 9;
  if (fault == "size") out->shape[0] = -1;
  if (fault == "init") out->init = 77;
  if (fault == "type") out->dtype = dtype_of<double>();
  if (fault == "flags") out->flags = 0x10000;
  if (fault == "name") out->name = nullptr;
  return code;
}
tsr_module odd_table() {
  tsr_module table = Odd::table<Odd>;
  table.parameter = odd_parameter;
  return table;
}
const tsr_module kOddTable = odd_table();
constexpr tsr_component odd() {
  tsr_component c = component<Odd>({.id = "test.odd", .version = "0.1.0", .about = "to be refused"});
  c.api = &kOddTable;
  return c;
}

}  // namespace
}  // namespace tessera::test

TESSERA_PLUGIN("test.layers", "0.1.0",
               tessera::sdk::component<tessera::test::Norm>(
                   {.id = "test.norm", .version = "0.1.0", .about = "means over all ranks"}),
               tessera::sdk::component<tessera::test::Mixed>(
                   {.id = "test.mixed", .version = "0.1.0", .about = "jagged and integer inputs, two outputs"}),
               tessera::sdk::component<tessera::test::Blend>(
                   {.id = "test.blend", .version = "0.1.0", .about = "a weighted sum, and squares"}),
               tessera::sdk::component<tessera::test::Ragged>(
                   {.id = "test.ragged", .version = "0.1.0", .about = "sequences in and out"}),
               tessera::sdk::component<tessera::test::Marked>(
                   {.id = "test.marked", .version = "0.1.0", .about = "says when it runs backward"}),
               tessera::test::odd());
