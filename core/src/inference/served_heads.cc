#include "tessera/predictor.h"

#include <algorithm>
#include <set>

#include "tessera/error.h"
#include "tessera/layer_graph.h"

namespace tessera {
namespace {

const QuantizedTable& table_of(const InferenceModel& model, const std::string& feature) {
  return *std::find_if(model.tables.begin(), model.tables.end(), [&](const QuantizedTable& t) {
    const std::vector<std::string>& names = t.config.feature_names;
    return std::find(names.begin(), names.end(), feature) != names.end();
  });
}

struct Served {
  std::vector<HeadSpec> heads;
  std::set<std::string> features;  // that they need
  std::string drawn;               // a feature that keeps a head from being served; "": none does
};

Served served_of(const InferenceModel& model) {
  const std::vector<EmbeddingBagConfig> tables = configs_of(model.tables);
  const GraphWiring wiring = wire(model.graph);
  Served out;
  for (size_t h = 0; h < model.graph.heads.size(); ++h) {
    const std::vector<std::string> features = features_of(model.graph, wiring, h, tables);
    const auto& drawn = model.graph.drawn;
    const auto at = std::find_if(drawn.begin(), drawn.end(), [&](const DrawnInput& d) {
      return std::find(features.begin(), features.end(), d.feature) != features.end();
    });
    if (at != drawn.end() && model.graph.heads[h].loss != kNoLoss) {
      out.drawn = at->feature;
      continue;
    }
    out.heads.push_back(model.graph.heads[h]);
    out.features.insert(features.begin(), features.end());
  }
  return out;
}

}  // namespace

void keep_served_heads(InferenceModel& model) {
  Served served = served_of(model);
  if (served.heads.empty()) {
    fail(Code::kInvalidArgument, "every head of model ", model.description.name,
         " compares with ids that training draws (\"", served.drawn,
         "\"), so it has no scores: ask for the best items by --top-k K --items ",
         table_of(model, served.drawn).config.name, " --query LAYER, with the layer that is compared");
  }
  if (!served.drawn.empty()) keep_heads(model.graph, std::move(served.heads));
  for (ModelFeature& feature : model.description.features) feature.needed = served.features.contains(feature.name);
}

const QuantizedTable* items_without_scores(const InferenceModel& model) {
  if (model.graph.drawn.empty()) return nullptr;
  const Served served = served_of(model);
  return served.heads.empty() ? &table_of(model, served.drawn) : nullptr;
}

}  // namespace tessera
