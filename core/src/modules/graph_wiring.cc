#include "tessera/layer_graph.h"

#include <algorithm>
#include <map>
#include <span>

#include "tessera/sdk/nearest.h"

namespace tessera {
namespace {

// Allowed in names.
constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

// The names of inputs and layers, each used once.
class Names {
 public:
  explicit Names(const ModelGraph& graph) {
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      if (!all_.emplace(graph.inputs[i].name, GraphLink{false, i}).second)
        fail(Code::kInvalidArgument, "two inputs of the model are called \"", graph.inputs[i].name, '"');
    }
    for (size_t i = 0; i < graph.layers.size(); ++i) add_layer(graph.layers[i], i);
  }

  GraphLink find(const std::string& name, const std::string& who) const {
    if (const auto found = all_.find(name); found != all_.end()) return found->second;
    const size_t colon = name.rfind(':');
    const bool numbered = colon != std::string::npos && name.size() - colon > 1 && name.size() - colon < 6 &&
                          name.find_first_not_of("0123456789", colon + 1) == std::string::npos;
    if (const auto found = all_.find(name.substr(0, colon)); numbered && found != all_.end() && found->second.of_layer)
      return {true, found->second.index, std::stoul(name.substr(colon + 1))};
    std::vector<std::string> known;
    for (const auto& [one, link] : all_) known.push_back(one);
    fail(Code::kInvalidArgument, who, " takes \"", name, "\", which is neither an input of the model nor a layer",
         sdk::nearest_text(name, known));
  }

 private:
  void add_layer(const LayerSpec& layer, size_t index) {
    if (layer.name.empty()) fail(Code::kInvalidArgument, "layer ", index, " has no name");
    if (layer.name.find_first_not_of(kLetters) != std::string::npos)
      fail(Code::kInvalidArgument, "a layer is called \"", layer.name,
           "\", but its name may have only letters, digits, \"_\" and \"-\"");
    if (layer.type.empty()) fail(Code::kInvalidArgument, "the layer \"", layer.name, "\" has no type");
    if (layer.inputs.empty()) fail(Code::kInvalidArgument, "the layer \"", layer.name, "\" takes no inputs");
    const auto [at, fresh] = all_.emplace(layer.name, GraphLink{true, index});
    if (fresh) return;
    if (at->second.of_layer) fail(Code::kInvalidArgument, "two layers are called \"", layer.name, '"');
    fail(Code::kInvalidArgument, "the layer \"", layer.name,
         "\" has the name of an input of the model: give it another name");
  }
  std::map<std::string, GraphLink> all_;
};

// Finds an order in which layers can run. It prefers the order in which they are written.
class Order {
 public:
  Order(const ModelGraph& graph, const GraphWiring& wiring)
      : graph_(graph), wiring_(wiring), state_(graph.layers.size(), kNew) {
    for (size_t i = 0; i < graph.layers.size(); ++i) visit(i);
  }
  std::vector<size_t> take() { return std::move(order_); }

 private:
  enum State : uint8_t { kNew, kOpen, kDone };
  void visit(size_t layer) {
    if (state_[layer] == kDone) return;
    if (state_[layer] == kOpen) refuse_circle(layer);
    state_[layer] = kOpen;
    path_.push_back(layer);
    for (const GraphLink& link : wiring_.inputs[layer]) {
      if (link.of_layer) visit(link.index);
    }
    path_.pop_back();
    state_[layer] = kDone;
    order_.push_back(layer);
  }
  [[noreturn]] void refuse_circle(size_t layer) const {
    std::string text = str_cat('"', graph_.layers[layer].name, '"');
    for (auto at = std::find(path_.begin(), path_.end(), layer) + 1; at != path_.end(); ++at)
      text += str_cat(" takes \"", graph_.layers[*at].name, "\", which");
    fail(Code::kInvalidArgument, "the layers form a circle: ", text, " takes \"", graph_.layers[layer].name, '"');
  }
  const ModelGraph& graph_;
  const GraphWiring& wiring_;
  std::vector<State> state_;
  std::vector<size_t> path_, order_;
};

// Returns a sentence about a layer that takes an input of the model with nearly this name. Before data is read, any
// name may be one of its tables.
std::string misspelt(const std::string& name, const ModelGraph& graph, const GraphWiring& wiring) {
  for (size_t layer = 0; layer < graph.layers.size(); ++layer) {
    for (const GraphLink& link : wiring.inputs[layer]) {
      if (link.of_layer || 2 * sdk::edit_distance(graph.inputs[link.index].name, name) >= name.size()) continue;
      return str_cat(" (\"", graph.layers[layer].name, "\" takes \"", graph.inputs[link.index].name, "\")");
    }
  }
  return {};
}

// True for each layer that leads to one of these heads.
std::vector<bool> layers_of(const GraphWiring& wiring, std::span<const GraphLink> heads) {
  std::vector<bool> used(wiring.inputs.size(), false);
  for (const GraphLink& link : heads) {
    if (link.of_layer) used[link.index] = true;
  }
  for (auto layer = wiring.order.rbegin(); layer != wiring.order.rend(); ++layer) {
    if (!used[*layer]) continue;
    for (const GraphLink& link : wiring.inputs[*layer]) {
      if (link.of_layer) used[link.index] = true;
    }
  }
  return used;
}

// Refuses a layer that leads to no head, because it would never be trained.
void check_all_are_used(const ModelGraph& graph, const GraphWiring& wiring) {
  const std::vector<bool> used = layers_of(wiring, wiring.heads);
  const auto idle = std::find(used.begin(), used.end(), false);
  if (idle == used.end()) return;
  const std::string& name = graph.layers[static_cast<size_t>(idle - used.begin())].name;
  fail(Code::kInvalidArgument, "the layer \"", name, "\" leads to no head: let a head or another layer take it",
       misspelt(name, graph, wiring), ", or leave it out");
}

}  // namespace

