// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/module.h - base class of a layer: forward, backward, named parameters and buffers.
//
// abi/module.h is the specification. A class C : Module that works on devices declares which ones, and the layer that
// it computes (instead of the one with its id):
//   static constexpr int32_t kDeviceTypes[] = {kDLCUDA, 0};
//   static constexpr const char* kLayer = "mlp";
// A class that sums over ranks declares
//   static constexpr uint32_t kFlags = TSR_MODULE_SUMS_OVER_RANKS;
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
};

// An input or output: rows of `width` values (0: unknown), one per sample unless it is jagged.
struct Value {
  int64_t width = 0;
  DLDataType dtype = dtype_of<float>();
  bool jagged = false;
};

// A tsr_module_call with spans instead of arrays. Gradients are empty in forward.
struct ModuleCall {
  bool trains;
  uint64_t seed;
  int64_t step, batch;
  std::span<const DLTensor> inputs;   // [rows, width]
  std::span<const DLTensor> offsets;  // of each input, data NULL: not jagged; empty: none is jagged
  std::span<const DLTensor> parameters, buffers;
  std::span<const DLTensor> outputs;
  std::span<const DLTensor> grad_outputs;     // data NULL: zeros
  std::span<const DLTensor> grad_inputs;      // written; data NULL: not wanted
  std::span<const DLTensor> grad_parameters;  // added to
  tsr_stream stream;
  const tsr_module_call& raw;

  bool sums_over_ranks() const { return raw.sum_over_ranks != nullptr; }
  // Adds up over the ranks, in place, if there are several. All ranks must call it equally often.
  void sum_over_ranks(const DLTensor& inout) const {
    Call call;
    if (sums_over_ranks()) call.check(raw.sum_over_ranks(raw.ranks, &inout, call.err()));
  }
};

class Module {
 public:
  virtual ~Module() = default;
  // Constant after construction, as are buffers.
  virtual const std::vector<Parameter>& parameters() const = 0;
  virtual const std::vector<Parameter>& buffers() const {
    static const std::vector<Parameter> none;
    return none;
  }
  // Outputs for such inputs. Throws Failure if inputs do not fit.
  virtual std::vector<Value> outputs(std::span<const Value> inputs) const = 0;
  // `context` NULL: no backward follows.
  virtual void forward(const ModuleCall& call, tsr_module_context** context) = 0;
  virtual void backward(const ModuleCall& call, tsr_module_context* context) = 0;
  // Frees a context or keeps it for the next forward. Also called after backward, even if that failed.
  virtual void release(tsr_module_context* context) noexcept = 0;

  static constexpr const char* kKind = TSR_MODULE_KIND;
  static constexpr uint32_t kFlags = 0;
  template <class C>
  static const tsr_module table;

 private:
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
      std::vector<Value> values;
      for (uint32_t k = 0; k < num_inputs; ++k) {
        const auto* at = reinterpret_cast<const char*>(inputs) + size_t{k} * stride;
        const tsr_value value = read_struct(*reinterpret_cast<const tsr_value*>(at));
        check_flags(value.flags, TSR_VALUE_JAGGED, "an input");
        values.push_back({value.width, value.dtype, (value.flags & TSR_VALUE_JAGGED) != 0});
      }
      const std::vector<Value> all = of<C>(self).outputs(values);
      if (i >= all.size()) fail(TSR_OUT_OF_RANGE, "there are ", all.size(), " outputs");
      write_struct(tsr_value{sizeof(tsr_value), 0, all[i].dtype, 0, all[i].width}, out);
    });
  }
  static std::span<const DLTensor> tensors(const DLTensor* first, size_t count) {
    return first == nullptr ? std::span<const DLTensor>() : std::span(first, count);
  }
  // Calls body(module, call) with the arrays of `raw`.
  template <class C, class Body>
  static void with(void* self, const tsr_module_call* given, const Body& body) {
    const tsr_module_call raw = read_struct(*given);
    check_flags(raw.flags, 0, "the call");
    Module& module = of<C>(self);
    const size_t parameters = module.parameters().size();
    body(module, ModuleCall{(raw.flags & TSR_MODULE_TRAIN) != 0, raw.seed, raw.step, raw.batch,
                            tensors(raw.inputs, raw.num_inputs), tensors(raw.offsets, raw.num_inputs),
                            tensors(raw.parameters, parameters), tensors(raw.buffers, module.buffers().size()),
                            tensors(raw.outputs, raw.num_outputs), tensors(raw.grad_outputs, raw.num_outputs),
                            tensors(raw.grad_inputs, raw.num_inputs), tensors(raw.grad_parameters, parameters),
                            raw.stream, raw});
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
    const tsr_code code = guard(err, [&] {
      with<C>(self, call, [&](Module& module, const ModuleCall& args) { module.backward(args, context); });
    });
    of<C>(self).release(context);
    return code;
  }
  template <class C>
  static void release_slot(void* self, tsr_module_context* context) noexcept {
    of<C>(self).release(context);
  }
};

template <class C>
constexpr tsr_module Module::table = {sizeof(tsr_module),   C::kFlags,        &parameter_slot<C>, &buffer_slot<C>,
                                      &output_slot<C>,      &forward_slot<C>, &backward_slot<C>,  &release_slot<C>,
                                      device_types_of<C>(), layer_of<C>()};

}  // namespace v1
}  // namespace tessera::sdk
