// tessera/sdk/module.h - base class of a dense layer: forward, backward and named parameters.
//
// abi/module.h is the specification. All tensors are float32; the first dimension of inputs and outputs is the batch.
// A class C : Module that works on devices says which, and which layer it computes (in place of what has its id):
//   static constexpr int32_t kDeviceTypes[] = {kDLCUDA, 0};
//   static constexpr const char* kLayer = "mlp";
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/abi/module.h"
#include "tessera/sdk/plugin.h"
#include "tessera/sdk/structs.h"
#include "tessera/sdk/tensor.h"

namespace tessera::sdk {

struct Parameter {
  std::string name;            // "0.weight"
  std::vector<int64_t> shape;  // 1 to 4 dimensions
  int32_t init = TSR_INIT_ZERO;
};

struct ModuleForward {
  std::span<const DLTensor> inputs;      // [batch, width_i]
  std::span<const DLTensor> parameters;  // in the order of parameters()
  const DLTensor& output;                // [batch, width]
  tsr_stream stream;
};

struct ModuleBackward {
  std::span<const DLTensor> inputs;  // as at forward
  std::span<const DLTensor> parameters;
  const DLTensor& output;
  const DLTensor& grad_output;
  std::span<const DLTensor> grad_inputs;      // written; those with data NULL are not wanted
  std::span<const DLTensor> grad_parameters;  // added to
  tsr_stream stream;
};

class Module {
 public:
  virtual ~Module() = default;
  // Fixed after construction.
  virtual const std::vector<Parameter>& parameters() const = 0;
  // Values per sample of the output, given those of each input (0: unknown). Throws Failure for inputs that do not fit.
  virtual int64_t output_width(std::span<const int64_t> widths) const = 0;
  // `context` NULL: no backward will follow. Inputs and output stay as they are until backward.
  virtual void forward(const ModuleForward& args, tsr_module_context** context) = 0;
  virtual void backward(const ModuleBackward& args, tsr_module_context* context) = 0;
  // Frees a context or keeps it for the next forward. Called after backward too, whatever that did.
  virtual void release(tsr_module_context* context) noexcept = 0;

  static constexpr const char* kKind = TSR_MODULE_KIND;
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
  template <class C>
  static tsr_code parameter_slot(void* self, uint32_t i, tsr_parameter* out, tsr_error* err) noexcept {
    return guard(err, [&] {
      const std::vector<Parameter>& all = of<C>(self).parameters();
      if (i >= all.size()) fail(TSR_OUT_OF_RANGE, "there are ", all.size(), " parameters");
      const Parameter& p = all[i];
      if (p.shape.empty() || p.shape.size() > 4) fail(TSR_INTERNAL, p.name, " has ", p.shape.size(), " dimensions");
      tsr_parameter parameter{};
      parameter.init = p.init;
      parameter.name = p.name.c_str();
      parameter.ndim = static_cast<int32_t>(p.shape.size());
      std::copy(p.shape.begin(), p.shape.end(), parameter.shape);
      write_struct(parameter, out);
    });
  }
  template <class C>
  static tsr_code output_width_slot(void* self, uint32_t num_inputs, const int64_t* widths, int64_t* width,
                                    tsr_error* err) noexcept {
    return guard(err, [&] { *width = of<C>(self).output_width({widths, num_inputs}); });
  }
  template <class C>
  static tsr_code forward_slot(void* self, uint32_t num_inputs, const DLTensor* inputs, const DLTensor* parameters,
                               const DLTensor* output, tsr_stream stream, tsr_module_context** context,
                               tsr_error* err) noexcept {
    return guard(err, [&] {
      Module& module = of<C>(self);
      module.forward({{inputs, num_inputs}, {parameters, module.parameters().size()}, *output, stream}, context);
    });
  }
  template <class C>
  static tsr_code backward_slot(void* self, tsr_module_context* context, uint32_t num_inputs, const DLTensor* inputs,
                                const DLTensor* parameters, const DLTensor* output, const DLTensor* grad_output,
                                const DLTensor* grad_inputs, const DLTensor* grad_parameters, tsr_stream stream,
                                tsr_error* err) noexcept {
    Module& module = of<C>(self);
    const tsr_code code = guard(err, [&] {
      const size_t n = module.parameters().size();
      module.backward({{inputs, num_inputs},
                       {parameters, n},
                       *output,
                       *grad_output,
                       {grad_inputs, num_inputs},
                       {grad_parameters, n},
                       stream},
                      context);
    });
    module.release(context);
    return code;
  }
  template <class C>
  static void release_slot(void* self, tsr_module_context* context) noexcept {
    of<C>(self).release(context);
  }
};

template <class C>
constexpr tsr_module Module::table = {sizeof(tsr_module), 0,
                                      &parameter_slot<C>, &output_width_slot<C>,
                                      &forward_slot<C>,   &backward_slot<C>,
                                      &release_slot<C>,   device_types_of<C>(),
                                      layer_of<C>()};

}  // namespace tessera::sdk