namespace {

GraphWiring wire_all(const ModelGraph& graph) {
  constexpr size_t kMostLayers = 10000;  // a file from outside may have any number, and the walk recurses
  if (graph.layers.size() > kMostLayers)
    fail(Code::kInvalidArgument, "a model may have ", kMostLayers, " layers, not ", graph.layers.size());
  const Names names(graph);
  GraphWiring out;
  for (const LayerSpec& layer : graph.layers) {
    std::vector<GraphLink>& links = out.inputs.emplace_back();
    for (const std::string& input : layer.inputs)
      links.push_back(names.find(input, str_cat("the layer \"", layer.name, '"')));
  }
  if (graph.heads.empty()) fail(Code::kInvalidArgument, "the model has no head, which says what is trained");
  for (auto head = graph.heads.begin(); head != graph.heads.end(); ++head) {
    if (head->name.empty()) fail(Code::kInvalidArgument, "a head has no name");
    if (std::any_of(graph.heads.begin(), head, [&](const HeadSpec& h) { return h.name == head->name; }))
      fail(Code::kInvalidArgument, "two heads are called \"", head->name, '"');
    out.heads.push_back(names.find(head->input, str_cat("the head \"", head->name, '"')));
  }
  out.order = Order(graph, out).take();
  return out;
}

}  // namespace

GraphWiring wire(const ModelGraph& graph) {
  GraphWiring out = wire_all(graph);
  check_all_are_used(graph, out);
  return out;
}

void keep_heads(ModelGraph& graph, std::vector<HeadSpec> heads) {
  graph.heads = std::move(heads);
  const GraphWiring wiring = wire_all(graph);
  const std::vector<bool> used = layers_of(wiring, wiring.heads);
  std::vector<LayerSpec> layers;
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) layers.push_back(std::move(graph.layers[i]));
  }
  graph.layers = std::move(layers);
}

std::vector<std::string> features_of(const ModelGraph& graph, const GraphWiring& wiring, size_t head,
                                     const std::vector<EmbeddingBagConfig>& tables) {
  std::vector<bool> taken(graph.inputs.size(), false);
  const auto take = [&](const GraphLink& link) {
    if (!link.of_layer) taken[link.index] = true;
  };
  take(wiring.heads[head]);
  const std::vector<bool> used = layers_of(wiring, {&wiring.heads[head], 1});
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) std::for_each(wiring.inputs[i].begin(), wiring.inputs[i].end(), take);
  }
  std::vector<std::string> out;
  int64_t column = 0, sequence = 0;
  for (const EmbeddingBagConfig& table : tables) {
    const bool pooled = table.pooling != PoolingType::kNone;
    for (const std::string& feature : table.feature_names) {
      const int64_t begin = pooled ? column : sequence;
      (pooled ? column : sequence) += pooled ? table.embedding_dim : 1;
      for (size_t i = 0; i < taken.size(); ++i) {
        const GraphInput& input = graph.inputs[i];
        const bool reads = input.from == GraphInput::kIds ? graph.ids[static_cast<size_t>(input.column)].name == feature
                           : input.from == GraphInput::kPooled
                               ? pooled && begin >= input.column && begin < input.column + input.width
                           : input.from == GraphInput::kSequence ? !pooled && begin == input.column
                                                                 : false;
        if (!taken[i] || !reads) continue;
        out.push_back(feature);
        break;
      }
    }
  }
  return out;
}

