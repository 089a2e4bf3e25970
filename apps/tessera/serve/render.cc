#include <nlohmann/json.hpp>

#include "serve/json_text.h"
#include "serve/protocol.h"

namespace tessera::serve {
namespace {

using json = nlohmann::ordered_json;

json tensor(const std::string& name, const char* datatype, json shape) {
  return {{"name", name}, {"datatype", datatype}, {"shape", std::move(shape)}};
}

}  // namespace

InferResponse render_infer(const ModelDescription& model, std::string_view name, std::string_view id,
                           bool binary_output, std::span<const float> scores) {
  InferResponse out;
  std::string& body = out.body;
  body.reserve(256 + scores.size() * (binary_output ? 4 : 12));
  body += "{\"model_name\":" + json_string(name) + ",\"model_version\":" + json_string(model.version);
  if (!id.empty()) body += ",\"id\":" + json_string(id);
  const size_t bytes = scores.size() * sizeof(float);
  body += R"(,"outputs":[{"name":"score","datatype":"FP32","shape":[)" + std::to_string(scores.size()) + "],";
  if (binary_output) {
    body += "\"parameters\":{\"binary_data_size\":" + std::to_string(bytes) + "}}]}";
    out.json_bytes = body.size();
    body.append(reinterpret_cast<const char*>(scores.data()), bytes);
    return out;
  }
  body += "\"data\":[";
  for (size_t i = 0; i < scores.size(); ++i) {
    if (i > 0) body += ',';
    append_number(body, scores[i]);
  }
  body += "]}]}";
  return out;
}

std::string render_server() {
  return json_line({{"name", "tessera"},
                    {"version", TESSERA_VERSION},
                    {"extensions", json::array({"binary_tensor_data", "model_repository"})}});
}

std::string render_model(const ModelDescription& model, std::string_view name,
                         const std::vector<std::string>& versions) {
  json inputs = json::array();
  if (model.dense_inputs > 0) inputs.push_back(tensor("dense", "FP32", json::array({-1, model.dense_inputs})));
  for (const ModelFeature& feature : model.features) {
    inputs.push_back(tensor(feature.name + ".values", "INT64", json::array({-1})));
    inputs.push_back(tensor(feature.name + ".lengths", "INT32", json::array({-1})));
    if (model.is_weighted) inputs.push_back(tensor(feature.name + ".weights", "FP32", json::array({-1})));
  }
  return json_line({{"name", name},
                    {"versions", versions},
                    {"platform", "tessera_" + model.type},
                    {"inputs", inputs},
                    {"outputs", json::array({tensor("score", "FP32", json::array({-1}))})}});
}

std::string render_error(std::string_view sentence) { return "{\"error\":" + json_string(sentence) + "}"; }

}  // namespace tessera::serve
