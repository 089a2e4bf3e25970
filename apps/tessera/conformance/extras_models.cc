// Whole models, as graphs of layers after their tables.

#include "conformance/extras.h"
#include "conformance/extras_net.h"

namespace tessera::cli {
namespace {

using Names = std::vector<Net::Name>;

// The common part of the DLRMs: tables, dense values through an mlp with ReLU after every layer, an interaction, and an
// mlp whose last layer is plain.
struct Dlrm {
  CaseContext& c;
  Net net;
  std::string prefix;  // prefix of all names
  Net::Node pooled, dense;

  Dlrm(CaseContext& context, const std::string& names_begin)
      : c(context),
        net(context),
        prefix(names_begin),
        pooled(net.embeddings(config().at("tables"), c.given.at("sparse_features"),
                              prefix + "sparse_arch.embedding_bag_collection.embedding_bags.")),
        dense(stack({net.input(tensor_from(c.given.at("dense_features")))}, "dense_arch.model.",
                    config().at("dense_arch_layer_sizes"))) {}

  const json& config() const { return c.given.at("config"); }
  std::string pattern(const std::string& name) const {
    return std::regex_replace(prefix + name, std::regex(R"(\.)"), R"(\.)");
  }
  Net::Node stack(const std::vector<Net::Node>& from, const std::string& name, const json& widths) {
    return net.layer("mlp", {{"widths", widths}, {"final_activation", "relu"}}, from,
                     {{pattern(name + "_mlp.") + R"((\d+)\._linear\.(.*))", "$1.$2"}});
  }
  void over(const std::vector<Net::Node>& from) {
    const json& widths = config().at("over_arch_layer_sizes");
    net.layer("mlp", {{"widths", widths}}, from,
              {{pattern("over_arch.model.0._mlp.") + R"((\d+)\._linear\.(.*))", "$1.$2"},
               {pattern("over_arch.model.1.") + "(.*)", str_cat(widths.size() - 1, ".$1")}});
  }
  void finish() {
    c.check.tensor("output", c.expect.at("output"), net.forward());
    net.backward(tensor_from(c.given.at("output_grad")));
  }
};

void dlrm_op(CaseContext& c) {
  Dlrm model(c, "");
  model.over({model.net.layer("dot_interaction", json::object(), {model.dense, model.pooled}, {})});
  model.finish();
}

void dlrm_dcn_op(CaseContext& c) {
  Dlrm model(c, "");
  const std::string net = "inter_arch.crossnet.";
  const Names names = {{model.pattern(net + "W_kernels.") + R"((\d+))", "$1.weight"},
                       {model.pattern(net + "V_kernels.") + R"((\d+))", "$1.v.weight"},
                       {model.pattern(net + "bias.") + R"((\d+))", "$1.bias"}};
  model.over({model.net.layer("cross",
                              {{"kind", "low_rank"},
                               {"layers", model.config().at("dcn_num_layers")},
                               {"rank", model.config().at("dcn_low_rank_dim")}},
                              {model.dense, model.pooled}, names)});
  model.finish();
}

void dlrm_projection_op(CaseContext& c) {
  Dlrm model(c, "");
  const std::vector<Net::Node> both = {model.dense, model.pooled};
  const Net::Node a =
      model.stack(both, "inter_arch.interaction_branch1.model.", model.config().at("interaction_branch1_layer_sizes"));
  const Net::Node b =
      model.stack(both, "inter_arch.interaction_branch2.model.", model.config().at("interaction_branch2_layer_sizes"));
  const json& dim = model.config().at("tables").at(0).at("embedding_dim");
  model.over({model.dense, model.net.layer("matmul", {{"dim", dim}}, {a, b}, {})});
  model.finish();
}

void dlrm_train_op(CaseContext& c) {
  Dlrm model(c, "model.");
  model.over({model.net.layer("dot_interaction", json::object(), {model.dense, model.pooled}, {})});
  const Tensor labels = tensor_from(c.given.at("labels"));
  const Tensor logits = model.net.forward().reshape({-1}), grad = Tensor::empty(labels.shape());
  const double each = 1 / static_cast<double>(labels.numel());
  const double loss = binary_cross_entropy_with_logits(logits, labels, grad, each) * each;
  c.check.tensor("logits", c.expect.at("logits"), logits);
  c.check.tensor("loss", c.expect.at("loss"), Tensor::scalar(static_cast<float>(loss)));
  model.net.backward(grad);
}

void deepfm_op(CaseContext& c) {
  const json& config = c.given.at("config");
  Net net(c);
  const Net::Node pooled = net.embeddings(config.at("tables"), c.given.at("sparse_features"),
                                          "sparse_arch.embedding_bag_collection.embedding_bags.");
  const json& dim = config.at("tables").at(0).at("embedding_dim");
  const Net::Node dense =
      net.layer("mlp", {{"widths", {config.at("hidden_layer_size"), dim}}, {"final_activation", "relu"}},
                {net.input(tensor_from(c.given.at("dense_features")))},
                {{R"(dense_arch\.model\.0\.(.*))", "0.$1"}, {R"(dense_arch\.model\.2\.(.*))", "1.$1"}});
  const std::vector<Net::Node> all = {dense, pooled};
  const Net::Node deep = net.layer("mlp", {{"widths", {config.at("deep_fm_dimension")}}, {"final_activation", "relu"}},
                                   all, {{R"(inter_arch\.deep_fm\.dense_module\.0\.(.*))", "0.$1"}});
  const Net::Node fm = net.layer("fm", json::object(), all, {});
  net.layer("mlp", {{"widths", {1}}, {"final_activation", "sigmoid"}}, {dense, deep, fm},
            {{R"(over_arch\.model\.0\.(.*))", "0.$1"}});
  c.check.tensor("output", c.expect.at("output"), net.forward());
  net.backward(tensor_from(c.given.at("output_grad")));
}

// Returns 2 for "Linear(8,2)".
int64_t outputs_of(const std::string& linear) { return std::stoll(linear.substr(linear.find(',') + 1)); }

void towers_op(CaseContext& c) {
  Net net(c);
  std::vector<Net::Node> towers;
  const json& given = c.given.at("config").at("towers");
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string name = str_cat("towers.", i);
    const Net::Node pooled =
        net.embeddings(given[i].at("tables"), c.given.at("features"), name + ".embedding.embedding_bags.");
    towers.push_back(net.layer("linear", {{"width", outputs_of(given[i].at("interaction").get<std::string>())}},
                               {pooled}, {{str_cat(R"(towers\.)", i, R"(\.interaction\.linear\.(.*))"), "$1"}}));
  }
  net.layer("concat", json::object(), towers, {});
  c.check.tensor("output", c.expect.at("output"), net.forward());
  net.backward(tensor_from(c.given.at("output_grad")));
}

}  // namespace

void add_extra_models(OpTable& ops) {
  ops["extras/DLRM"] = dlrm_op;
  ops["extras/DLRM_DCN"] = dlrm_dcn_op;
  ops["extras/DLRM_Projection"] = dlrm_projection_op;
  ops["extras/DLRMTrain"] = dlrm_train_op;
  ops["extras/SimpleDeepFMNN"] = deepfm_op;
  ops["extras/EmbeddingTowerCollection"] = towers_op;
}

}  // namespace tessera::cli