void check_graph(const ModelGraph& graph) { (void)wire(graph); }

void check_head_names(const ModelGraph& graph) {
  const auto is_there = [&](const std::string& name) {
    return std::any_of(graph.heads.begin(), graph.heads.end(), [&](const HeadSpec& h) { return h.name == name; });
  };
  for (const HeadSpec& head : graph.heads) {
    if (head.name.find_first_not_of(kLetters) != std::string::npos)
      fail(Code::kInvalidArgument, "a head is called \"", head.name,
           "\", but its name may have only letters, digits, \"_\" and \"-\"");
    if (head.name == "row" || head.name == "label")
      fail(Code::kInvalidArgument, "a head is called \"", head.name,
           "\", which is another column of the scores: give it another name");
    if (is_there(head.name + "_label"))
      fail(Code::kInvalidArgument, "a head is called \"", head.name,
           "_label\", which is the column for the labels of the head \"", head.name,
           "\": give one of the two another name");
  }
}

ModelTables split_by_pooling(const std::vector<EmbeddingBagConfig>& tables) {
  ModelTables out;
  for (const EmbeddingBagConfig& t : tables)
    (t.pooling == PoolingType::kNone ? out.sequences : out.pooled).push_back(t);
  return out;
}

ModelGraph graph_over(int64_t dense_width, const std::vector<EmbeddingBagConfig>& tables) {
  ModelGraph graph{.dense_width = dense_width};
  std::vector<GraphInput> features;
  for (const EmbeddingBagConfig& t : tables) {
    if (t.name == "dense" || t.name == "pooled")
      fail(Code::kInvalidArgument, "a table cannot be called \"", t.name, "\", because layers take inputs by name");
    const int64_t first = graph.pooled_width;
    for (const std::string& feature : t.feature_names.empty() ? std::vector{t.name} : t.feature_names) {
      if (t.pooling == PoolingType::kNone) {
        features.push_back({feature, GraphInput::kSequence, std::ssize(graph.sequences), t.embedding_dim});
        graph.sequences.push_back(t.embedding_dim);
        continue;
      }
      features.push_back({feature, GraphInput::kPooled, graph.pooled_width, t.embedding_dim});
      graph.pooled_width += t.embedding_dim;
    }
    if (t.pooling != PoolingType::kNone)
      graph.inputs.push_back({t.name, GraphInput::kPooled, first, graph.pooled_width - first});
    else if (t.feature_names.size() <= 1)
      graph.inputs.push_back({t.name, GraphInput::kSequence, std::ssize(graph.sequences) - 1, t.embedding_dim});
  }
  const auto taken = [&](const std::string& name) {
    return name == "dense" || name == "pooled" ||
           std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](const auto& i) { return i.name == name; });
  };
  for (const GraphInput& feature : features) {
    if (!taken(feature.name)) graph.inputs.push_back(feature);
  }
  graph.inputs.insert(graph.inputs.begin(), {{"dense", GraphInput::kDense, 0, dense_width},
                                             {"pooled", GraphInput::kPooled, 0, graph.pooled_width}});
  return graph;
}

void add_id_inputs(const std::vector<EmbeddingBagConfig>& tables, ModelGraph& graph) {
  std::vector<IdFeature> features;
  std::vector<std::string> names;
  int64_t sequences = 0;
  for (const EmbeddingBagConfig& t : tables) {
    for (const std::string& name : t.feature_names.empty() ? std::vector{t.name} : t.feature_names) {
      features.push_back({name, t.pooling == PoolingType::kNone ? sequences++ : -1});
      names.push_back(name);
    }
  }
  for (const LayerSpec& layer : graph.layers) {
    for (const std::string& name : layer.inputs) {
      const auto is_called = [&](const GraphInput& input) { return input.name == name; };
      if (!name.ends_with(kIdsSuffix) || std::any_of(graph.inputs.begin(), graph.inputs.end(), is_called)) continue;
      const std::string feature = name.substr(0, name.size() - std::string_view(kIdsSuffix).size());
      const auto found = std::find(names.begin(), names.end(), feature);
      if (found == names.end())
        fail(Code::kInvalidArgument, "the layer \"", layer.name, "\" takes \"", name,
             "\", but no table has the feature \"", feature, '"', sdk::nearest_text(feature, names));
      graph.inputs.push_back({name, GraphInput::kIds, std::ssize(graph.ids), 1});
      graph.ids.push_back(features[static_cast<size_t>(found - names.begin())]);
    }
  }
}

}  // namespace tessera
