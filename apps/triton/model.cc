#include "model.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/abi/host.h"
#include "tessera/sdk/sized.h"

namespace tessera_triton {
namespace {

using json = nlohmann::json;

constexpr const char* kDense = "dense";
constexpr uint32_t kConfigVersion = 1;

std::string config_of(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* message = nullptr;
  check(TRITONBACKEND_ModelConfig(model, kConfigVersion, &message));
  const char* base = nullptr;
  size_t size = 0;
  TRITONSERVER_Error* failed = TRITONSERVER_MessageSerializeToJson(message, &base, &size);
  std::string out = failed == nullptr ? std::string(base, size) : "";
  ignore(TRITONSERVER_MessageDelete(message));
  check(failed);
  return out;
}

void set_config(TRITONBACKEND_Model* model, const std::string& config) {
  TRITONSERVER_Message* message = nullptr;
  check(TRITONSERVER_MessageNewFromSerializedJson(&message, config.data(), config.size()));
  TRITONSERVER_Error* failed = TRITONBACKEND_ModelSetConfig(model, kConfigVersion, message);
  ignore(TRITONSERVER_MessageDelete(message));
  check(failed);
}

// A number of a configuration, which protobuf may print as a text.
int64_t number(const json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  const auto text = value.is_string() ? value.get<std::string>() : std::string();
  int64_t out = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (code != std::errc() || end != text.data() + text.size() || text.empty())
    refuse("config.pbtxt has ", value.dump(), " in the place of a whole number");
  return out;
}

bool is_empty(const json& config, const char* key) { return !config.contains(key) || config.at(key).empty(); }

// The parameters of config.pbtxt that this backend reads, by name. Others are refused, because they would have no
// effect.
std::string parameter(const json& config, const std::string& name) {
  static const std::set<std::string> kKnown = {"threads", "plugin_path", "kernel", "dense_precision"};
  if (!config.contains("parameters")) return {};
  std::string out;
  for (const auto& [key, value] : config.at("parameters").items()) {
    if (!kKnown.contains(key))
      refuse("config.pbtxt has the parameter \"", key, "\", but the backend tessera has only threads, plugin_path, ",
             "kernel and dense_precision: leave it out");
    if (key == name) out = value.value("string_value", "");
  }
  return out;
}

// An input or output of config.pbtxt.
struct Declared {
  std::string name, type;
  std::vector<int64_t> dims;
};
std::vector<Declared> declared(const json& config, const char* key) {
  std::vector<Declared> out;
  if (!config.contains(key)) return out;
  for (const json& one : config.at(key)) {
    Declared d{one.value("name", ""), one.value("data_type", ""), {}};
    if (one.contains("dims")) {
      for (const json& dim : one.at("dims")) d.dims.push_back(number(dim));
    }
    out.push_back(std::move(d));
  }
  return out;
}

void require_type(const Declared& d, std::initializer_list<const char*> types) {
  if (std::find(types.begin(), types.end(), d.type) != types.end()) return;
  std::string known;
  for (const char* type : types) known += (known.empty() ? "" : " or ") + std::string(type);
  refuse("config.pbtxt: \"", d.name, "\" has the data_type ", d.type, ", but must be ", known);
}

// Fails unless the values of one sample have this width, which -1 leaves open. `batched`: dims lack the batch.
void require_width(const Declared& d, bool batched, int64_t width) {
  const size_t wanted = batched ? 1 : 2;
  if (d.dims.size() == wanted && (width < 0 || d.dims.back() == width)) return;
  const std::string last = width < 0 ? "-1" : std::to_string(width);
  refuse("config.pbtxt: \"", d.name, "\" needs dims: [ ", batched ? "" : "-1, ", last, " ]",
         batched ? " (max_batch_size says that there is a batch before it)" : "");
}

}  // namespace

Model::Model(TRITONBACKEND_Model* model) {
  TRITONBACKEND_ArtifactType type{};
  const char* location = nullptr;
  uint64_t version = 0;
  check(TRITONBACKEND_ModelRepository(model, &type, &location));
  if (type != TRITONBACKEND_ARTIFACT_FILESYSTEM) refuse("the backend tessera reads models from a file system only");
  check(TRITONBACKEND_ModelVersion(model, &version));
  const std::string given = config_of(model);
  open(joined(location, "/", version), given);
  bool complete = false;
  check(TRITONBACKEND_ModelAutoCompleteConfig(model, &complete));
  const std::string config = complete ? completed(given) : given;
  take(config);
  if (complete && config != given) set_config(model, config);
}

void Model::open(const std::string& directory, const std::string& config) {
  const json parsed = json::parse(config);
  const std::string threads = parameter(parsed, "threads"), plugins = parameter(parsed, "plugin_path"),
                    kernel = parameter(parsed, "kernel"), precision = parameter(parsed, "dense_precision");
  auto options = tessera::sdk::sized<tsr_model_options>();
  if (!threads.empty()) {
    const int64_t count = number(json(threads));
    if (count < 1 || count > 1024)
      refuse("config.pbtxt: the parameter threads is ", threads, ", but must be 1 to 1024");
    options.threads = static_cast<int32_t>(count);
  }
  options.plugin_path = plugins.empty() ? nullptr : plugins.c_str();
  options.kernel = kernel.empty() ? nullptr : kernel.c_str();
  options.dense_precision = precision.empty() ? nullptr : precision.c_str();
  options.log = [](void*, int32_t level, const char* text) {
    ignore(TRITONSERVER_LogMessage(level == TSR_LOG_ERROR     ? TRITONSERVER_LOG_ERROR
                                   : level == TSR_LOG_WARNING ? TRITONSERVER_LOG_WARN
                                   : level == TSR_LOG_INFO    ? TRITONSERVER_LOG_INFO
                                                              : TRITONSERVER_LOG_VERBOSE,
                                   "tessera", 0, text));
  };
  auto err = tessera::sdk::sized<tsr_error>();
  tsr_model* opened = nullptr;
  check(tsr_model_open(directory.c_str(), &options, &opened, &err), err);
  model_.reset(opened);
  auto info = tessera::sdk::sized<tsr_model_info>();
  check(tsr_model_describe(opened, &info, &err), err);
  dense_ = info.dense_inputs;
  weighted_ = info.is_weighted != 0;
  for (uint32_t f = 0; f < info.num_features; ++f) {
    auto feature = tessera::sdk::sized<tsr_model_feature>();
    check(tsr_model_get_feature(opened, f, &feature, &err), err);
    features_.push_back({feature.name});
  }
  for (uint32_t o = 0; o < info.num_outputs; ++o) {
    auto output = tessera::sdk::sized<tsr_model_output>();
    check(tsr_model_get_output(opened, o, &output, &err), err);
    outputs_.push_back({output.name, output.width});
  }
}

// Writes the inputs and outputs of the model where the configuration has none.
std::string Model::completed(const std::string& config) const {
  constexpr int64_t kBatch = 1024;
  json out = json::parse(config);
  const bool inputs = is_empty(out, "input"), outputs = is_empty(out, "output");
  if (!inputs && !outputs) return config;
  if (inputs && outputs && (!out.contains("max_batch_size") || number(out.at("max_batch_size")) == 0)) {
    out["max_batch_size"] = kBatch;
    const bool scheduled = out.contains("dynamic_batching") || out.contains("sequence_batching");
    if (!scheduled) out["dynamic_batching"] = json::object();
  }
  const bool batched = out.contains("max_batch_size") && number(out.at("max_batch_size")) > 0;
  const auto dims = [&](int64_t width) { return batched ? json{width} : json{-1, width}; };
  if (inputs) {
    json all = json::array();
    if (dense_ > 0) all.push_back({{"name", kDense}, {"data_type", "TYPE_FP32"}, {"dims", dims(dense_)}});
    for (const FeatureInput& f : features_) {
      all.push_back(
          {{"name", f.name}, {"data_type", "TYPE_INT64"}, {"dims", dims(-1)}, {"allow_ragged_batch", batched}});
      all.push_back(
          {{"name", f.name + ".lengths"}, {"data_type", "TYPE_INT32"}, {"dims", dims(1)}, {"optional", true}});
      if (weighted_)
        all.push_back({{"name", f.name + ".weights"},
                       {"data_type", "TYPE_FP32"},
                       {"dims", dims(-1)},
                       {"optional", true},
                       {"allow_ragged_batch", batched}});
    }
    out["input"] = all;
  }
  if (outputs) {
    json all = json::array();
    for (const Output& o : outputs_)
      all.push_back({{"name", o.name}, {"data_type", "TYPE_FP32"}, {"dims", dims(o.width)}});
    out["output"] = all;
  }
  return out.dump();
}

// Learns from the configuration in which form features come, and refuses what does not fit the model.
void Model::take(const std::string& config) {
  const json parsed = json::parse(config);
  const bool batched = parsed.contains("max_batch_size") && number(parsed.at("max_batch_size")) > 0;
  const std::vector<Declared> inputs = declared(parsed, "input");
  std::set<std::string> left;
  const auto find = [&](const std::string& name) {
    const auto at = std::find_if(inputs.begin(), inputs.end(), [&](const Declared& d) { return d.name == name; });
    if (at != inputs.end()) left.erase(name);
    return at == inputs.end() ? nullptr : &*at;
  };
  for (const Declared& d : inputs) left.insert(d.name);
  if (dense_ > 0) {
    const Declared* d = find(kDense);
    if (d == nullptr) refuse("config.pbtxt lacks the input \"dense\", TYPE_FP32 with ", dense_, " values of a sample");
    require_type(*d, {"TYPE_FP32"});
    require_width(*d, batched, dense_);
  }
  for (FeatureInput& f : features_) {
    const Declared* values = find(f.name + ".values");
    // A feature may be called as the dense values are.
    const Declared* ids = dense_ > 0 && f.name == kDense ? nullptr : find(f.name);
    if ((values == nullptr) == (ids == nullptr))
      refuse("config.pbtxt needs one of the inputs \"", f.name, "\" ([batch, k] ids) and \"", f.name,
             ".values\" (the ids of all samples in turn), and has ", ids == nullptr ? "none" : "both");
    f.rows = ids != nullptr;
    require_type(f.rows ? *ids : *values, {"TYPE_INT64", "TYPE_INT32"});
    if (f.rows) require_width(*ids, batched, -1);
    if (!f.rows && batched)
      refuse("config.pbtxt: \"", f.name, ".values\" has no batch, which max_batch_size says: set it to 0, or take the ",
             "input \"", f.name, "\" ([batch, k] ids)");
    const Declared* lengths = find(f.name + ".lengths");
    if (!f.rows && lengths == nullptr) refuse("config.pbtxt: \"", f.name, ".values\" needs \"", f.name, ".lengths\"");
    if (lengths != nullptr) require_type(*lengths, {"TYPE_INT32", "TYPE_INT64"});
    f.lengths = lengths != nullptr;
    const Declared* weights = find(f.name + ".weights");
    if (weights != nullptr && !weighted_)
      refuse("config.pbtxt has the input \"", weights->name, "\", but the model takes no weights");
    if (weights != nullptr) require_type(*weights, {"TYPE_FP32"});
    f.weights = weights != nullptr;
  }
  if (!left.empty()) refuse("config.pbtxt has the input \"", *left.begin(), "\", which is none of the model's");
  for (const Declared& d : declared(parsed, "output")) {
    const auto at =
        std::find_if(outputs_.begin(), outputs_.end(), [&](const Output& output) { return output.name == d.name; });
    if (at == outputs_.end()) refuse("config.pbtxt has the output \"", d.name, "\", which is no head of the model");
    require_type(d, {"TYPE_FP32"});
    require_width(d, batched, at->width);
  }
}

}  // namespace tessera_triton
