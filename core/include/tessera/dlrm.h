// tessera/dlrm.h - the dense part of a DLRM (Naumov et al. 2019, arXiv:1906.00091) as a graph of layers: bottom MLP
// over the dense inputs, pairwise dot products of its output and all pooled embeddings, top MLP to one logit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/layer_graph.h"

namespace tessera {

struct DlrmOptions {
  int64_t dense_inputs = 0;         // values per sample
  int64_t num_embeddings = 0;       // pooled outputs (one per feature of a table)
  int64_t embedding_dim = 0;        // of all of them
  std::vector<int64_t> bottom_mlp;  // layer sizes behind the input; the last one is embedding_dim
  std::vector<int64_t> top_mlp;     // layer sizes behind the interaction; the last one is 1
  std::string mlp = "mlp";          // module plugins
  std::string interaction = "dot_interaction";
};

// Its parameters have TorchRec's names: "dense_arch.model._mlp.0._linear.weight", "over_arch.model.1.bias".
// kInvalidArgument where the sizes do not fit.
ModelGraph dlrm_graph(const DlrmOptions& options);
// With num_embeddings, and with embedding_dim where that is 0, of the tables. kInvalidArgument: a table of another
// dimension.
ModelGraph dlrm_graph(DlrmOptions options, const std::vector<EmbeddingBagConfig>& tables);

// Values per sample behind the interaction.
int64_t interaction_width(const DlrmOptions& options);

}  // namespace tessera
