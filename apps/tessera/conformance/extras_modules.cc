// Single layers, feature processors, and batches whose size differs between features.
#include <algorithm>

#include "conformance/embedding_modules.h"
#include "conformance/extras.h"
#include "conformance/extras_net.h"
#include "conformance/parity/feature_processor.h"

namespace tessera::cli {
namespace {

using Names = std::vector<Net::Name>;

// A net of one layer over given.input, or over given.embeddings.
void run_layer(CaseContext& c, const std::string& layer, const json& options, const Names& names) {
  Net net(c);
  std::vector<std::pair<std::string, Net::Node>> inputs;
  if (c.given.contains("embeddings")) {
    for (size_t i = 0; i < c.given["embeddings"].size(); ++i)
      inputs.emplace_back(std::to_string(i), net.input(tensor_from(c.given["embeddings"][i])));
  } else if (c.given.contains("dense")) {
    for (const char* name : {"dense", "sparse"}) inputs.emplace_back(name, net.input(tensor_from(c.given.at(name))));
  } else {
    inputs.emplace_back("input", net.input(tensor_from(c.given.at("input"))));
  }
  std::vector<Net::Node> nodes;
  for (const auto& [name, node] : inputs) nodes.push_back(node);
  net.layer(layer, options, nodes, names);
  c.check.tensor("output", c.expect.at("output"), net.forward());
  net.backward(tensor_from(c.given.at("output_grad")));
  for (const auto& [name, node] : inputs) {
    const json& want = c.expect.at("input_grads").at(name);
    c.check.tensor("input_grads." + name, want,
                   net.gradient(node).reshape(want.at("shape").get<std::vector<int64_t>>()));
  }
}

void mlp_op(CaseContext& c) {
  const json& config = c.given.at("config");
  json options = {
      {"widths", config.at("layer_sizes")}, {"final_activation", config.at("activation")}, {"bias", config.at("bias")}};
  if (config.at("layer_sizes").size() > 1) options["activation"] = config.at("activation");
  run_layer(c, "mlp", options,
            {{R"(_mlp\.(\d+)\._linear\.(.*))", "$1.$2"},
             {R"(_mlp\.(\d+)\._activation_fn\.norm\.0\.(.*))", "$1.activation.norm.$2"}});
}

void perceptron_op(CaseContext& c) {
  const json& config = c.given.at("config");
  run_layer(c, "mlp", {{"widths", {config.at("out_size")}}, {"final_activation", config.at("activation")}},
            {{R"(_linear\.(.*))", "0.$1"}});
}

void cross_op(CaseContext& c, const char* kind, const Names& names) {
  const json& config = c.given.at("config");
  json options = {{"kind", kind}, {"layers", config.at("num_layers")}};
  if (config.contains("low_rank")) options["rank"] = config["low_rank"];
  if (config.contains("num_experts")) options["experts"] = config["num_experts"];
  if (config.contains("activation")) options["activation"] = config["activation"];
  run_layer(c, "cross", options, names);
}

void position_weights_op(CaseContext& c) {
  const json& config = c.given.contains("config") ? c.given["config"] : c.given;
  const PositionWeightedModuleCollection processor({{"f", config.at("max_feature_length").get<int64_t>()}});
  const json& lengths = c.given.at("lengths");
  KeyedJaggedTensor::Options options;
  options.keys = {"f"};
  options.lengths = lengths.is_array() ? Tensor::from(lengths.get<std::vector<int64_t>>()) : tensor_from(lengths);
  int64_t ids = 0;
  for (int64_t i = 0; i < options.lengths.numel(); ++i) ids += static_cast<int64_t>(options.lengths.item(i));
  options.values = c.given.contains("values") ? tensor_from(c.given["values"]) : Tensor::zeros({ids}, DType::kInt64);
  const KeyedJaggedTensor features(std::move(options));
  if (c.expect.contains("error")) return expect_refusal(c, [&] { processor.forward(features); });
  const Tensor weight = tensor_from(c.given.at("params").at("position_weight"));
  std::copy_n(weight.data<float>(), weight.numel(), processor.parameters()[0].weight.data<float>());
  c.check.tensor("output", c.expect.at("output"), processor.forward(features).weights());
  c.check.tensor("param_grads.position_weight", c.expect.at("param_grads").at("position_weight"),
                 processor.backward(features, tensor_from(c.given.at("output_grad")))[0]);
}

// Compares the output and the gradients of all tables; their names begin with `prefix`.
EmbeddingGradients run_tables(CaseContext& c, const KeyedJaggedTensor& features, bool weighted,
                              const std::string& prefix) {
  const json& tables = c.given.at("config").at("tables");
  CollectionOptions options{.tables = table_configs_from(tables, true), .is_weighted = weighted, .kernel = c.kernel};
  EmbeddingBagCollection collection(c.runtime, std::move(options));
  for (const json& t : tables) {
    const auto name = t.at("name").get<std::string>();
    collection.set_weight(name, tensor_from(c.given.at("params").at(prefix + name + ".weight")));
  }
  EmbeddingContext context;
  c.check.tensor("output", c.expect.at("output"), collection.forward(features, &context).values());
  EmbeddingGradients grads = collection.backward(std::move(context), tensor_from(c.given.at("output_grad")));
  for (const TableGradient& t : grads.tables) {
    const std::string name = prefix + t.table + ".weight";
    c.check.tensor("param_grads." + name, c.expect.at("param_grads").at(name), t.dense());
  }
  return grads;
}

void feature_processed_op(CaseContext& c) {
  std::vector<PositionWeightedModuleCollection::Feature> lengths;
  for (const auto& [feature, length] : c.given.at("config").at("max_feature_lengths").items())
    lengths.push_back({feature, length.get<int64_t>()});
  const PositionWeightedModuleCollection processor(lengths);
  const std::string prefix = "_feature_processors.position_weights.";
  for (const auto& p : processor.parameters()) {
    const Tensor weight = tensor_from(c.given.at("params").at(prefix + p.feature));
    std::copy_n(weight.data<float>(), weight.numel(), p.weight.data<float>());
  }
  const KeyedJaggedTensor features = kjt_from(c.given.at("features"));
  const EmbeddingGradients grads =
      run_tables(c, processor.forward(features), true, "_embedding_bag_collection.embedding_bags.");
  const std::vector<Tensor> got = processor.backward(features, grads.per_sample_weights);
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string name = prefix + processor.parameters()[i].feature;
    c.check.tensor("param_grads." + name, c.expect.at("param_grads").at(name), got[i]);
  }
}

void variable_batch_op(CaseContext& c) {
  json features = c.given.at("features");
  json strides = json::array();
  for (const json& stride : c.given.at("stride_per_key")) strides.push_back({stride});
  features["stride_per_key_per_rank"] = strides;
  features["inverse_indices"] = {{"keys", features.at("keys")}, {"indices", c.given.at("inverse_indices")}};
  run_tables(c, kjt_from(features), features.contains("weights"), "embedding_bags.");
}

}  // namespace

