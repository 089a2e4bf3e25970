#include "serve/infer_inputs.h"

#include <algorithm>

#include "serve/json_text.h"
#include "serve/names.h"
#include "serve/score_rows.h"
#include "tessera/abi/draft/reader.h"
#include "tessera/data.h"
#include "tessera/error.h"

namespace tessera::serve {
namespace {

// For example {"name": "user.values", "datatype": "BYTES", "shape": [1], "data": ["a"]}.
std::string example_of(const InputForm& input) {
  std::string shape, data;
  const char* const value = input.datatype == "BYTES" ? "\"a\"" : "1";
  int64_t values = 1;
  for (const int64_t extent : input.shape) {
    shape += str_cat(shape.empty() ? "" : ", ", extent < 0 ? 1 : extent);
    values *= extent < 0 ? 1 : extent;
  }
  constexpr int64_t kMost = 4;
  for (int64_t i = 0; i < std::min(values, kMost); ++i) data += str_cat(i == 0 ? "" : ", ", value);
  if (values > kMost) data += ", ...";
  return str_cat("{\"name\": ", json_string(input.name), ", \"datatype\": \"", input.datatype, "\", \"shape\": [",
                 shape, "], \"data\": [", data, "]}");
}

}  // namespace

std::vector<InputForm> inputs_of(const ModelDescription& model, const ColumnEncoding* columns) {
  std::vector<InputForm> out;
  const std::vector<std::string> dense = columns != nullptr ? columns->dense() : std::vector<std::string>();
  for (const std::string& column : dense) {
    const int32_t type = ColumnEncoding::type_of(*columns->column(column));
    out.push_back({column, type == TSR_READER_TEXT ? "BYTES" : type == TSR_READER_FLOAT64 ? "FP64" : "FP32", {-1}});
  }
  const auto vectors = columns != nullptr ? columns->vectors() : std::vector<ColumnEncoding::Vector>();
  for (const auto& [name, width] : vectors) out.push_back({name, "FP32", {-1, width}});
  if (model.dense_inputs > 0 && dense.empty() && vectors.empty())
    out.push_back({"dense", "FP32", {-1, model.dense_inputs}});
  for (const ModelFeature& feature : model.features) {
    if (!feature.needed) continue;
    const ColumnConfig* const column = columns != nullptr ? columns->column(feature.name) : nullptr;
    if (column != nullptr && !column->cross.empty()) continue;  // computed from other columns
    const int32_t type = column != nullptr ? ColumnEncoding::type_of(*column) : TSR_READER_INT64;
    const char* const datatype = type == TSR_READER_TEXT ? "BYTES" : type == TSR_READER_INT64 ? "INT64" : "FP32";
    out.push_back({feature.name + ".values", datatype, {-1}});
    out.push_back({feature.name + ".lengths", "INT32", {-1}});
    if (model.is_weighted) out.push_back({feature.name + ".weights", "FP32", {-1}});
  }
  return out;
}

std::string missing_text(const ModelDescription& model, const std::string& name, const TensorRequest& request,
                         const InferLimits& limits) {
  const std::vector<InputForm> inputs = inputs_of(model, limits.columns);
  std::vector<std::string> names;
  for (const InputForm& input : inputs) {
    if (!input.name.ends_with(".weights")) names.push_back(input.name);
  }
  const auto called_so = [&](const InputForm& input) { return input.name == name; };
  const auto form = std::find_if(inputs.begin(), inputs.end(), called_so);
  const std::string_view served = served_name(model, limits);
  return str_cat(
      "input ", name, " is missing",
      request.inputs.empty()
          ? str_cat(": the request has no \"inputs\"",
                    request.unknown.empty() ? "" : str_cat(", and \"", request.unknown, "\" is not one of its members"))
          : "",
      "; model ", served, " takes ", listed(names, ""),
      form == inputs.end() ? "" : str_cat(", for example {\"inputs\": [", example_of(*form), ", ...]}"),
      "; or by the names of columns POST /v1/models/", served, "/score ", example_rows(model, limits.columns));
}

}  // namespace tessera::serve
