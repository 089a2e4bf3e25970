#include "tessera/dlrm.h"

#include <nlohmann/json.hpp>

#include "modules/dlrm_layers.h"

namespace tessera {
namespace {

std::string mlp_options(int64_t input, const std::vector<int64_t>& layers, const char* final_activation) {
  std::vector<int64_t> sizes{input};
  sizes.insert(sizes.end(), layers.begin(), layers.end());
  return nlohmann::json{{"layers", sizes}, {"final_activation", final_activation}}.dump();
}

}  // namespace

const DlrmOptions& checked(const DlrmOptions& o) {
  if (o.dense_inputs < 1) fail(Code::kInvalidArgument, "a dlrm needs dense inputs, and the data has none");
  if (o.bottom_mlp.empty() || o.bottom_mlp.back() != o.embedding_dim) {
    fail(Code::kInvalidArgument, "model.bottom_mlp must end with the embedding dimension ", o.embedding_dim);
  }
  if (o.top_mlp.empty() || o.top_mlp.back() != 1)
    fail(Code::kInvalidArgument, "model.top_mlp must end with 1, the logit");
  return o;
}

int64_t interaction_width(const DlrmOptions& o) {
  const int64_t n = o.num_embeddings + 1;
  return o.embedding_dim + n * (n - 1) / 2;
}

DenseLayerOptions bottom_options(const DlrmOptions& o) {
  return {o.mlp, mlp_options(o.dense_inputs, o.bottom_mlp, "relu"), "dense_arch", o.seed, o.stream, o.step};
}
DenseLayerOptions interaction_options(const DlrmOptions& o) {
  return {o.interaction, "{}", "inter_arch", o.seed, o.stream, o.step};
}
DenseLayerOptions top_options(const DlrmOptions& o) {
  return {o.mlp, mlp_options(interaction_width(o), o.top_mlp, "none"), "over_arch", o.seed, o.stream, o.step};
}

std::string torchrec_name(const std::string& name, size_t top_layers) {
  const size_t first = name.find('.'), second = name.find('.', first + 1);
  if (second == std::string::npos) return name;  // another kind of layer
  const std::string arch = name.substr(0, first), layer = name.substr(first + 1, second - first - 1),
                    leaf = name.substr(second);
  if (layer.find_first_not_of("0123456789") != std::string::npos || layer.size() > 6) return name;
  if (arch == "dense_arch") return arch + ".model._mlp." + layer + "._linear" + leaf;
  if (arch == "over_arch" && std::stoul(layer) + 1 == top_layers) return arch + ".model.1" + leaf;
  if (arch == "over_arch") return arch + ".model.0._mlp." + layer + "._linear" + leaf;
  return name;
}

bool Dlrm::trains_on(const DeviceStreamPtr& stream, const Runtime& runtime, const DlrmOptions& options) {
  return stream && stream->trains() && computes_layer(runtime, options.mlp, stream) &&
         computes_layer(runtime, options.interaction, stream);
}

Dlrm::Dlrm(const Runtime& runtime, const DlrmOptions& options)
    : bottom_(runtime, bottom_options(checked(options))),
      interaction_(runtime, interaction_options(options)),
      top_(runtime, top_options(options)) {
  const std::vector<int64_t> widths{options.embedding_dim, options.num_embeddings * options.embedding_dim};
  const int64_t width = interaction_.output_width(widths);
  if (width != interaction_width(options)) {
    fail(Code::kFailedPrecondition, "interaction \"", options.interaction, "\" gives ", width,
         " values per sample, the top MLP takes ", interaction_width(options));
  }
  for (const DenseLayer* layer : {&bottom_, &interaction_, &top_}) {
    const auto take = [&](const ParameterList& from, ParameterList& to) {
      for (const ParameterPtr& p : from) {
        p->name = torchrec_name(p->name, options.top_mlp.size());
        to.push_back(p);
      }
    };
    take(layer->parameters(), parameters_);
    take(layer->buffers(), buffers_);
  }
}

bool Dlrm::sums_over_ranks() const {
  return bottom_.sums_over_ranks() || interaction_.sums_over_ranks() || top_.sums_over_ranks();
}

std::vector<std::pair<std::string, std::string>> Dlrm::components() const {
  // The top layer is an MLP as the bottom one.
  return {{bottom_.module(), bottom_.component()}, {interaction_.module(), interaction_.component()}};
}

Tensor Dlrm::forward(const Tensor& dense, const Tensor& pooled, bool keep_for_backward) {
  const Tensor bottom = bottom_.forward({dense}, keep_for_backward);
  return top_.forward({interaction_.forward({bottom, pooled}, keep_for_backward)}, keep_for_backward);
}

Tensor Dlrm::backward_top(const Tensor& grad_logits) {
  const auto grads = interaction_.backward(top_.backward(grad_logits)[0]);
  grad_bottom_ = grads[0];
  return grads[1];
}

void Dlrm::backward_bottom() {
  bottom_.backward(grad_bottom_, {false});
  grad_bottom_ = {};
}

}  // namespace tessera
