// tessera/dense.h - dense layers from module/1 plugins, and the loss of click models.
//
// A layer is used by one thread at a time, and has one forward in flight. The tensors that it returns belong to it and
// stay valid until the next forward. With a stream, everything is on its device and in its order, and nothing waits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/abi/module.h"
#include "tessera/device.h"
#include "tessera/optim.h"
#include "tessera/runtime.h"
#include "tessera/tensor.h"

namespace tessera {

// The place of a call: layers whose values depend on it get it with each forward.
struct StepInfo {
  int64_t step = 0;  // the same on all ranks; continues after a checkpoint is loaded
  int rank = 0;
  // Adds up a tensor over all ranks, in place; null: there is one rank. Only layers that need it call it
  // (sums_over_ranks), equally often on all ranks, in training steps and in their backward, and in evaluations if an
  // input is split there.
  std::function<void(const Tensor&)> sum_over_ranks;
  int world_size = 1;  // ranks that sum_over_ranks adds up
};

// An input of a layer: float32, int32 or int64 [rows, width]. With `offsets`, int64 [batch + 1], it is a sequence, and
// sample s has the rows [offsets[s], offsets[s + 1]); undefined: one row per sample. Inputs of a call share offsets if
// these are in the same memory. `flags`: those of a sequence besides TSR_VALUE_JAGGED.
struct DenseInput {
  DenseInput(Tensor rows) : values(std::move(rows)) {}
  DenseInput(Tensor rows, Tensor bounds, uint32_t more = 0)
      : values(std::move(rows)), offsets(std::move(bounds)), flags(more) {}
  Tensor values, offsets;
  uint32_t flags = 0;
};

// Renames a layer's parameters and buffers in checkpoints; the default is LAYER.NAME. Each pair is NAME, or its
// beginning up to a dot, and the replacement. A "*" stands for any one part between dots, the same in both:
// {"*.v.weight", "crossnet.V_kernels.*"}. If several fit, a literal part precedes "*", and a longer name precedes a
// shorter one.
using ParameterNames = std::vector<std::pair<std::string, std::string>>;

struct DenseLayerOptions {
  std::string module;                // a layer of a module/1 component: "mlp", "dot_interaction", "cross"
  std::string options = "{}";        // JSON
  std::string name;                  // prefix of its parameters' names: "bottom" gives "bottom.0.weight"
  uint64_t seed = 0;                 // start values depend only on seed and parameter name
  DeviceStreamPtr stream = nullptr;  // null: host memory
  // Widths of the inputs in a model's graph. The layer gets them as its option "inputs", unless it refuses that or
  // `options` has one. Empty: not passed.
  std::vector<int64_t> inputs = {};
  ParameterNames names = {};  // names in checkpoints; start values depend on `name`
  // True: parameters and buffers have shapes but no values, and the layer is never run.
  bool describes = false;
  // "bfloat16", "int8", "auto" (bfloat16, if it is faster): the option "precision" of layers that have it, unless
  // `options` gives one (TSR_MODULE_PRECISION, TSR_MODULE_INT8). kUnavailable: this machine lacks what it needs.
  std::string precision = "float32";
  // Parameters and buffers by name, shared by the layer, for a model that is not trained. kInvalidArgument: one is
  // missing, or has another shape or type. Null: start values.
  const std::map<std::string, Tensor>* values = nullptr;
};

// True if the layer has the option "precision" where it is computed, with this value other than "float32".
bool has_precision(const Runtime& runtime, const std::string& layer, const DeviceStreamPtr& stream,
                   const std::string& precision);
// True if the layer is a loss of classes (TSR_MODULE_CLASSES). False if no plugin has it for host memory.
bool is_loss_of_classes(const Runtime& runtime, const std::string& layer);

// True if a plugin has the layer for devices of the stream's type (abi/module.h says which component that is).
bool computes_layer(const Runtime& runtime, const std::string& layer, const DeviceStreamPtr& stream);

// The component chosen for a layer, and the other usable components of lower priority.
struct LayerChoice {
  std::string layer;
  std::string component;
  std::vector<std::string> instead_of;
};
// Lists every layer that plugins have for devices of this type (a DLDeviceType), by name. Opens and probes all modules.
std::vector<LayerChoice> layer_choices(const Runtime& runtime, int32_t device_type);

class DenseLayer {
 public:
  DenseLayer(const Runtime& runtime, DenseLayerOptions options);
  ~DenseLayer();
  DenseLayer(DenseLayer&&) noexcept;

  const std::string& module() const;     // the name in the options
  const std::string& component() const;  // the component that computes it

  // The parameters in the plugin's order. Gradients are defined from the start, unless `values` were given; backward
  // adds to them.
  const ParameterList& parameters() const;
  // Tensors that training forwards write and no optimizer trains. They are saved and restored with the parameters, and
  // have no gradients.
  const ParameterList& buffers() const;
  bool sums_over_ranks() const;
  // Values per sample of the first output, for float32 inputs of these widths. kInvalidArgument: they do not fit.
  int64_t output_width(std::span<const int64_t> widths) const { return output_widths(widths).front(); }
  // The widths of all outputs.
  std::vector<int64_t> output_widths(std::span<const int64_t> widths) const;
  // All outputs for inputs that abi/module.h describes, which include sequences. kInvalidArgument: they do not fit.
  std::vector<tsr_value> outputs_for(std::span<const tsr_value> inputs) const;

  // Returns the layer's outputs, float32 [rows_k, width_k]. Inputs must not change until backward. `train`: a training
  // step, which a backward may follow. `step` must not change until then. Neither call allocates once the largest batch
  // was seen.
  const std::vector<Tensor>& run(const std::vector<DenseInput>& inputs, bool train, const StepInfo& step = {});
  // Offsets of the last outputs, int64 [batch + 1]: of an input for a sequence with its rows; undefined: dense.
  const std::vector<Tensor>& output_offsets() const;
  // Does the same for inputs [batch, width_i], and returns the first output.
  Tensor forward(const std::vector<Tensor>& inputs, bool train, const StepInfo& step = {});
  // grad_outputs have the outputs' shapes; undefined: zeros. Returns one gradient per input; undefined: not wanted. All
  // floating-point inputs are wanted by default.
  const std::vector<Tensor>& backward(const std::vector<Tensor>& grad_outputs, const std::vector<bool>& wanted = {});
  const std::vector<Tensor>& backward(const Tensor& grad_output, const std::vector<bool>& wanted = {}) {
    return backward(std::vector{grad_output}, wanted);
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Labels of samples and factors of their losses (undefined: 1), both [n].
struct WeightedLabels {
  WeightedLabels(Tensor of_samples, Tensor factors = {}) : labels(std::move(of_samples)), weights(std::move(factors)) {}
  Tensor labels, weights;
};
// Binary cross-entropy of logits [n] and labels in [0, 1]. Returns the sum over the samples. `grad` (if defined, [n])
// gets the gradient of scale * sum.
double binary_cross_entropy_with_logits(const Tensor& logits, const WeightedLabels& to, const Tensor& grad,
                                        double scale);
// Does the same for tensors on a device that trains, in the order of their stream. `sum`, float64 [1], gets the sum.
void binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& labels, const Tensor& grad, double scale,
                                      const Tensor& sum);

}  // namespace tessera
