// Converts values of the case files to Tessera's types.
#include <cmath>
#include <limits>

#include "conformance/runner.h"

namespace tessera::cli {
namespace {

// JSON cannot spell these numbers; the files write them as text, in Python's or JavaScript's words.
double number_from(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    const double infinity = std::numeric_limits<double>::infinity();
    if (text == "NaN" || text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text == "Infinity" || text == "inf") return infinity;
    if (text == "-Infinity" || text == "-inf") return -infinity;
  }
  fail(Code::kInvalidArgument, "a tensor's datum is ", value.dump(), ", which is not a number");
}

void store(const Tensor& tensor, int64_t i, const json& datum) {
  switch (tensor.dtype()) {
    case DType::kInt32:
      tensor.data<int32_t>()[i] = datum.get<int32_t>();
      break;
    case DType::kInt64:
      tensor.data<int64_t>()[i] = datum.get<int64_t>();
      break;
    case DType::kUInt8:
      tensor.data<uint8_t>()[i] = datum.get<uint8_t>();
      break;
    case DType::kFloat64:
      tensor.data<double>()[i] = number_from(datum);
      break;
    case DType::kFloat32:
      tensor.data<float>()[i] = static_cast<float>(number_from(datum));
      break;
    case DType::kFloat16:
      tensor.half_bits()[i] = float_to_half(static_cast<float>(number_from(datum)));
      break;
    case DType::kBFloat16:
      tensor.half_bits()[i] = float_to_bfloat16(static_cast<float>(number_from(datum)));
      break;
  }
}

}  // namespace

const json& field_or_null(const json& object, const char* field) {
  static const json kNull;
  const auto found = object.find(field);
  return found == object.end() ? kNull : *found;
}

Tensor tensor_from(const json& value) {
  if (value.is_null()) return {};
  if (!value.is_object() || !value.contains("shape") || !value.contains("dtype") || !value.contains("data")) {
    fail(Code::kInvalidArgument, "a tensor is written {\"shape\", \"dtype\", \"data\"}, not ",
         value.dump().substr(0, 80));
  }
  const json& data = value["data"];
  Tensor tensor =
      Tensor::empty(value["shape"].get<std::vector<int64_t>>(), dtype_from(value["dtype"].get<std::string>()));
  if (tensor.numel() != static_cast<int64_t>(data.size())) {
    fail(Code::kInvalidArgument, "a tensor of shape ", value["shape"].dump(), " has ", data.size(), " data");
  }
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    if (is_integer(tensor.dtype()) && !data[i].is_number_integer()) {
      fail(Code::kInvalidArgument, "a datum of an ", to_string(tensor.dtype()), " tensor is ", data[i].dump());
    }
    store(tensor, i, data[i]);
  }
  return tensor;
}

KeyedJaggedTensor kjt_from(const json& value) {
  KeyedJaggedTensor::Options options;
  options.keys = value.at("keys").get<std::vector<std::string>>();
  options.values = tensor_from(value.at("values"));
  options.weights = tensor_from(field_or_null(value, "weights"));
  options.lengths = tensor_from(field_or_null(value, "lengths"));
  options.offsets = tensor_from(field_or_null(value, "offsets"));
  const json& stride = field_or_null(value, "stride");
  if (!stride.is_null()) options.stride = stride.get<int64_t>();
  const json& per_rank = field_or_null(value, "stride_per_key_per_rank");
  if (!per_rank.is_null()) options.stride_per_key_per_rank = per_rank.get<std::vector<std::vector<int64_t>>>();
  options.variable_stride = !per_rank.is_null() && options.keys.empty();
  const json& inverse = field_or_null(value, "inverse_indices");
  if (!inverse.is_null()) {
    options.inverse_indices = KeyedJaggedTensor::InverseIndices{inverse.at("keys").get<std::vector<std::string>>(),
                                                                tensor_from(inverse.at("indices"))};
  }
  return KeyedJaggedTensor(std::move(options));
}

}  // namespace tessera::cli
