#include "translate.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <bit>
#include <cstdio>

#include "answers.pb.h"

namespace tessera::endpoint {
namespace {

using sdk::Failure;
using Tensor = inference::ModelInferRequest::InferInputTensor;
using Contents = inference::InferTensorContents;

static_assert(std::endian::native == std::endian::little, "tensors' bytes are little-endian");

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out += '"';
}

std::string escaped(std::string_view part) {
  std::string out;
  for (const char c : part) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '.' || c == '~';
    char byte[4];
    std::snprintf(byte, sizeof(byte), "%%%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
    if (plain) out += c;
    if (!plain) out += byte;
  }
  return out;
}

template <class T, class Field>
void put(const Field& field, std::string& out) {
  for (const auto& value : field) {
    const T element = static_cast<T>(value);
    out.append(reinterpret_cast<const char*>(&element), sizeof(element));
  }
}

// The field of the contents that has a data type's values, and their conversion to bytes.
struct Datatype {
  const char* name;
  const char* field;
  int (*count)(const Contents&);
  void (*put)(const Contents&, std::string&);
};
#define TESSERA_DATATYPE(name, type, field)                                                                     \
  {                                                                                                             \
#name, #field,                                                                                              \
        [](const Contents& c) { return c.field##_size(); }, [](const Contents& c,                               \
                                                               std::string& out) { put<type>(c.field(), out); } \
  }
constexpr Datatype kDatatypes[] = {
    TESSERA_DATATYPE(BOOL, bool, bool_contents),
    TESSERA_DATATYPE(INT8, int8_t, int_contents),
    TESSERA_DATATYPE(INT16, int16_t, int_contents),
    TESSERA_DATATYPE(INT32, int32_t, int_contents),
    TESSERA_DATATYPE(INT64, int64_t, int64_contents),
    TESSERA_DATATYPE(UINT8, uint8_t, uint_contents),
    TESSERA_DATATYPE(UINT16, uint16_t, uint_contents),
    TESSERA_DATATYPE(UINT32, uint32_t, uint_contents),
    TESSERA_DATATYPE(UINT64, uint64_t, uint64_contents),
    TESSERA_DATATYPE(FP32, float, fp32_contents),
    TESSERA_DATATYPE(FP64, double, fp64_contents),
    {"BYTES", "bytes_contents", [](const Contents& c) { return c.bytes_contents_size(); },
     [](const Contents& c, std::string& out) {
       for (const std::string& text : c.bytes_contents()) {
         const auto length = static_cast<uint32_t>(text.size());
         out.append(reinterpret_cast<const char*>(&length), sizeof(length));
         out += text;
       }
     }},
};
#undef TESSERA_DATATYPE

// Appends the tensor's values to `out`: as many as `contents` has in the field of its data type.
void put_contents(const Tensor& tensor, std::string& out) {
  const Contents& c = tensor.contents();
  const int values = c.bool_contents_size() + c.int_contents_size() + c.int64_contents_size() + c.uint_contents_size() +
                     c.uint64_contents_size() + c.fp32_contents_size() + c.fp64_contents_size() +
                     c.bytes_contents_size();
  for (const Datatype& datatype : kDatatypes) {
    if (tensor.datatype() != datatype.name) continue;
    if (datatype.count(c) != values)
      sdk::fail(TSR_INVALID_ARGUMENT, "input ", tensor.name(), " has datatype ", datatype.name,
                ", so its values belong into ", datatype.field, ", but it has others");
    return datatype.put(c, out);
  }
  sdk::fail(TSR_INVALID_ARGUMENT, "input ", tensor.name(), " has datatype \"", tensor.datatype().substr(0, 40),
            "\", which the protocol does not have");
}

std::string shape_of(const Tensor& tensor) {
  std::string out;
  for (const int64_t extent : tensor.shape()) out += (out.empty() ? "" : ",") + std::to_string(extent);
  return out;
}

}  // namespace

std::string model_path(std::string_view name, std::string_view version, std::string_view action) {
  std::string out = "/v2/models/" + escaped(name);
  if (!version.empty()) out += "/versions/" + escaped(version);
  return out += action;
}

