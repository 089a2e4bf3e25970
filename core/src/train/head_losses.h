// The losses of a model's heads: the core's own, or layers of module plugins.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "modules/id_inputs.h"
#include "tessera/data.h"
#include "tessera/head_metrics.h"
#include "tessera/layer_graph.h"
#include "tessera/runtime.h"

namespace tessera {

struct HeadLossesOptions {
  std::vector<std::string> labels;  // of batches; empty: one, which every head takes
  std::shared_ptr<const DenseStep> step = nullptr;
  DeviceStreamPtr stream = nullptr;  // where gradients are; null: host memory
};

class HeadLosses {
 public:
  // kInvalidArgument: a head whose input or groups its loss does not take, or whose label is none of those. kNotFound:
  // no plugin computes a loss.
  HeadLosses(const Runtime& runtime, const ModelGraph& graph, const LayerGraph& layers, HeadLossesOptions options);

  // In host memory: the sum over the samples of the head's loss, each times its weight. gradients() has that of scale *
  // sum then. kInvalidArgument: a label that the loss does not take, a sample that has not one id of the head's groups.
  double train(size_t head, const Tensor& input, const Batch& batch, double scale);
  // Which of the batch's labels the head takes.
  size_t label(size_t head) const { return labels_[head]; }
  // What the head takes is one value a sample, that a label is compared with.
  bool predicts(size_t head) const { return widths_[head] == 1; }
  std::vector<Prediction> predictions() const;  // of heads that predict
  // Room for the gradient of a head's input, [samples, 1].
  const Tensor& reserve(size_t head, int64_t samples);
  const std::vector<Tensor>& gradients() const { return grads_; }

 private:
  HeadLossesOptions options_;
  std::vector<HeadSpec> heads_;
  std::vector<size_t> labels_;                       // by head
  std::vector<int64_t> widths_;                      // by head
  std::vector<std::unique_ptr<DenseLayer>> losses_;  // by head; null: kOwnLoss
  std::vector<IdInputs> groups_;                     // by head, of one feature or none
  std::vector<Tensor> memory_, grads_;               // by head
};

// What can be the loss of a head of one value, by name: kOwnLoss, and layers without parameters that take it and the
// label and give one value a sample.
std::vector<std::string> loss_names(const Runtime& runtime);

}  // namespace tessera
