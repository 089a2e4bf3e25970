#include <cstring>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "serve/infer_inputs.h"
#include "serve/json_text.h"
#include "serve/protocol.h"

namespace tessera::serve {
namespace {

using json = nlohmann::ordered_json;

json tensor(const std::string& name, const char* datatype, json shape) {
  return {{"name", name}, {"datatype", datatype}, {"shape", std::move(shape)}};
}

// Tell whether an output has item numbers, and whether it has a dimension besides the samples'.
bool is_items(const ModelDescription& model, size_t output) { return answers_items(model) && output == 1; }
bool has_columns(const ModelDescription& model, size_t output) {
  return answers_items(model) || model.outputs[output].width > 1;
}

// Writes outputs as JSON, and the bytes of those that follow it.
class Outputs {
 public:
  explicit Outputs(std::string& body) : body_(body) {}

  void add(const AnsweredOutput& output) {
    body_ += begun_ ? ",{\"name\":" : "{\"name\":";
    if (output.name == kScore)
      body_ += "\"score\"";
    else
      body_ += json_string(output.name);
    body_ += output.items ? ",\"datatype\":\"INT64\",\"shape\":[" : ",\"datatype\":\"FP32\",\"shape\":[";
    body_ += std::to_string(output.shape[0]);
    if (output.dims > 1) body_ += ',' + std::to_string(output.shape[1]);
    body_ += "],";
    if (output.items)
      add_values<int64_t>(output.values, output.binary);
    else
      add_values<float>(output.values, output.binary);
    begun_ = true;
    binary_ = binary_ || output.binary;
  }
  bool binary() const { return binary_; }  // some output is returned as bytes
  const std::string& bytes() const { return bytes_; }

 private:
  template <class T>
  void add_values(std::span<const float> values, bool binary) {
    if (binary) {
      const size_t before = bytes_.size(), size = values.size() * sizeof(T);
      bytes_.resize(before + size);
      for (size_t i = 0; i < values.size(); ++i) {
        const auto value = static_cast<T>(values[i]);
        std::memcpy(bytes_.data() + before + i * sizeof(T), &value, sizeof(T));
      }
      body_ += "\"parameters\":{\"binary_data_size\":" + std::to_string(size) + "}}";
      return;
    }
    body_ += "\"data\":[";
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) body_ += ',';
      if constexpr (std::is_same_v<T, int64_t>)
        body_ += std::to_string(static_cast<int64_t>(values[i]));
      else
        append_number(body_, values[i]);
    }
    body_ += "]}";
  }

  std::string& body_;
  std::string bytes_;
  bool begun_ = false, binary_ = false;
};

}  // namespace

std::vector<AnsweredOutput> outputs_of(const ModelDescription& model, const InferRequest& request,
                                       std::span<const std::span<const float>> values) {
  std::vector<AnsweredOutput> out;
  const auto add = [&](size_t o, std::string_view name, bool binary) {
    const int64_t width = model.outputs[o].width;
    out.push_back({name,
                   is_items(model, o),
                   binary,
                   {std::ssize(values[o]) / width, width},
                   has_columns(model, o) ? size_t{2} : size_t{1},
                   values[o]});
  };
  for (const WantedOutput& wanted : request.outputs) add(wanted.output, wanted.name, wanted.binary);
  for (size_t o = 0; request.outputs.empty() && o < values.size(); ++o)
    add(o, output_name(model, o), request.binary_output);
  return out;
}

InferResponse render_infer(const ModelDescription& model, std::string_view name, const InferRequest& request,
                           std::span<const std::span<const float>> values) {
  InferResponse out;
  std::string& body = out.body;
  size_t numbers = 0;
  for (const std::span<const float> of : values) numbers += of.size();
  body.reserve(192 + 64 * values.size() + numbers * (request.binary_output ? 8 : 12));
  body += "{\"model_name\":" + json_string(name) + ",\"model_version\":" + json_string(model.version);
  if (!request.id.empty()) body += ",\"id\":" + json_string(request.id);
  body += ",\"outputs\":[";
  Outputs outputs(body);
  for (const AnsweredOutput& output : outputs_of(model, request, values)) outputs.add(output);
  body += "]}";
  if (!outputs.binary()) return out;
  out.json_bytes = body.size();
  body += outputs.bytes();
  return out;
}

std::string render_server() {
  return json_line({{"name", "tessera"},
                    {"version", TESSERA_VERSION},
                    {"extensions", json::array({"binary_tensor_data", "model_repository"})}});
}

std::string render_model(const ModelDescription& model, std::string_view name, const std::vector<std::string>& versions,
                         const ColumnEncoding* columns) {
  json inputs = json::array();
  for (const InputForm& input : inputs_of(model, columns))
    inputs.push_back(tensor(input.name, input.datatype.c_str(), input.shape));
  json outputs = json::array();
  for (size_t o = 0; o < model.outputs.size(); ++o) {
    const json shape = has_columns(model, o) ? json::array({-1, model.outputs[o].width}) : json::array({-1});
    outputs.push_back(tensor(std::string(output_name(model, o)), is_items(model, o) ? "INT64" : "FP32", shape));
  }
  return json_line({{"name", name},
                    {"versions", versions},
                    {"platform", "tessera_" + model.type},
                    {"inputs", inputs},
                    {"outputs", outputs}});
}

std::string render_error(std::string_view sentence) { return "{\"error\":" + json_string(sentence) + "}"; }

}  // namespace tessera::serve
