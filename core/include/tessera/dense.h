// tessera/dense.h - dense layers from module/1 plugins, and the loss of click models.
//
// A layer is used by one thread at a time and has one forward at a time in flight. Tensors it returns are its own and
// stay valid until the next forward. With a stream everything is on its device and in its order, and nothing waits.
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

// The state of a training step that a model's layers share. Set between steps.
struct DenseStep {
  int64_t step = 0;  // equal on all ranks, and goes on where a checkpoint was loaded
  int rank = 0;
  // Adds a tensor up over all ranks, in place; null: there is one. Only layers that need it call it (sums_over_ranks),
  // equally often on all ranks.
  std::function<void(const Tensor&)> sum_over_ranks;
};

// An input of a layer: float32, int32 or int64 [rows, width]. `offsets`: int64 [batch + 1] where it is jagged, sample s
// having the rows [offsets[s], offsets[s + 1]); undefined: a row for each sample.
struct DenseInput {
  DenseInput(Tensor rows) : values(std::move(rows)) {}
  DenseInput(Tensor rows, Tensor bounds) : values(std::move(rows)), offsets(std::move(bounds)) {}
  Tensor values, offsets;
};

// Names of a layer's parameters and buffers in checkpoints, instead of LAYER.NAME: NAME, or what it begins with up to a
// dot, and what stands there instead. A "*" is any one part between dots, the same in both: {"*.v.weight",
// "crossnet.V_kernels.*"}. Of several that fit, one with a part prevails over one with "*" there, and longer ones over
// shorter.
using ParameterNames = std::vector<std::pair<std::string, std::string>>;

struct DenseLayerOptions {
  std::string module;                // layer of a module/1 component: "mlp", "dot_interaction", "cross"
  std::string options = "{}";        // JSON
  std::string name;                  // before the names of its parameters: "bottom" gives "bottom.0.weight"
  uint64_t seed = 0;                 // start values depend on seed and parameter name alone
  DeviceStreamPtr stream = nullptr;  // null: host memory
  std::shared_ptr<const DenseStep> step = nullptr;  // null: step 0 of one rank
  // Widths of the inputs, in a model's graph: the layer is made with them as its option "inputs", and without where it
  // refuses that or `options` have it. Empty: not told.
  std::vector<int64_t> inputs = {};
  ParameterNames names = {};  // start values are those of `name`
  // Parameters and buffers have shapes and no values: the layer is never run.
  bool describes = false;
  // Parameters and buffers by name of a model that is not trained, which the layer shares. kInvalidArgument if
  // one is missing or has another shape or type. Null: start values.
  const std::map<std::string, Tensor>* values = nullptr;
};

// True if a plugin computes the layer on the devices of the stream's type (abi/module.h says which component that is).
bool computes_layer(const Runtime& runtime, const std::string& layer, const DeviceStreamPtr& stream);

// Which component computes a layer, and the usable others of the layer, of lower priority, that it prevails over.
struct LayerChoice {
  std::string layer;
  std::string component;
  std::vector<std::string> instead_of;
};
// Every layer that plugins compute on devices of this type (a DLDeviceType), by name. Opens and probes all modules.
std::vector<LayerChoice> layer_choices(const Runtime& runtime, int32_t device_type);

class DenseLayer {
 public:
  DenseLayer(const Runtime& runtime, DenseLayerOptions options);
  ~DenseLayer();
  DenseLayer(DenseLayer&&) noexcept;

  const std::string& module() const;     // as the options name it
  const std::string& component() const;  // that computes it

  // The parameters in the plugin's order. Gradients are defined from the start, unless values were given, and are added
  // to by backward.
  const ParameterList& parameters() const;
  // Not trained, written by forwards that train, saved and restored with the parameters. They have no gradients.
  const ParameterList& buffers() const;
  bool sums_over_ranks() const;
  // Values per sample of the first output, for float32 inputs of these widths. kInvalidArgument where they do not fit.
  int64_t output_width(std::span<const int64_t> widths) const { return output_widths(widths).front(); }
  // The widths of all outputs; `sequences` says which inputs have any number of rows a sample, `ids` which are int64;
  // empty: none.
  std::vector<int64_t> output_widths(std::span<const int64_t> widths, const std::vector<bool>& sequences = {},
                                     const std::vector<bool>& ids = {}) const;

  // Inputs must stay as they are until backward. Returns the layer's outputs, float32 [batch, width_k]. `train`: a step
  // of training, which a backward may follow. Neither asks for memory once as large a batch was there.
  const std::vector<Tensor>& run(const std::vector<DenseInput>& inputs, bool train);
  // The same for inputs [batch, width_i], and the first output of it.
  Tensor forward(const std::vector<Tensor>& inputs, bool train);
  // grad_outputs are shaped like the outputs; undefined: zeros. Returns one gradient per input; undefined where not
  // wanted (all floating-point ones are by default).
  const std::vector<Tensor>& backward(const std::vector<Tensor>& grad_outputs, const std::vector<bool>& wanted = {});
  const std::vector<Tensor>& backward(const Tensor& grad_output, const std::vector<bool>& wanted = {}) {
    return backward(std::vector{grad_output}, wanted);
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Labels of samples, and what their losses are multiplied with (undefined: 1), both [n].
struct WeightedLabels {
  WeightedLabels(Tensor of_samples, Tensor factors = {}) : labels(std::move(of_samples)), weights(std::move(factors)) {}
  Tensor labels, weights;
};
// Binary cross-entropy of logits [n] against labels in {0, 1} (or between): returns the sum over the samples, and in
// grad (if defined, [n]) the gradient of scale * sum.
double binary_cross_entropy_with_logits(const Tensor& logits, const WeightedLabels& to, const Tensor& grad,
                                        double scale);
// The same for tensors on a device that trains, in the order of their stream: the sum goes to `sum`, float64 [1].
void binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& labels, const Tensor& grad, double scale,
                                      const Tensor& sum);

}  // namespace tessera
