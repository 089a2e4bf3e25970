#include "tessera/layer_graph.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

void check(const DlrmOptions& o) {
  if (o.dense_inputs < 1) fail(Code::kInvalidArgument, "a dlrm needs dense inputs, but the data has none");
  const auto end_of = [](const std::vector<int64_t>& mlp) {
    return mlp.empty() ? std::string("is empty") : str_cat("ends with ", mlp.back());
  };
  if (o.bottom_mlp.empty() || o.bottom_mlp.back() != o.embedding_dim) {
    fail(Code::kInvalidArgument, "model.bottom_mlp must end with the embedding dimension ", o.embedding_dim, ", but ",
         end_of(o.bottom_mlp));
  }
  if (o.top_mlp.empty() || o.top_mlp.back() != 1)
    fail(Code::kInvalidArgument, "model.top_mlp must end with 1, the logit, but ", end_of(o.top_mlp));
}

std::string mlp_options(int64_t input, const std::vector<int64_t>& layers, const char* final_activation) {
  std::vector<int64_t> sizes{input};
  sizes.insert(sizes.end(), layers.begin(), layers.end());
  return nlohmann::json{{"layers", sizes}, {"final_activation", final_activation}}.dump();
}

// Returns TorchRec's names of that many linear layers.
ParameterNames mlp_names(const std::string& path, size_t layers) {
  ParameterNames out;
  for (size_t k = 0; k < layers; ++k) out.emplace_back(str_cat(k), str_cat(path, "._mlp.", k, "._linear"));
  return out;
}
// TorchRec's last layer is a plain Linear after the others.
ParameterNames top_names(const DlrmOptions& o) {
  ParameterNames out = mlp_names("over_arch.model.0", o.top_mlp.size() - 1);
  out.emplace_back(str_cat(o.top_mlp.size() - 1), "over_arch.model.1");
  return out;
}

}  // namespace

int64_t interaction_width(const DlrmOptions& o) {
  const int64_t n = o.num_embeddings + 1;
  return o.embedding_dim + n * (n - 1) / 2;
}

ModelGraph dlrm_graph(const DlrmOptions& o) {
  check(o);
  ModelGraph graph{.dense_width = o.dense_inputs, .pooled_width = o.num_embeddings * o.embedding_dim};
  graph.inputs = {{"dense", GraphInput::kDense, 0, graph.dense_width},
                  {"pooled", GraphInput::kPooled, 0, graph.pooled_width}};
  graph.layers = {{"dense_arch", o.mlp, {"dense"}, mlp_options(o.dense_inputs, o.bottom_mlp, "relu")},
                  {"inter_arch", o.interaction, {"dense_arch", "pooled"}},
                  {"over_arch", o.mlp, {"inter_arch"}, mlp_options(interaction_width(o), o.top_mlp, "none")}};
  graph.layers[0].names = mlp_names("dense_arch.model", o.bottom_mlp.size());
  graph.layers[2].names = top_names(o);
  graph.heads = {{"logit", "over_arch"}};
  return graph;
}

ModelGraph dlrm_graph(DlrmOptions options, const std::vector<EmbeddingBagConfig>& tables) {
  options.num_embeddings = 0;
  for (const EmbeddingBagConfig& t : tables) {
    if (options.embedding_dim == 0) options.embedding_dim = t.embedding_dim;
    if (t.embedding_dim != options.embedding_dim) {
      fail(Code::kInvalidArgument, "table ", t.name, " has dimension ", t.embedding_dim, ", but a dlrm needs ",
           options.embedding_dim, " for all (model.embedding_dim)");
    }
    options.num_embeddings += static_cast<int64_t>(std::max<size_t>(1, t.feature_names.size()));
  }
  return dlrm_graph(options);
}

}  // namespace tessera
