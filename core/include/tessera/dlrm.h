// tessera/dlrm.h - the dense part of a DLRM (Naumov et al. 2019, arXiv:1906.00091): bottom MLP over the dense inputs,
// pairwise dot products of its output and all pooled embeddings, top MLP to one logit.
//
// The embeddings come from outside, so that they may be sharded or not: forward takes their pooled output, backward
// gives its gradient back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/dense.h"

namespace tessera {

struct DlrmOptions {
  int64_t dense_inputs = 0;         // values per sample
  int64_t num_embeddings = 0;       // pooled outputs (one per feature of a table)
  int64_t embedding_dim = 0;        // of all of them
  std::vector<int64_t> bottom_mlp;  // layer sizes behind the input; the last one is embedding_dim
  std::vector<int64_t> top_mlp;     // layer sizes behind the interaction; the last one is 1
  std::string mlp = "mlp";          // module plugins
  std::string interaction = "dot_interaction";
  uint64_t seed = 0;
  DeviceStreamPtr stream = nullptr;  // where all of it is; null: host memory
  std::shared_ptr<const DenseStep> step = nullptr;
};

class Dlrm {
 public:
  // Whether a DLRM of these layers can be trained on the stream's device: its part lends the arithmetic, and plugins
  // compute the layers there. False for null.
  static bool trains_on(const DeviceStreamPtr& stream, const Runtime& runtime, const DlrmOptions& options);

  // kInvalidArgument where the sizes do not fit.
  Dlrm(const Runtime& runtime, const DlrmOptions& options);

  // Parameters with TorchRec's names: "dense_arch.model._mlp.0._linear.weight", "over_arch.model.1.bias".
  const ParameterList& parameters() const { return parameters_; }
  const ParameterList& buffers() const { return buffers_; }
  bool sums_over_ranks() const;  // whether a layer needs DenseStep::sum_over_ranks
  // Which plugins compute it: (layer, component), each layer once.
  std::vector<std::pair<std::string, std::string>> components() const;
  static constexpr const char* kCollectionPath = "sparse_arch.embedding_bag_collection";

  // dense [B, dense_inputs], pooled [B, num_embeddings * embedding_dim]; both stay as they are until backward. Returns
  // logits [B, 1].
  Tensor forward(const Tensor& dense, const Tensor& pooled, bool keep_for_backward);
  // grad_logits [B, 1]. Adds to the parameters' gradients and returns that of `pooled`. The bottom MLP's share is left
  // to backward_bottom(), so that the embeddings' gradients can travel meanwhile.
  Tensor backward_top(const Tensor& grad_logits);
  void backward_bottom();

 private:
  DenseLayer bottom_, interaction_, top_;
  ParameterList parameters_, buffers_;
  Tensor grad_bottom_;
};

}  // namespace tessera
