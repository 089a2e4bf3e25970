#include "inference/int8_dense.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tessera/sdk/int8_rows.h"

namespace tessera {
namespace inference {
namespace {

constexpr int kZeroCode = 128;

// One weight, rounded.
struct Rounded {
  Tensor codes, scales;  // uint8 [rows, columns], float32 [rows]
};

Rounded round(const Tensor& weight) {
  const int64_t rows = weight.size(0), columns = weight.size(1);
  Rounded out{Tensor::empty({rows, columns}, DType::kUInt8), Tensor::empty({rows})};
  std::vector<int8_t> row(static_cast<size_t>(columns));
  uint8_t* to = out.codes.data<uint8_t>();
  for (int64_t r = 0; r < rows; ++r) {
    out.scales.data<float>()[r] = sdk::round_to_int8(weight.data<float>() + r * columns, columns, row.data());
    for (const int8_t code : row) *to++ = static_cast<uint8_t>(code + kZeroCode);
  }
  return out;
}

Tensor values_of(const Rounded& rounded) {
  const int64_t rows = rounded.codes.size(0), columns = rounded.codes.size(1);
  Tensor out = Tensor::empty({rows, columns});
  const uint8_t* from = rounded.codes.data<uint8_t>();
  float* to = out.data<float>();
  for (int64_t r = 0; r < rows; ++r) {
    const float scale = rounded.scales.data<float>()[r];
    for (int64_t c = 0; c < columns; ++c) *to++ = static_cast<float>(int{*from++} - kZeroCode) * scale;
  }
  return out;
}

// Adds the errors of a weight; *sum gets those of all values.
void compare(const Tensor& before, const Tensor& after, double* worst, double* sum) {
  for (int64_t i = 0; i < before.numel(); ++i) {
    const double error = std::abs(double{before.data<float>()[i]} - double{after.data<float>()[i]});
    *worst = std::max(*worst, error);
    *sum += error;
  }
}

}  // namespace

DensePrecision prediction_precision(const Runtime& runtime, const InferenceModel& model, const std::string& wanted) {
  const bool own = wanted.empty() || wanted == kInt8Precision;
  if (model.int8_weights.empty()) {
    if (wanted == kInt8Precision)
      fail(Code::kInvalidArgument, "dense_precision = \"int8\" cannot be used: the dense layers of model ",
           model.description.name, " are in float32; pack it with tessera quantize --dense int8");
    return choose_precision(runtime, model.graph, own ? kFloat32Precision : wanted, nullptr);
  }
  if (own || wanted == kAutoPrecision) return {kInt8Precision};
  fail(Code::kInvalidArgument, "dense_precision = \"", wanted, "\" cannot be used: the dense layers of model ",
       model.description.name, " are in int8; leave it out, or pack the model without --dense int8");
}

std::string scales_name(const std::string& weight) { return weight + ".scales"; }

std::map<std::string, Tensor> stored_dense(const InferenceModel& model) {
  std::map<std::string, Tensor> out = model.dense;
  for (const std::string& name : model.int8_weights) {
    const Rounded rounded = round(model.dense.at(name));
    out[name] = rounded.codes;
    out[scales_name(name)] = rounded.scales;
  }
  return out;
}

void restore_dense(InferenceModel& model) {
  for (auto& [name, value] : model.dense) {
    if (value.dtype() == DType::kUInt8) model.int8_weights.insert(name);
  }
  for (const std::string& name : model.int8_weights) {
    Tensor& codes = model.dense.at(name);
    const auto scales = model.dense.find(scales_name(name));
    if (codes.dim() != 2 || scales == model.dense.end() || scales->second.dtype() != DType::kFloat32 ||
        scales->second.shape() != Shape({codes.size(0)}))
      fail(Code::kDataLoss, "\"", name, "\" is a matrix of 8 bits without a scale for each row");
    codes = values_of({codes, scales->second});
    model.dense.erase(scales);
  }
}

}  // namespace inference

std::vector<DenseReport> round_dense_to_int8(const Runtime& runtime, InferenceModel& model) {
  const LayerGraph layers(runtime, model.graph,
                          {.values = &model.dense, .precision = kInt8Precision, .sequence_heads = true});
  std::vector<DenseReport> out;
  for (size_t l = 0; l < model.graph.layers.size(); ++l) {
    DenseReport report{model.graph.layers[l].name};
    double sum = 0;
    int64_t rounded_values = 0;
    for (const ParameterPtr& p : layers.parameters_of(l)) {
      Tensor& value = model.dense.at(p->name);
      report.bytes_before += value.bytes();
      report.bytes_after += value.bytes();
      if (!p->int8_rows) continue;
      if (model.dense.contains(inference::scales_name(p->name)))
        fail(Code::kUnimplemented, "the scales of \"", p->name, "\" would have the name of a parameter: rename layer ",
             report.layer);
      const inference::Rounded rounded = inference::round(value);
      report.bytes_after += rounded.codes.bytes() + rounded.scales.bytes() - value.bytes();
      const Tensor after = inference::values_of(rounded);
      inference::compare(value, after, &report.worst_error, &sum);
      rounded_values += value.numel();
      value = after;
      model.int8_weights.insert(p->name);
    }
    report.int8 = rounded_values > 0;
    if (report.int8) report.mean_error = sum / static_cast<double>(rounded_values);
    if (report.bytes_before > 0) out.push_back(std::move(report));
  }
  if (model.int8_weights.empty())
    fail(Code::kInvalidArgument, "no layer of the model has products in int8: an mlp, for example, has them if its ",
         "matrices have at least 32 rows and columns; pack it without --dense int8");
  model.description.dense_precision = kInt8Precision;
  return out;
}

}  // namespace tessera
