// The losses of a model's heads: the core's own, or layers from module plugins.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "modules/id_inputs.h"
#include "tessera/data.h"
#include "tessera/layer_graph.h"
#include "tessera/metrics.h"
#include "tessera/runtime.h"

namespace tessera {

struct HeadLossesOptions {
  std::vector<std::string> labels;   // names of the batches' labels; empty: one label for all heads
  DeviceStreamPtr stream = nullptr;  // where gradients live; null: host memory
};

class HeadLosses {
 public:
  // kInvalidArgument: a loss does not take its head's input or groups, or a head's label is not in `labels`. kNotFound:
  // no plugin has the loss.
  HeadLosses(const Runtime& runtime, const ModelGraph& graph, const LayerGraph& layers, HeadLossesOptions options);

  // Works in host memory. Returns the weighted sum of the head's loss over the samples. gradients() then holds the
  // gradient of scale * sum. kInvalidArgument: the loss does not take a label, or a sample does not have exactly one id
  // for the head's groups.
  double train(size_t head, const Tensor& input, const Batch& batch, double scale, const StepInfo& step);
  // Index of the head's label in the batch.
  size_t label(size_t head) const { return labels_[head]; }
  // True if the head's values are compared with a label: one value per sample, or one for each class.
  bool predicts(size_t head) const { return of_classes_[head] || (widths_[head] == 1 && !falls_[head]); }
  // Says why metrics cannot judge a head; empty: they can.
  std::string why_no_metrics(size_t head) const;
  std::vector<Prediction> predictions() const;  // only of heads that predict
  // Reserves memory for the gradient of a head's input, [samples, 1].
  const Tensor& reserve(size_t head, int64_t samples);
  const std::vector<Tensor>& gradients() const { return grads_; }

 private:
  // Factors of a batch's samples in a head's loss, [B]; undefined: 1 for all.
  Tensor weights_of(size_t head, const Batch& batch, const Tensor& labels);

  HeadLossesOptions options_;
  std::vector<HeadSpec> heads_;
  std::vector<size_t> labels_;                       // by head
  std::vector<std::optional<size_t>> where_;         // by head, Prediction::where
  std::vector<int64_t> widths_;                      // by head
  std::vector<bool> of_classes_;                     // by head: its loss is one of classes
  std::vector<bool> values_;                         // by head: its value is a loss or a rank, which no label is like
  std::vector<bool> falls_;                          // by head: smaller values are those of larger labels
  std::vector<std::unique_ptr<DenseLayer>> losses_;  // by head; null: kOwnLoss
  std::vector<IdInputs> groups_;                     // by head, of one feature or none
  std::vector<Tensor> memory_, grads_;               // by head
  Tensor counted_, weights_, smoothed_;              // memory of a step: weights_of(), labels
};

// Names of the losses that a head with one value can have: kOwnLoss, and parameter-free layers that take the value, the
// label and perhaps groups, and give one value per sample.
std::vector<std::string> loss_names(const Runtime& runtime);

}  // namespace tessera
