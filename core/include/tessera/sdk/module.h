// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/module.h - base class of a layer: forward, backward, named parameters and buffers.
//
// abi/module.h is the specification. A class C : Module that works on devices declares which ones, and the layer that
// it computes (instead of the one with its id):
//   static constexpr int32_t kDeviceTypes[] = {kDLCUDA, 0};
//   static constexpr const char* kLayer = "mlp";
// A class that sums over ranks declares
//   static constexpr uint32_t kFlags = TSR_MODULE_SUMS_OVER_RANKS;
// A class with the option "precision" declares
//   static constexpr bool kPrecision = true;
// and if the option also takes "int8"
//   static constexpr bool kInt8 = true;
// A loss of classes (TSR_MODULE_CLASSES) declares
//   static constexpr bool kClasses = true;
// A class that computes each row by itself, whose outputs have the rows of its inputs, declares
//   static constexpr bool kRowByRow = true;
// It then takes sequences like batches: in outputs() and in the call, each row appears as a sample.
// A class that takes inputs that are split over the ranks (TSR_VALUE_SPLIT*) declares
//   static constexpr bool kTakesSplit = true;
// A class that works row by row also takes them. Other classes refuse such inputs.
// A class whose outputs are sequences with the rows of an input returns inputs[k].with_width(w) from outputs(). A class
// whose outputs have offsets of their own returns Value::own_rows(w), and overrides max_rows().
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/abi/module.h"
#include "tessera/sdk/plugin.h"
#include "tessera/sdk/structs.h"
#include "tessera/sdk/tensor.h"

