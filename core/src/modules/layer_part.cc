#include "modules/layer_part.h"

#include <map>
#include <utility>

#include "tessera/dense.h"

namespace tessera {
namespace {

bool serves(const tsr_module* api, int32_t device_type) {
  if (!TSR_HAS(tsr_module, api, device_types)) return device_type == kDLCPU;
  for (const int32_t* type = api->device_types; *type != 0; ++type) {
    if (*type == device_type) return true;
  }
  return false;
}

int32_t type_of(const DeviceStreamPtr& stream) {
  return stream ? static_cast<int32_t>(stream->device().type) : int32_t{kDLCPU};
}

const char* layer_of(const tsr_component& component) {
  const auto* api = static_cast<const tsr_module*>(component.api);
  return TSR_HAS(tsr_module, api, layer) ? api->layer : component.id;
}

// The id of the component; "" where there is none.
std::string find_layer(const Runtime& runtime, const std::string& layer, int32_t device_type) {
  return runtime.find(TSR_MODULE_KIND, [&](const tsr_component& c) {
    return serves(static_cast<const tsr_module*>(c.api), device_type) && layer_of(c) == layer;
  });
}

}  // namespace

std::vector<LayerChoice> layer_choices(const Runtime& runtime, int32_t device_type) {
  std::map<std::string, LayerChoice> all;
  runtime.find(TSR_MODULE_KIND, [&](const tsr_component& c) {
    if (!serves(static_cast<const tsr_module*>(c.api), device_type)) return false;
    LayerChoice& choice = all[layer_of(c)];
    choice.layer = layer_of(c);
    choice.instead_of.emplace_back(c.id);
    return false;  // see them all
  });
  std::vector<LayerChoice> out;
  for (auto& [layer, choice] : all) {
    choice.component = find_layer(runtime, layer, device_type);
    std::erase(choice.instead_of, choice.component);
    out.push_back(std::move(choice));
  }
  return out;
}

bool computes_layer(const Runtime& runtime, const std::string& layer, const DeviceStreamPtr& stream) {
  return !find_layer(runtime, layer, type_of(stream)).empty();
}

PartPtr create_layer(const Runtime& runtime, const std::string& layer, const std::string& options,
                     const DeviceStreamPtr& stream) {
  const std::string id = find_layer(runtime, layer, type_of(stream));
  if (id.empty() && stream)
    fail(Code::kNotFound, "no plugin computes the layer \"", layer, "\" on the device \"", stream->id(),
         "\": name one that has such a module, or train with job.device = \"cpu\"");
  PartPtr part = runtime.create(TSR_MODULE_KIND, id.empty() ? layer : id, options);
  if (!serves(&part->api<tsr_module>(), type_of(stream)))
    fail(Code::kInvalidArgument, "module \"", part->id(), "\" does not compute in host memory");
  return part;
}

}  // namespace tessera
