#include "modules/graph_json.h"

#include "modules/vector_inputs.h"

namespace tessera {

using nlohmann::ordered_json;

namespace {

ParameterNames names_from(const config::JsonObject& json) {
  ParameterNames out;
  for (const auto& [own, stored] : json.value().items()) out.emplace_back(own, json.get<std::string>(own.c_str()));
  return out;
}

}  // namespace

ordered_json to_json(const ModelGraph& graph) {
  ordered_json layers = ordered_json::array(), heads = ordered_json::array();
  for (const LayerSpec& l : graph.layers) {
    layers.push_back({{"name", l.name},
                      {"type", l.type},
                      {"inputs", l.inputs},
                      {"options", config::parse_json(l.options, {"the options of a layer"})}});
    for (const auto& [own, stored] : l.names) layers.back()["names"][own] = stored;
  }
  for (const HeadSpec& h : graph.heads) {
    heads.push_back({{"name", h.name}, {"input", h.input}, {"loss", h.loss}, {"label", h.label}, {"weight", h.weight}});
    if (!h.where.empty()) heads.back()["where"] = h.where;
  }
  ordered_json out = {{"dense_inputs", graph.dense_width}, {"layers", std::move(layers)}, {"heads", std::move(heads)}};
  for (const VectorInput& v : vectors_of(graph)) out["vectors"].push_back({{"name", v.name}, {"width", v.width}});
  for (const DrawnInput& d : graph.drawn) out["drawn"].push_back({{"feature", d.feature}, {"first", d.first}});
  return out;
}

ModelGraph graph_from(const config::JsonObject& json, const std::vector<EmbeddingBagConfig>& tables) {
  constexpr int64_t kWidest = int64_t{1} << 31;
  ModelGraph graph = graph_over(json.within<int64_t>("dense_inputs", 0, kWidest), tables);
  if (json.has("vectors")) {
    std::vector<VectorInput> vectors;
    for (const config::JsonObject& v : json.objects("vectors"))
      vectors.push_back({v.get<std::string>("name"), v.within<int64_t>("width", 1, kWidest)});
    add_vector_inputs(vectors, graph);
  }
  for (const config::JsonObject& l : json.objects("layers")) {
    graph.layers.push_back({l.get<std::string>("name"), l.get<std::string>("type"),
                            l.get<std::vector<std::string>>("inputs"), l.object("options").value().dump()});
    if (l.has("names")) graph.layers.back().names = names_from(l.object("names"));
  }
  add_id_inputs(tables, graph);
  for (const config::JsonObject& h : json.objects("heads")) {
    graph.heads.push_back({h.get<std::string>("name"), h.get<std::string>("input"), h.get<std::string>("loss"),
                           h.get<std::string>("label"), h.get<double>("weight")});
    h.read("where", graph.heads.back().where);
  }
  if (json.has("drawn")) {
    for (const config::JsonObject& d : json.objects("drawn"))
      graph.drawn.push_back({d.get<std::string>("feature"), d.within<int64_t>("first", 0, INT64_MAX)});
  }
  check_graph(graph);
  return graph;
}

}  // namespace tessera