InferBody infer_body(const inference::ModelInferRequest& request, std::optional<std::chrono::microseconds> left) {
  const bool raw = request.raw_input_contents_size() > 0;
  if (raw && request.raw_input_contents_size() != request.inputs_size())
    sdk::fail(TSR_INVALID_ARGUMENT, "the request has ", request.inputs_size(), " inputs and ",
              request.raw_input_contents_size(), " raw_input_contents: give one for each, or none");
  if (const auto asked = request.parameters().find("timeout"); asked != request.parameters().end()) {
    const std::chrono::microseconds timeout(asked->second.int64_param());
    left = left ? std::min(*left, timeout) : timeout;
  }
  std::string json = "{", tensors;
  if (!request.id().empty()) json += "\"id\":" + in_quotes(request.id()) + ",";
  json += "\"parameters\":{\"binary_data_output\":true";
  if (left) json += ",\"timeout\":" + std::to_string(left->count());
  json += "},\"inputs\":[";
  for (int i = 0; i < request.inputs_size(); ++i) {
    const Tensor& tensor = request.inputs(i);
    const size_t before = tensors.size();
    if (raw && tensor.has_contents())
      sdk::fail(TSR_INVALID_ARGUMENT, "input ", tensor.name(), " has both contents and raw_input_contents");
    if (raw) tensors += request.raw_input_contents(i);
    if (!raw) put_contents(tensor, tensors);
    json += (i > 0 ? ",{" : "{") + ("\"name\":" + in_quotes(tensor.name()));
    json += ",\"datatype\":" + in_quotes(tensor.datatype()) + ",\"shape\":[" + shape_of(tensor) + "]";
    json += ",\"parameters\":{\"binary_data_size\":" + std::to_string(tensors.size() - before) + "}}";
  }
  json += "]";
  if (request.outputs_size() > 0) {
    json += ",\"outputs\":[";
    for (int i = 0; i < request.outputs_size(); ++i)
      json += (i > 0 ? ",{\"name\":" : "{\"name\":") + in_quotes(request.outputs(i).name()) + "}";
    json += "]";
  }
  json += "}";
  const auto json_bytes = static_cast<int64_t>(json.size());
  return {std::move(json += tensors), json_bytes};
}

void read_json(std::string_view json, google::protobuf::Message& out) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, &out, options);
  if (!status.ok()) sdk::fail(TSR_INTERNAL, "the server's answer is not JSON of this protocol: ", status.ToString());
}

void read_infer(const sdk::EndpointResponse& answer, inference::ModelInferResponse& out) {
  Inferred inferred;
  read_json(answer.json, inferred);
  out.set_model_name(inferred.model_name());
  out.set_model_version(inferred.model_version());
  out.set_id(inferred.id());
  std::string_view rest = answer.tensors;
  for (const Inferred::Output& output : inferred.outputs()) {
    const auto bytes = static_cast<size_t>(output.parameters().binary_data_size());
    if (bytes > rest.size()) sdk::fail(TSR_INTERNAL, "the server's answer ends within output ", output.name());
    auto& told = *out.add_outputs();
    told.set_name(output.name());
    told.set_datatype(output.datatype());
    *told.mutable_shape() = output.shape();
    out.add_raw_output_contents(rest.data(), bytes);
    rest.remove_prefix(bytes);
  }
}

void read_index(const sdk::EndpointResponse& answer, inference::RepositoryIndexResponse& out) {
  read_json("{\"models\":" + std::string(answer.json) + "}", out);
}

grpc::Status failed(const sdk::EndpointResponse& answer) {
  const auto code = [&] {
    switch (answer.status) {
      case 400:
      case 415:
        return grpc::StatusCode::INVALID_ARGUMENT;
      case 401:
        return grpc::StatusCode::UNAUTHENTICATED;
      case 403:
        return grpc::StatusCode::PERMISSION_DENIED;
      case 404:
        return grpc::StatusCode::NOT_FOUND;
      case 503:
        return grpc::StatusCode::UNAVAILABLE;
      default:
        return grpc::StatusCode::INTERNAL;
    }
  }();
  Failed why;
  read_json(answer.json, why);
  return {code, why.error()};
}

}  // namespace tessera::endpoint
