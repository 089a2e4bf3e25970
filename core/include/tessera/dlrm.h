// tessera/dlrm.h - the dense part of a DLRM (Naumov et al. 2019, arXiv:1906.00091) as a graph of layers. A bottom MLP
// takes the dense inputs. Dot products of its output and all pooled embeddings go through a top MLP to one logit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/layer_graph.h"

namespace tessera {

struct DlrmOptions {
  int64_t dense_inputs = 0;         // values per sample
  int64_t num_embeddings = 0;       // pooled outputs (one per table feature)
  int64_t embedding_dim = 0;        // the same for all
  std::vector<int64_t> bottom_mlp;  // layer sizes after the input; the last one is embedding_dim
  std::vector<int64_t> top_mlp;     // layer sizes after the interaction; the last one is 1
  std::string mlp = "mlp";          // module plugins
  std::string interaction = "dot_interaction";
};

// Parameters have TorchRec's names: "dense_arch.model._mlp.0._linear.weight", "over_arch.model.1.bias".
// kInvalidArgument: the sizes do not fit each other.
ModelGraph dlrm_graph(const DlrmOptions& options);
// Takes num_embeddings from the tables, and embedding_dim if it is 0. kInvalidArgument: a table has another dimension.
ModelGraph dlrm_graph(DlrmOptions options, const std::vector<EmbeddingBagConfig>& tables);

// Values per sample after the interaction.
int64_t interaction_width(const DlrmOptions& options);

}  // namespace tessera
