#include "modules/layer_component.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "tessera/calls.h"
#include "tessera/dense.h"
#include "tessera/layer_graph.h"

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

// Returns the component's id; "" if there is none.
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
    return false;  // false: continue with the next component
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

bool has_precision(const Runtime& runtime, const std::string& layer, const DeviceStreamPtr& stream,
                   const std::string& precision) {
  const std::string id = find_layer(runtime, layer, type_of(stream));
  const tsr_component& component = runtime.component(TSR_MODULE_KIND, id.empty() ? layer : id);
  const uint32_t flag = precision == kInt8Precision ? TSR_MODULE_INT8 : TSR_MODULE_PRECISION;
  return (static_cast<const tsr_module*>(component.api)->flags & flag) != 0;
}

bool is_loss_of_classes(const Runtime& runtime, const std::string& layer) {
  const std::string name = parse_component_name(layer).id;
  const std::string found = find_layer(runtime, name, kDLCPU), id = found.empty() ? name : found;
  if (!runtime.has(TSR_MODULE_KIND, id)) return false;
  return (static_cast<const tsr_module*>(runtime.component(TSR_MODULE_KIND, id).api)->flags & TSR_MODULE_CLASSES) != 0;
}

ComponentPtr create_layer(const Runtime& runtime, const std::string& layer, const std::string& options,
                          const DeviceStreamPtr& stream) {
  const std::string id = find_layer(runtime, layer, type_of(stream));
  if (id.empty() && stream)
    fail(Code::kNotFound, "no plugin computes the layer \"", layer, "\" on the device \"", stream->id(),
         "\": name one that has such a module, or train with job.device = \"cpu\"");
  ComponentPtr part = runtime.create(TSR_MODULE_KIND, id.empty() ? layer : id, options);
  if (!serves(&part->api<tsr_module>(), type_of(stream)))
    fail(Code::kInvalidArgument, "module \"", part->id(), "\" does not compute in host memory");
  return part;
}

namespace {

constexpr uint32_t kLongestList = 10000;

// Calls get(i, out, err) until the list ends.
template <class T, class Get>
std::vector<T> list_of(const Component& part, const std::string& layer, const char* what, const Get& get) {
  std::vector<T> all;
  const plugin::CallScope call(part, what, layer);
  while (all.size() < kLongestList) {
    T item{};
    item.struct_size = sizeof(item);
    AbiError err;
    const tsr_code code = get(static_cast<uint32_t>(all.size()), &item, err.out());
    if (code == TSR_OUT_OF_RANGE) return all;
    err.check(code, str_cat("layer ", layer, " (", part.id(), ") ", what));
    all.push_back(item);
  }
  fail(Code::kInternal, "layer ", layer, " (", part.id(), ") names more than ", kLongestList, " of: ", what);
}

void check(const tsr_parameter& p, const std::string& layer, bool buffer) {
  const std::string what = str_cat(buffer ? "buffer " : "parameter ", layer, ".", p.name ? p.name : "(no name)");
  if (!p.name || !*p.name) fail(Code::kInternal, what, ": its plugin must give it a name");
  if (p.ndim < (buffer ? 0 : 1) || p.ndim > static_cast<int32_t>(std::size(p.shape)))
    fail(Code::kInternal, what, " has ", p.ndim, " dimensions, but may have ", buffer ? 0 : 1, " to ",
         std::size(p.shape));
  for (int32_t d = 0; d < p.ndim; ++d) {
    if (p.shape[d] < 1) fail(Code::kInternal, what, " has ", p.shape[d], " for dimension ", d, ", but needs 1 or more");
  }
  const bool known = p.init == TSR_INIT_CONSTANT || p.init == TSR_INIT_NORMAL || p.init == TSR_INIT_UNIFORM;
  if (!known || (p.flags & TSR_MUST_UNDERSTAND))
    fail(Code::kUnimplemented, what, " wants start values of a kind (init ", p.init, ", flags ", p.flags,
         ") that this core does not know");
  const DType dtype = from_dl(p.dtype);
  if (dtype == DType::kFloat32 || (buffer && dtype == DType::kInt64 && p.init == TSR_INIT_CONSTANT)) return;
  fail(Code::kUnimplemented, what, " has a type that it may not have: float32 for parameters, for buffers also int64",
       " with a constant start value");
}

std::vector<tsr_parameter> checked(std::vector<tsr_parameter> all, const std::string& layer, bool buffers) {
  for (const tsr_parameter& p : all) check(p, layer, buffers);
  return all;
}

}  // namespace

std::vector<tsr_parameter> layer_parameters(const Component& part, const std::string& name) {
  const auto& api = part.api<tsr_module>();
  return checked(list_of<tsr_parameter>(part, name, "parameter",
                                        [&](uint32_t i, tsr_parameter* out, tsr_error* err) {
                                          return api.parameter(part.self(), i, out, err);
                                        }),
                 name, false);
}

std::vector<tsr_parameter> layer_buffers(const Component& part, const std::string& name) {
  const auto& api = part.api<tsr_module>();
  if (!TSR_HAS(tsr_module, &api, buffer)) return {};
  return checked(list_of<tsr_parameter>(part, name, "buffer",
                                        [&](uint32_t i, tsr_parameter* out, tsr_error* err) {
                                          return api.buffer(part.self(), i, out, err);
                                        }),
                 name, true);
}

std::vector<tsr_value> layer_outputs(const Component& part, const std::string& name,
                                     std::span<const tsr_value> inputs) {
  const auto& api = part.api<tsr_module>();
  std::vector<tsr_value> all =
      list_of<tsr_value>(part, name, "output", [&](uint32_t i, tsr_value* out, tsr_error* err) {
        return api.output(part.self(), i, static_cast<uint32_t>(inputs.size()), sizeof(tsr_value), inputs.data(), out,
                          err);
      });
  if (all.empty()) fail(Code::kInternal, "layer ", name, " (", part.id(), ") has no output");
  for (const tsr_value& value : all) {
    const bool sequence = (value.flags & TSR_VALUE_JAGGED) != 0;
    if ((value.flags & TSR_MUST_UNDERSTAND & ~uint32_t{TSR_VALUE_JAGGED}) != 0 ||
        from_dl(value.dtype) != DType::kFloat32 || value.width < 0)
      fail(Code::kUnimplemented, "layer ", name, " (", part.id(), ") has an output of a kind (flags ", value.flags,
           ", width ", value.width, ") that this core does not know: outputs are float32 rows, dense or sequences");
    if (!sequence || value.rows_like == TSR_ROWS_OWN) continue;
    const auto like = static_cast<size_t>(value.rows_like);
    if (value.rows_like < 0 || like >= inputs.size() || (inputs[like].flags & TSR_VALUE_JAGGED) == 0)
      fail(Code::kInternal, "layer ", name, " (", part.id(), ") has an output with the rows of input ", value.rows_like,
           ", which is not a sequence");
  }
  const bool own = std::any_of(all.begin(), all.end(), [](const tsr_value& value) { return has_own_rows(value); });
  if (own && !TSR_HAS(tsr_module, &api, max_rows))
    fail(Code::kInternal, "layer ", name, " (", part.id(),
         ") has an output with offsets of its own, but no max_rows() that bounds its rows");
  return all;
}

bool has_own_rows(const tsr_value& value) {
  return (value.flags & TSR_VALUE_JAGGED) != 0 && value.rows_like == TSR_ROWS_OWN;
}

tsr_value dense_value(int64_t width) { return {sizeof(tsr_value), 0, to_dl(DType::kFloat32), 0, width}; }

}  // namespace tessera
