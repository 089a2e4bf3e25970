#include "modules/drawn_option.h"

#include <algorithm>

#include "config/json.h"
#include "tessera/error.h"

namespace tessera {

DenseLayer layer_of_drawn(const Runtime& runtime, const DenseLayerOptions& options, const std::vector<int64_t>& drawn) {
  if (std::count(drawn.begin(), drawn.end(), 0) == std::ssize(drawn)) return DenseLayer(runtime, options);
  auto told = config::parse_json(options.options, {"the options of a layer"});
  if (!told.is_object() || told.contains("drawn")) return DenseLayer(runtime, options);
  told["drawn"] = drawn;
  DenseLayerOptions with = options;
  with.options = told.dump();
  try {
    return DenseLayer(runtime, with);
  } catch (const Error& e) {  // the layer does not take the option, or is refused once more without it
    if (e.code() != Code::kInvalidArgument) throw;
  }
  return DenseLayer(runtime, options);
}

}  // namespace tessera