void add_extra_modules(OpTable& ops) {
  ops["extras/MLP"] = mlp_op;
  ops["extras/Perceptron"] = perceptron_op;
  ops["extras/SwishLayerNorm"] = [](CaseContext& c) {
    run_layer(c, "activation", {{"kind", "swish_layernorm"}}, {{R"(norm\.0\.(.*))", "norm.$1"}});
  };
  ops["extras/CrossNet"] = [](CaseContext& c) {
    cross_op(c, "full", {{R"(kernels\.(\d+))", "$1.weight"}, {R"(bias\.(\d+))", "$1.bias"}});
  };
  ops["extras/VectorCrossNet"] = [](CaseContext& c) {
    cross_op(c, "vector", {{R"(kernels\.(\d+))", "$1.weight"}, {R"(bias\.(\d+))", "$1.bias"}});
  };
  ops["extras/LowRankCrossNet"] = [](CaseContext& c) {
    cross_op(
        c, "low_rank",
        {{R"(W_kernels\.(\d+))", "$1.weight"}, {R"(V_kernels\.(\d+))", "$1.v.weight"}, {R"(bias\.(\d+))", "$1.bias"}});
  };
  ops["extras/LowRankMixtureCrossNet"] = [](CaseContext& c) {
    cross_op(c, "mixture",
             {{R"(U_kernels\.(\d+))", "$1.u.weight"},
              {R"(V_kernels\.(\d+))", "$1.v.weight"},
              {R"(C_kernels\.(\d+))", "$1.c.weight"},
              {R"(gates\.(\d+)\.weight)", "gates.weight[$1"},
              {R"(bias\.(\d+))", "$1.bias"}});
  };
  ops["extras/FactorizationMachine"] = [](CaseContext& c) { run_layer(c, "fm", json::object(), {}); };
  ops["extras/DeepFM"] = [](CaseContext& c) {
    run_layer(c, "linear", {{"width", tensor_from(c.given.at("output_grad")).size(1)}},
              {{R"(dense_module\.(.*))", "$1"}});
  };
  ops["extras/InteractionArch"] = [](CaseContext& c) { run_layer(c, "dot_interaction", json::object(), {}); };
  ops["extras/PositionWeightedModule"] = position_weights_op;
  ops["extras/FeatureProcessedEmbeddingBagCollection"] = feature_processed_op;
  ops["extras/EmbeddingBagCollection_VBE"] = variable_batch_op;
}

}  // namespace tessera::cli