namespace tessera::sdk {
inline namespace v1 {

// Start values of a parameter: TSR_INIT_* and its two values. The default is zeros.
struct Init {
  int32_t kind = TSR_INIT_CONSTANT;
  double a = 0, b = 0;
};
inline Init constant(double value) { return {TSR_INIT_CONSTANT, value, 0}; }
inline Init normal(double mean, double std) { return {TSR_INIT_NORMAL, mean, std}; }
inline Init uniform(double low, double high) { return {TSR_INIT_UNIFORM, low, high}; }
// PyTorch's xavier_normal_ for a matrix [out, in].
inline Init xavier_normal(int64_t out, int64_t in) { return normal(0, std::sqrt(2.0 / static_cast<double>(out + in))); }

// A parameter or a buffer.
struct Parameter {
  std::string name;            // "0.weight"
  std::vector<int64_t> shape;  // 1 to 4 dimensions; buffers may have none
  Init init = {};
  DLDataType dtype = dtype_of<float>();  // buffers: also int64
  bool int8_rows = false;                // TSR_PARAMETER_INT8_ROWS
};

// An input or output: rows of `width` values (0: unknown), one for each sample unless it is a sequence.
struct Value {
  int64_t width = 0;
  DLDataType dtype = dtype_of<float>();
  bool jagged = false;    // it is a sequence
  int32_t rows_like = 0;  // of a sequence: tsr_value::rows_like
  bool split = false;     // an input: TSR_VALUE_SPLIT
  bool split_in_evaluation = false;
  bool only_in_training = false;  // an input: TSR_VALUE_ONLY_IN_TRAINING
  bool only_in_evaluation = false;
  bool falls_with_label = false;  // an output: TSR_VALUE_FALLS_WITH_LABEL

  // A float32 value with the rows of this one: dense if this one is.
  Value with_width(int64_t values) const { return {values, dtype_of<float>(), jagged, rows_like}; }
  // An output with offsets of its own.
  static Value own_rows(int64_t width) { return {width, dtype_of<float>(), true, TSR_ROWS_OWN}; }
  // True for two inputs if row i of one belongs to row i of the other.
  bool has_rows_of(const Value& other) const {
    return jagged == other.jagged && (!jagged || rows_like == other.rows_like);
  }
};

// A tsr_module_call with spans instead of arrays. Gradients are empty in forward.
struct ModuleCall {
  bool trains;
  uint64_t seed;
  int64_t step, batch;
  std::span<const DLTensor> inputs;   // [rows, width]
  std::span<const DLTensor> offsets;  // of each input, data NULL: dense; empty: all are dense
  std::span<const DLTensor> parameters, buffers;
  std::span<const DLTensor> outputs;
  std::span<const DLTensor> output_offsets;   // of each output, data NULL: none of its own; empty: no output has
  std::span<const DLTensor> grad_outputs;     // data NULL: zeros
  std::span<const DLTensor> grad_inputs;      // written; data NULL: not wanted
  std::span<const DLTensor> grad_parameters;  // added to
  tsr_stream stream;
  const tsr_module_call& raw;

  bool sums_over_ranks() const { return raw.sum_over_ranks != nullptr; }
  int rank() const { return sums_over_ranks() ? raw.rank : 0; }
  int world_size() const { return sums_over_ranks() ? raw.world_size : 1; }
  // Adds up over the ranks, in place, if there are several. All ranks must call it equally often.
  void sum_over_ranks(const DLTensor& inout) const {
    Call call;
    if (sums_over_ranks()) call.check(raw.sum_over_ranks(raw.ranks, &inout, call.err()));
  }
};

class Module {
 public:
  virtual ~Module() = default;
  // Parameters and buffers are constant after construction. The default is none.
  virtual const std::vector<Parameter>& parameters() const { return none(); }
  virtual const std::vector<Parameter>& buffers() const { return none(); }
  // Returns the outputs for such inputs. Throws Failure if inputs do not fit.
  virtual std::vector<Value> outputs(std::span<const Value> inputs) const = 0;
  // Writes the most rows that each output with offsets of its own can have. Only sizes of `call` may be read.
  virtual void max_rows(const ModuleCall& /*call*/, std::span<int64_t> /*rows*/) const {
    fail(TSR_UNIMPLEMENTED, "a layer that gives a sequence with offsets of its own says how many rows it may have");
  }
  // `context` NULL: no backward follows.
  virtual void forward(const ModuleCall& call, tsr_module_context** context) = 0;
  virtual void backward(const ModuleCall& call, tsr_module_context* context) = 0;
  // Frees a context or keeps it for the next forward. The caller calls it after backward, or instead of it. A layer
  // whose forward makes no contexts has nothing to free.
  virtual void release(tsr_module_context* /*context*/) noexcept {}

  static constexpr const char* kKind = TSR_MODULE_KIND;
  static constexpr uint32_t kFlags = 0;
  template <class C>
  static const tsr_module table;

 private:
  static const std::vector<Parameter>& none() {
    static const std::vector<Parameter> parameters;
    return parameters;
  }
  template <class C>
  static Module& of(void* self) {
    return *static_cast<C*>(self);
  }
  template <class C>
  static constexpr const int32_t* device_types_of() {
    if constexpr (requires { C::kDeviceTypes; }) {
      return C::kDeviceTypes;
    } else {
      return nullptr;
    }
  }
  template <class C>
  static constexpr uint32_t flags_of() {
    uint32_t flags = C::kFlags;
    if constexpr (requires { C::kPrecision; }) flags |= C::kPrecision ? TSR_MODULE_PRECISION : 0;
    if constexpr (requires { C::kClasses; }) flags |= C::kClasses ? TSR_MODULE_CLASSES : 0;
    if constexpr (requires { C::kInt8; }) flags |= C::kInt8 ? TSR_MODULE_INT8 : 0;
    return flags;
  }
  template <class C>
  static constexpr bool row_by_row() {
    if constexpr (requires { C::kRowByRow; }) {
      return C::kRowByRow;
    } else {
      return false;
    }
  }
  template <class C>
  static constexpr bool takes_split() {
    if constexpr (requires { C::kTakesSplit; }) {
      return C::kTakesSplit;
    } else {
      return row_by_row<C>();
    }
  }
  // Makes inputs of a layer that works row by row dense. Returns the first of them as it was.
  static Value as_dense(std::vector<Value>& inputs) {
    if (inputs.empty()) return {};
    const Value first = inputs[0];
    for (size_t k = 0; k < inputs.size(); ++k) {
      Value& value = inputs[k];
      if (value.jagged != first.jagged) {
        fail(TSR_INVALID_ARGUMENT, "it works row by row, but input ", first.jagged ? 0 : k, " is a sequence and input ",
             first.jagged ? k : 0, " has one row for each sample: pool it first");
      }
      if (!value.has_rows_of(first)) {
        fail(TSR_INVALID_ARGUMENT, "it works row by row, but the sequences of inputs 0 and ", k,
             " have different rows");
      }
      value.jagged = false;
      value.rows_like = 0;
    }
    return first;
  }
  template <class C>
  static constexpr const char* layer_of() {
    if constexpr (requires { C::kLayer; }) {
      return C::kLayer;
    } else {
      return nullptr;
    }
  }
  static void list(const std::vector<Parameter>& all, uint32_t i, const char* what, tsr_parameter* out) {
    if (i >= all.size()) fail(TSR_OUT_OF_RANGE, "there are ", all.size(), " ", what);
    const Parameter& p = all[i];
    if (p.shape.size() > std::size(tsr_parameter{}.shape))
      fail(TSR_INTERNAL, p.name, " has ", p.shape.size(), " dimensions, but may have 4");
    tsr_parameter parameter{};
    parameter.flags = p.int8_rows ? TSR_PARAMETER_INT8_ROWS : 0;
    parameter.name = p.name.c_str();
    parameter.dtype = p.dtype;
    parameter.init = p.init.kind;
    parameter.init_values[0] = p.init.a;
    parameter.init_values[1] = p.init.b;
    parameter.ndim = static_cast<int32_t>(p.shape.size());
    std::copy(p.shape.begin(), p.shape.end(), parameter.shape);
    write_struct(parameter, out);
  }
  template <class C>
  static tsr_code parameter_slot(void* self, uint32_t i, tsr_parameter* out, tsr_error* err) noexcept {
    return guard(err, [&] { list(of<C>(self).parameters(), i, "parameters", out); });
  }
  template <class C>
  static tsr_code buffer_slot(void* self, uint32_t i, tsr_parameter* out, tsr_error* err) noexcept {
    return guard(err, [&] { list(of<C>(self).buffers(), i, "buffers", out); });
  }
  template <class C>
  static tsr_code output_slot(void* self, uint32_t i, uint32_t num_inputs, uint32_t stride, const tsr_value* inputs,
                              tsr_value* out, tsr_error* err) noexcept {
    return guard(err, [&] {
      constexpr uint32_t kSplit = TSR_VALUE_SPLIT | TSR_VALUE_SPLIT_IN_EVALUATION;
      std::vector<Value> values;
      for (uint32_t k = 0; k < num_inputs; ++k) {
        const auto* at = reinterpret_cast<const char*>(inputs) + size_t{k} * stride;
        const tsr_value value = read_struct(*reinterpret_cast<const tsr_value*>(at));
        check_flags(value.flags, TSR_VALUE_JAGGED | kSplit, "an input");
        const bool jagged = (value.flags & TSR_VALUE_JAGGED) != 0;
        if ((value.flags & kSplit) != 0 && !takes_split<C>())
          fail(TSR_INVALID_ARGUMENT, "each rank has other rows of input ", k, ", and this layer does not combine what ",
               "the ranks make of them: leave out \"split\"");
        if (jagged && (value.rows_like < 0 || value.rows_like > static_cast<int32_t>(k)))
          fail(TSR_INVALID_ARGUMENT, "input ", k, " has the rows of input ", value.rows_like,
               ", which is not before it");
        values.push_back({value.width, value.dtype, jagged, jagged ? value.rows_like : 0,
                          (value.flags & TSR_VALUE_SPLIT) != 0, (value.flags & TSR_VALUE_SPLIT_IN_EVALUATION) != 0,
                          (value.flags & TSR_VALUE_ONLY_IN_TRAINING) != 0,
                          (value.flags & TSR_VALUE_ONLY_IN_EVALUATION) != 0});
      }
      const Value rows = row_by_row<C>() ? as_dense(values) : Value{};
      const std::vector<Value> all = of<C>(self).outputs(values);
      if (i >= all.size()) fail(TSR_OUT_OF_RANGE, "there are ", all.size(), " outputs");
      const Value value = row_by_row<C>() ? rows.with_width(all[i].width) : all[i];
      const uint32_t flags =
          (value.jagged ? TSR_VALUE_JAGGED : 0) | (value.falls_with_label ? TSR_VALUE_FALLS_WITH_LABEL : 0);
      write_struct(tsr_value{sizeof(tsr_value), flags, value.dtype, value.jagged ? value.rows_like : 0, value.width},
                   out);
    });
  }
  static std::span<const DLTensor> tensors(const DLTensor* first, size_t count) {
    return first == nullptr ? std::span<const DLTensor>() : std::span(first, count);
  }
  // Calls body(module, call) with the arrays of `raw`.
  template <class C, class Body>
  static void with(void* self, const tsr_module_call* given, const Body& body) {
    const tsr_module_call raw = read_struct(*given);
    check_flags(raw.flags, TSR_MODULE_TRAIN, "the call");
    Module& module = of<C>(self);
    const size_t parameters = module.parameters().size();
    const bool rows = row_by_row<C>() && raw.num_inputs > 0;
    body(module,
         ModuleCall{(raw.flags & TSR_MODULE_TRAIN) != 0, raw.seed, raw.step, rows ? raw.inputs[0].shape[0] : raw.batch,
                    tensors(raw.inputs, raw.num_inputs), tensors(rows ? nullptr : raw.offsets, raw.num_inputs),
                    tensors(raw.parameters, parameters), tensors(raw.buffers, module.buffers().size()),
                    tensors(raw.outputs, raw.num_outputs), tensors(raw.output_offsets, raw.num_outputs),
                    tensors(raw.grad_outputs, raw.num_outputs), tensors(raw.grad_inputs, raw.num_inputs),
                    tensors(raw.grad_parameters, parameters), raw.stream, raw});
  }
  template <class C>
  static tsr_code forward_slot(void* self, const tsr_module_call* call, tsr_module_context** context,
                               tsr_error* err) noexcept {
    return guard(err, [&] {
      with<C>(self, call, [&](Module& module, const ModuleCall& args) { module.forward(args, context); });
    });
  }
  template <class C>
  static tsr_code backward_slot(void* self, const tsr_module_call* call, tsr_module_context* context,
                                tsr_error* err) noexcept {
    return guard(err, [&] {
      with<C>(self, call, [&](Module& module, const ModuleCall& args) { module.backward(args, context); });
    });
  }
  template <class C>
  static void release_slot(void* self, tsr_module_context* context) noexcept {
    of<C>(self).release(context);
  }
  template <class C>
  static tsr_code max_rows_slot(void* self, const tsr_module_call* call, int64_t* max_rows, tsr_error* err) noexcept {
    return guard(err, [&] {
      with<C>(self, call, [&](const Module& module, const ModuleCall& args) {
        module.max_rows(args, std::span(max_rows, args.raw.num_outputs));
      });
    });
  }
};

template <class C>
constexpr tsr_module Module::table = {sizeof(tsr_module),   flags_of<C>(),    &parameter_slot<C>, &buffer_slot<C>,
                                      &output_slot<C>,      &forward_slot<C>, &backward_slot<C>,  &release_slot<C>,
                                      device_types_of<C>(), layer_of<C>(),    &max_rows_slot<C>};

}  // namespace v1
}  // namespace tessera::sdk
