// Linear layers and activations that follow each other become one mlp, which plugins of devices compute too.
#include <algorithm>
#include <optional>

#include "onnx/layer_builder.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

class MlpMerger {
 public:
  MlpMerger(std::vector<ImportedLayer>& layers, std::vector<ImportedHead>& heads, std::set<std::string> taken)
      : layers_(layers), heads_(heads), taken_(std::move(taken)) {}

  void run() {
    for (const ImportedLayer& layer : layers_) {
      if (layer.type == "linear" && !gone_.contains(layer.name)) begin_at(layer);
    }
    std::vector<ImportedLayer> out;
    for (ImportedLayer& layer : layers_) {
      if (const auto made = mlps_.find(layer.name); made != mlps_.end())
        out.push_back(std::move(made->second));
      else if (!gone_.contains(layer.name))
        out.push_back(std::move(layer));
    }
    for (ImportedLayer& layer : out) {
      for (ValuePart& input : layer.inputs) input.name = renamed(input.name);
    }
    for (ImportedHead& head : heads_) head.input = renamed(head.input);
    layers_ = std::move(out);
  }

 private:
  // Returns the only layer that takes this layer's output, if it takes nothing else; nullptr: there is none.
  const ImportedLayer* next(const ImportedLayer& layer) const {
    const ImportedLayer* out = nullptr;
    for (const ImportedHead& head : heads_) {
      if (head.input == layer.name) return nullptr;
    }
    for (const ImportedLayer& l : layers_) {
      const auto is_output = [&](const ValuePart& input) { return input.name == layer.name; };
      if (std::none_of(l.inputs.begin(), l.inputs.end(), is_output)) continue;
      if (out != nullptr || l.inputs.size() != 1) return nullptr;
      out = &l;
    }
    return out;
  }

  // The activation of an mlp that this layer computes; nullopt: none.
  static std::optional<std::string> activation_of(const ImportedLayer* layer) {
    if (layer == nullptr || layer->type != "activation" || !layer->parameters.empty()) return std::nullopt;
    if (layer->options.contains("slope")) return std::nullopt;
    return layer->options.value("kind", std::string("relu"));
  }

  void begin_at(const ImportedLayer& first) {
    std::vector<const ImportedLayer*> chain = {&first};
    std::string activation, final_activation;
    std::set<std::string> passed = {first.name};
    const ImportedLayer* end = &first;  // its output is the mlp's
    while (const auto kind = activation_of(next(*end))) {
      end = next(*end);
      passed.insert(end->name);
      const ImportedLayer* const more = next(*end);
      const bool same = activation.empty() || activation == *kind;
      if (more == nullptr || more->type != "linear" || !same || gone_.contains(more->name) ||
          more->parameters.contains("bias") != first.parameters.contains("bias")) {
        final_activation = *kind;
        break;
      }
      activation = *kind;
      chain.push_back(more);
      passed.insert(more->name);
      end = more;
    }
    if (end == &first) return;
    ImportedLayer mlp;
    mlp.name = name_of(chain);
    mlp.type = "mlp";
    mlp.inputs = first.inputs;
    std::vector<int64_t> widths;
    for (size_t k = 0; k < chain.size(); ++k) {
      widths.push_back(chain[k]->parameters.at("weight").size(0));
      for (const auto& [name, tensor] : chain[k]->parameters) mlp.parameters[str_cat(k, '.', name)] = tensor;
    }
    mlp.options["widths"] = widths;
    if (!activation.empty() && activation != "relu") mlp.options["activation"] = activation;
    if (!final_activation.empty()) mlp.options["final_activation"] = final_activation;
    if (!first.parameters.contains("bias")) mlp.options["bias"] = false;
    names_[end->name] = mlp.name;
    gone_.merge(passed);
    mlps_[first.name] = std::move(mlp);
  }

  // Returns the beginning that the layers' names share, up to an "_": "deep" for deep_0 and deep_2.
  std::string name_of(const std::vector<const ImportedLayer*>& chain) {
    std::string out = chain[0]->name;
    if (chain.size() > 1) {
      for (const ImportedLayer* layer : chain) {
        const auto [a, b] = std::mismatch(out.begin(), out.end(), layer->name.begin(), layer->name.end());
        out.erase(a, out.end());
      }
      out = out.substr(0, out.rfind('_'));
      if (out.empty() || !taken_.insert(out).second) return chain[0]->name;
    }
    return out;
  }

  std::string renamed(const std::string& name) const {
    const auto found = names_.find(name);
    return found == names_.end() ? name : found->second;
  }

  std::vector<ImportedLayer>& layers_;
  std::vector<ImportedHead>& heads_;
  std::set<std::string> taken_, gone_;
  std::map<std::string, ImportedLayer> mlps_;  // by name of its first layer
  std::map<std::string, std::string> names_;
};

}  // namespace

void merge_into_mlps(std::vector<ImportedLayer>& layers, std::vector<ImportedHead>& heads,
                     const std::set<std::string>& taken) {
  MlpMerger(layers, heads, taken).run();
}

}  // namespace tessera::cli
