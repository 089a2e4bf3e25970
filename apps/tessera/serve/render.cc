#include <cstring>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "data/columns.h"
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
                           bool binary_output, std::span<const float> scores, std::span<const float> items) {
  InferResponse out;
  std::string& body = out.body;
  body.reserve(256 + (scores.size() + items.size()) * (binary_output ? 8 : 12));
  body += "{\"model_name\":" + json_string(name) + ",\"model_version\":" + json_string(model.version);
  if (!id.empty()) body += ",\"id\":" + json_string(id);
  std::string shape = std::to_string(scores.size());
  if (!items.empty()) {
    const auto width = static_cast<size_t>(model.outputs.front().width);
    shape = std::to_string(scores.size() / width) + ',' + std::to_string(width);
  }
  std::string bytes;
  const auto add = [&](const char* output, const char* datatype, std::span<const float> values, auto type) {
    body += std::string("{\"name\":\"") + output + R"(","datatype":")" + datatype + R"(","shape":[)" + shape + "],";
    if (binary_output) {
      const size_t before = bytes.size();
      bytes.resize(before + values.size() * sizeof(type));
      for (size_t i = 0; i < values.size(); ++i) {
        const auto value = static_cast<decltype(type)>(values[i]);
        std::memcpy(bytes.data() + before + i * sizeof(type), &value, sizeof(type));
      }
      body += "\"parameters\":{\"binary_data_size\":" + std::to_string(bytes.size() - before) + "}}";
      return;
    }
    body += "\"data\":[";
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) body += ',';
      if constexpr (std::is_same_v<decltype(type), int64_t>)
        body += std::to_string(static_cast<int64_t>(values[i]));
      else
        append_number(body, values[i]);
    }
    body += "]}";
  };
  body += ",\"outputs\":[";
  add("score", "FP32", scores, float{});
  if (!items.empty()) {
    body += ',';
    add("item", "INT64", items, int64_t{});
  }
  body += "]}";
  if (!binary_output) return out;
  out.json_bytes = body.size();
  body += bytes;
  return out;
}

std::string render_server() {
  return json_line({{"name", "tessera"},
                    {"version", TESSERA_VERSION},
                    {"extensions", json::array({"binary_tensor_data", "model_repository"})}});
}

std::string render_model(const ModelDescription& model, std::string_view name, const std::vector<std::string>& versions,
                         const data::Columns* columns) {
  const std::vector<std::string> dense = columns != nullptr ? columns->dense() : std::vector<std::string>();
  json inputs = json::array();
  for (const std::string& column : dense) inputs.push_back(tensor(column, "FP32", json::array({-1})));
  if (model.dense_inputs > 0 && dense.empty())
    inputs.push_back(tensor("dense", "FP32", json::array({-1, model.dense_inputs})));
  for (const ModelFeature& feature : model.features) {
    const ColumnConfig* const column = columns != nullptr ? columns->column(feature.name) : nullptr;
    if (column != nullptr && !column->cross.empty()) continue;  // made of others
    const int32_t type = column != nullptr ? data::Columns::type_of(*column) : TSR_READER_INT64;
    const char* const datatype = type == TSR_READER_TEXT ? "BYTES" : type == TSR_READER_INT64 ? "INT64" : "FP32";
    inputs.push_back(tensor(feature.name + ".values", datatype, json::array({-1})));
    inputs.push_back(tensor(feature.name + ".lengths", "INT32", json::array({-1})));
    if (model.is_weighted) inputs.push_back(tensor(feature.name + ".weights", "FP32", json::array({-1})));
  }
  json outputs = json::array();
  const bool items = answers_items(model);
  for (size_t o = 0; o < (items ? 2 : 1); ++o) {
    outputs.push_back(tensor(o == 0 ? "score" : "item", o == 0 ? "FP32" : "INT64",
                             items ? json::array({-1, model.outputs[o].width}) : json::array({-1})));
  }
  return json_line({{"name", name},
                    {"versions", versions},
                    {"platform", "tessera_" + model.type},
                    {"inputs", inputs},
                    {"outputs", outputs}});
}

std::string render_error(std::string_view sentence) { return "{\"error\":" + json_string(sentence) + "}"; }

}  // namespace tessera::serve
