// Area "optimizer_wrappers": optimizers that run during backward, over real collections.
#include <algorithm>
#include <cctype>
#include <regex>

#include "conformance/embedding_modules.h"
#include "conformance/optimizer_wrappers.h"

namespace tessera::cli {
namespace {

// mean((output - target)^2) and its gradient; without a target, 0 is used.
double squared_loss(const Tensor& output, const Tensor& target, Tensor& grad) {
  grad = Tensor::empty(output.shape());
  const double n = static_cast<double>(output.numel());
  double loss = 0;
  for (int64_t i = 0; i < output.numel(); ++i) {
    const double difference = output.item(i) - (target.defined() ? target.item(i) : 0);
    loss += difference * difference / n;
    grad.data<float>()[i] = static_cast<float>(2 * difference / n);
  }
  return loss;
}

void apply_optimizer_in_backward_op(CaseContext& c) {
  EmbeddingBagCollection module(c.runtime, collection_options_from(c, true));
  set_table_weights(module, c.given.at("tables"));
  module.apply_optimizer_in_backward(dense_spec_from(c.given));
  const KeyedJaggedTensor batch = kjt_from(c.given.at("kjt"));
  const Tensor target = tensor_from(c.given.at("target"));
  const json& iterations = c.expect.at("iterations");
  for (size_t i = 0; i < iterations.size(); ++i) {
    const std::string field = str_cat("iteration ", i);
    const json& want = iterations[i];
    EmbeddingContext context;
    Tensor grad;
    const double loss = squared_loss(module.forward(batch, &context).values(), target, grad);
    const EmbeddingGradients gradients = module.backward(std::move(context), grad);
    c.check.number(field + ".loss", want.at("loss").get<double>(), loss);
    for (const auto& [table, weight] : want.at("weights").items()) {
      c.check.tensor(field + ".weights." + table, weight, module.weight(table));
    }
    if (want.contains("grad_is_none_after_backward")) {
      c.check.equal(field + ".grad_is_none", want["grad_is_none_after_backward"], gradients.tables.empty());
    }
  }
  const json& attributes = field_or_null(c.expect, "attributes");
  if (attributes.is_null()) return;
  for (const EmbeddingBagConfig& table : module.tables()) {
    const auto tag = module.in_backward_optimizer(table.name).value_or(DenseOptimizerSpec{});
    c.check.equal("_optimizer_classes", attributes.at("_optimizer_classes"), json::array({tag.name}));
    c.check.equal("_optimizer_kwargs", attributes.at("_optimizer_kwargs"), json::array({json::parse(tag.options)}));
  }
}

// Parses "RowWiseAdagrad (maps to EXACT_ROWWISE_ADAGRAD)", {"lr": ...}.
OptimizerSpec fused_spec_from(const json& given) {
  const std::string text = given.at("fused_optimizer").get<std::string>();
  std::smatch match;
  if (!std::regex_search(text, match, std::regex("maps to (\\w+)"))) {
    fail(Code::kInvalidArgument, "the case does not say which fused optimizer ", text, " is");
  }
  OptimizerSpec spec{.name = match[1].str()};
  for (char& letter : spec.name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  json options = given.at("fused_optimizer_kwargs");
  if (options.contains("lr")) {
    options["learning_rate"] = options["lr"];
    options.erase("lr");
  }
  spec.options = options.dump();
  return spec;
}

// Pooled rows -> linear layer "over" with one output -> mean(output^2). Tables are fused, "over" is updated by SGD.
class FusedModel {
 public:
  explicit FusedModel(const CaseContext& c) : ebc_(c.runtime, collection_options_from(c, true)) {
    set_table_weights(ebc_, c.given.at("tables"));
    ebc_.apply_optimizer_in_backward(fused_spec_from(c.given));
    weight_->name = "over.weight";
    weight_->value = tensor_from(c.given.at("linear_weight"));
    bias_->name = "over.bias";
    bias_->value = tensor_from(c.given.at("linear_bias"));
    fused_ = ebc_.fused_optimizer();
    auto sparse = std::make_shared<CombinedOptimizer>(std::vector<CombinedOptimizer::Member>{{"ebc", fused_}});
    const DenseOptimizerSpec dense{"sgd", c.given.at("dense_sgd_kwargs").dump()};
    optimizer_ = std::make_shared<CombinedOptimizer>(
        std::vector<CombinedOptimizer::Member>{{"", sparse}, {"", make_dense_optimizer(dense, {weight_, bias_})}});
    sparse_ = std::move(sparse);
  }

  double forward_backward(const KeyedJaggedTensor& batch) {
    EmbeddingContext context;
    const Tensor pooled = ebc_.forward(batch, &context).values();
    const int64_t samples = pooled.size(0), width = pooled.size(1);
    const float* w = weight_->value.data<float>();
    Tensor output = Tensor::empty({samples});
    for (int64_t b = 0; b < samples; ++b) {
      float sum = bias_->value.data<float>()[0];
      for (int64_t d = 0; d < width; ++d) sum += w[d] * pooled.data<float>()[b * width + d];
      output.data<float>()[b] = sum;
    }
    Tensor grad;
    const double loss = squared_loss(output, {}, grad);
    Tensor grad_pooled = Tensor::empty(pooled.shape());
    weight_->grad = Tensor::zeros(weight_->value.shape());
    bias_->grad = Tensor::zeros(bias_->value.shape());
    for (int64_t b = 0; b < samples; ++b) {
      const float g = grad.data<float>()[b];
      bias_->grad.data<float>()[0] += g;
      for (int64_t d = 0; d < width; ++d) {
        weight_->grad.data<float>()[d] += g * pooled.data<float>()[b * width + d];
        grad_pooled.data<float>()[b * width + d] = g * w[d];
      }
    }
    (void)ebc_.backward(std::move(context), grad_pooled);
    return loss;
  }

  // The values under the names of a model's state dict, sorted.
  std::vector<std::pair<std::string, Tensor>> values() const {
    std::vector<std::pair<std::string, Tensor>> out;
    for (size_t t = 0; t < ebc_.tables().size(); ++t) {
      out.emplace_back("ebc." + ebc_.state_dict_keys()[t], ebc_.weight(ebc_.tables()[t].name));
    }
    for (const ParameterPtr& p : {weight_, bias_}) out.emplace_back(p->name, p->value);
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return out;
  }

  CombinedOptimizer& optimizer() { return *optimizer_; }
  const KeyedOptimizer& sparse() const { return *sparse_; }

 private:
  EmbeddingBagCollection ebc_;
  ParameterPtr weight_ = std::make_shared<Parameter>(), bias_ = std::make_shared<Parameter>();
  KeyedOptimizerPtr fused_, sparse_;
  std::shared_ptr<CombinedOptimizer> optimizer_;
};

void check_values(CaseContext& c, const std::string& field, const json& want, const FusedModel& model) {
  for (const auto& [key, value] : model.values()) c.check.tensor(str_cat(field, ".", key), want.at(key), value);
}

void check_names(CaseContext& c, FusedModel& model) {
  std::vector<std::string> names;
  for (const auto& entry : model.values()) names.push_back(entry.first);
  c.check.equal("model_state_dict_keys", c.expect.at("model_state_dict_keys"), names);
  c.check.equal("fused_optimizer_param_keys", c.expect.at("fused_optimizer_param_keys"), model.sparse().param_keys());
  c.check.equal("combined_param_keys", c.expect.at("combined_param_keys"), model.optimizer().param_keys());
  json state_keys = json::object();
  for (const auto& [key, state] : model.optimizer().state()) {
    state_keys[key] = json::array();
    for (const auto& entry : state) state_keys[key].push_back(entry.first);
  }
  c.check.equal("optimizer_state_keys", c.expect.at("optimizer_state_keys"), state_keys);
  c.check.equal("repr", c.expect.at("repr"), model.optimizer().str());
  const std::vector<ParamGroup> groups = model.optimizer().param_groups();
  const json& wanted = c.expect.at("param_groups");
  c.check.equal("param_groups", wanted.size(), groups.size());
  for (size_t g = 0; g < std::min(wanted.size(), groups.size()); ++g) {
    std::vector<std::string> params = groups[g].params;
    std::sort(params.begin(), params.end());
    for (const auto& [option, value] : wanted[g].items()) {
      const std::string field = str_cat("param_groups.", g, ".", option);
      if (option == "params") {
        c.check.equal(field, value, params);
      } else {
        c.check.number(field, value.get<double>(), groups[g].number(option));
      }
    }
  }
}

void fused_ebc_op(CaseContext& c) {
  FusedModel model(c);
  const KeyedJaggedTensor batch = kjt_from(c.given.at("kjt"));
  const json& iterations = c.expect.at("iterations");
  for (size_t i = 0; i < iterations.size(); ++i) {
    const std::string field = str_cat("iteration ", i);
    const json& want = iterations[i];
    model.optimizer().zero_grad();
    c.check.number(field + ".loss", want.at("loss").get<double>(), model.forward_backward(batch));
    check_values(c, field + ".model_after_backward", want.at("model_after_backward"), model);
    model.optimizer().step();
    check_values(c, field + ".model_after_step", want.at("model_after_step"), model);
    check_optimizer_state(c, field + ".optimizer_state", want.at("optimizer_state"), model.optimizer().state());
  }
  check_names(c, model);
}

}  // namespace

OpTable in_backward_ops() {
  return {{"apply_optimizer_in_backward", apply_optimizer_in_backward_op}, {"fused_ebc_with_dense_sgd", fused_ebc_op}};
}

}  // namespace tessera::cli
