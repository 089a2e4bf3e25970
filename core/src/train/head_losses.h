// The losses of a model's heads: the core's own, or layers of module plugins.
#pragma once

#include <memory>
#include <vector>

#include "tessera/layer_graph.h"
#include "tessera/runtime.h"

namespace tessera {

class HeadLosses {
 public:
  // kInvalidArgument: a head whose input its loss does not take. kNotFound: no plugin computes a loss. With a stream
  // gradients are on its device.
  HeadLosses(const Runtime& runtime, const ModelGraph& graph, const LayerGraph& layers,
             std::shared_ptr<const DenseStep> step, DeviceStreamPtr stream);

  // In host memory: the sum over the samples of the head's loss, each times its weight (undefined: 1). gradients() has
  // that of scale * sum then.
  double train(size_t head, const Tensor& input, const Tensor& labels, const Tensor& weights, double scale);
  // Room for the gradient of a head's input, [samples, 1].
  const Tensor& reserve(size_t head, int64_t samples);
  const std::vector<Tensor>& gradients() const { return grads_; }

 private:
  DeviceStreamPtr stream_;
  std::vector<std::unique_ptr<DenseLayer>> losses_;  // by head; null: kOwnLoss
  std::vector<Tensor> memory_, grads_;               // by head
};

}  // namespace tessera
