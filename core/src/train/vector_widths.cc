#include "train/vector_widths.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "config/json.h"
#include "modules/layer_component.h"
#include "tessera/error.h"

namespace tessera {
namespace {

constexpr const char* kDim = "dim";

struct Taken {
  bool tables_alone = true;
  std::optional<int64_t> dim;  // of all tables that it takes; unset: they differ
  std::string table;           // one of them
};

// Finds the tables whose outputs the layer takes.
Taken tables_of(const LayerSpec& layer, const std::vector<EmbeddingBagConfig>& tables) {
  Taken out;
  bool same = true;
  const auto take = [&](const EmbeddingBagConfig& t) {
    same = same && (!out.dim || *out.dim == t.embedding_dim);
    out.dim = t.embedding_dim;
    out.table = t.name;
  };
  for (const std::string& input : layer.inputs) {
    bool found = false;
    for (const EmbeddingBagConfig& t : tables) {
      const std::vector<std::string>& f = t.feature_names;
      const bool named = input == t.name || std::find(f.begin(), f.end(), input) != f.end();
      if (t.pooling == PoolingType::kNone || !(named || input == "pooled")) continue;
      take(t);
      found = true;
    }
    out.tables_alone = out.tables_alone && found;
  }
  if (!same) out.dim.reset();
  return out;
}

// True if the layer can be made with these options.
bool takes(const Runtime& runtime, const LayerSpec& layer, nlohmann::ordered_json options, int64_t width) {
  options["inputs"] = std::vector<int64_t>(layer.inputs.size(), width);
  try {
    (void)create_layer(runtime, layer.type, options.dump(), nullptr);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void set_vector_widths(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables, ModelGraph& graph) {
  for (LayerSpec& layer : graph.layers) {
    const Taken taken = tables_of(layer, tables);
    if (!taken.dim) continue;
    auto options = config::parse_json(layer.options, {"the options of a layer"});
    const auto said = options.find(kDim);
    if (said != options.end()) {
      if (!said->is_number_integer()) continue;  // the layer refuses it
      const auto dim = said->get<int64_t>();
      if (dim == *taken.dim || dim == 1 || (!taken.tables_alone && dim < *taken.dim)) continue;
      fail(Code::kInvalidArgument, "the layer \"", layer.name, "\" has dim = ", dim, ", but table \"", taken.table,
           "\", whose rows it takes, has embedding_dim ", *taken.dim,
           ": leave dim out of its options, or give both the "
           "same number");
    }
    options[kDim] = *taken.dim;
    if (taken.tables_alone && takes(runtime, layer, options, *taken.dim)) layer.options = options.dump();
  }
}

}  // namespace tessera
