#include "modules/host_only_graph.h"

#include <map>
#include <tuple>
#include <vector>

#include "modules/head_options.h"

namespace tessera {
namespace {

// An input of a layer or a head.
struct Taken {
  GraphLink link;
  std::string who, name;
};

std::vector<Taken> all_taken(const ModelGraph& graph, const GraphWiring& wiring) {
  std::vector<Taken> out;
  for (size_t i = 0; i < graph.layers.size(); ++i) {
    for (size_t k = 0; k < wiring.inputs[i].size(); ++k)
      out.push_back(
          {wiring.inputs[i][k], str_cat("the layer \"", graph.layers[i].name, '"'), graph.layers[i].inputs[k]});
  }
  for (size_t h = 0; h < graph.heads.size(); ++h)
    out.push_back({wiring.heads[h], str_cat("the head \"", graph.heads[h].name, '"'), graph.heads[h].input});
  return out;
}

}  // namespace

std::string what_only_hosts_take(const ModelGraph& graph, const GraphWiring& wiring) {
  if (std::string what = what_only_hosts_train(graph.heads); !what.empty()) return what;
  std::map<std::tuple<bool, size_t, size_t>, std::string> taken_by;
  for (const Taken& t : all_taken(graph, wiring)) {
    const GraphInput* input = t.link.of_layer ? nullptr : &graph.inputs[t.link.index];
    if (input != nullptr && input->from == GraphInput::kSequence)
      return str_cat(t.who, " takes the sequence \"", t.name, '"');
    if (input != nullptr && input->from == GraphInput::kIds) return str_cat(t.who, " takes ids, \"", t.name, '"');
    const bool dense = input != nullptr && input->from == GraphInput::kDense;
    if (input != nullptr && input->width != (dense ? graph.dense_width : graph.pooled_width))
      return str_cat(t.who, " takes \"", t.name, "\", a part of the ", dense ? "dense values" : "pooled rows");
    if (dense) continue;
    const std::tuple value(t.link.of_layer, t.link.of_layer ? t.link.index : 0, t.link.output);  // inputs: pooled rows
    const auto [other, fresh] = taken_by.emplace(value, t.who);
    if (!fresh) return str_cat(t.who, " takes \"", t.name, "\", which ", other->second, " also takes");
  }
  return "";
}

}  // namespace tessera
