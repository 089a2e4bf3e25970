#include "translate.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace tessera::endpoint {
namespace {

using Tensor = inference::ModelInferRequest::InferInputTensor;
using Contents = inference::InferTensorContents;

constexpr int kMostInputs = 1 << 16;  // more than any model has, so that a small message cannot become a large list

static_assert(std::endian::native == std::endian::little, "tensors' bytes are little-endian");

// The server takes strings that end with a NUL, so none may be inside.
const std::string& text_of(const std::string& text, const char* what) {
  if (text.find('\0') != std::string::npos)
    sdk::fail(TSR_INVALID_ARGUMENT, what, " holds a NUL byte, which no name has");
  return text;
}

// A field of the contents as the data of a tensor whose elements are of type T.
template <class T, class Field>
void take(const Field& field, InferCall& call, sdk::EndpointTensor& out) {
  out.bytes = static_cast<size_t>(field.size()) * sizeof(T);
  if constexpr (sizeof(T) == sizeof(*field.data())) {
    out.data = field.data();
  } else {
    std::vector<char>& elements = call.numbers.emplace_back(out.bytes);
    for (int i = 0; i < field.size(); ++i) {
      const T element = static_cast<T>(field[i]);
      std::memcpy(elements.data() + static_cast<size_t>(i) * sizeof(T), &element, sizeof(T));
    }
    out.data = elements.data();
  }
}

void take_texts(std::vector<tsr_endpoint_text>&& texts, InferCall& call, sdk::EndpointTensor& out) {
  const std::vector<tsr_endpoint_text>& kept = call.texts.emplace_back(std::move(texts));
  out.data = kept.data();
  out.bytes = kept.size() * sizeof(tsr_endpoint_text);
}

// The field of the contents that has a data type's values.
struct Datatype {
  const char* name;
  const char* field;
  int (*count)(const Contents&);
  void (*take)(const Contents&, InferCall&, sdk::EndpointTensor&);
};
#define TESSERA_DATATYPE(name, type, field)                                                                           \
  {                                                                                                                   \
#name, #field, [](const Contents& c) { return c.field##_size(); },                                                \
                                                                    [](const Contents& c, InferCall& call,            \
                                                                       sdk::EndpointTensor&                           \
                                                                           out) { take<type>(c.field(), call, out); } \
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
     [](const Contents& c, InferCall& call, sdk::EndpointTensor& out) {
       std::vector<tsr_endpoint_text> texts;
       texts.reserve(static_cast<size_t>(c.bytes_contents_size()));
       for (const std::string& text : c.bytes_contents())
         texts.push_back({text.data(), static_cast<int64_t>(text.size())});
       take_texts(std::move(texts), call, out);
     }},
};
#undef TESSERA_DATATYPE

// Takes as many values as the contents have in the field of the tensor's data type.
void take_contents(const Tensor& tensor, InferCall& call, sdk::EndpointTensor& out) {
  const Contents& c = tensor.contents();
  const int values = c.bool_contents_size() + c.int_contents_size() + c.int64_contents_size() + c.uint_contents_size() +
                     c.uint64_contents_size() + c.fp32_contents_size() + c.fp64_contents_size() +
                     c.bytes_contents_size();
  for (const Datatype& datatype : kDatatypes) {
    if (tensor.datatype() != datatype.name) continue;
    if (datatype.count(c) != values)
      sdk::fail(TSR_INVALID_ARGUMENT, "input ", tensor.name(), " has datatype ", datatype.name,
                ", so its values belong into ", datatype.field, ", but it has others");
    return datatype.take(c, call, out);
  }
  sdk::fail(TSR_INVALID_ARGUMENT, "input ", tensor.name(), " has datatype ", tensor.datatype(),
            ", whose values belong into raw_input_contents");
}

// Takes raw bytes. Those of a BYTES tensor are texts, each after its length, a uint32.
void take_raw(const Tensor& tensor, std::string_view raw, InferCall& call, sdk::EndpointTensor& out) {
  out.data = raw.data();
  out.bytes = raw.size();
  if (tensor.datatype() != "BYTES") return;
  std::vector<tsr_endpoint_text> texts;
  while (!raw.empty()) {
    uint32_t length = 0;
    if (raw.size() >= sizeof(length)) std::memcpy(&length, raw.data(), sizeof(length));
    if (raw.size() < sizeof(length) || raw.size() - sizeof(length) < length)
      sdk::fail(TSR_INVALID_ARGUMENT, "input ", tensor.name(), " has ", raw.size(), " bytes after its ", texts.size(),
                " whole texts");
    texts.push_back({raw.data() + sizeof(length), length});
    raw.remove_prefix(sizeof(length) + length);
  }
  take_texts(std::move(texts), call, out);
}

}  // namespace

sdk::EndpointRequest model_call(int32_t call, const std::string& name, const std::string& version) {
  return {.call = call, .model = text_of(name, "the model's name"), .version = text_of(version, "the model's version")};
}

InferCall infer_call(const inference::ModelInferRequest& request, std::optional<std::chrono::microseconds> left) {
  const bool raw = request.raw_input_contents_size() > 0;
  if (raw && request.raw_input_contents_size() != request.inputs_size())
    sdk::fail(TSR_INVALID_ARGUMENT, "the request has ", request.inputs_size(), " inputs and ",
              request.raw_input_contents_size(), " raw_input_contents: give one for each, or none");
  if (request.inputs_size() > kMostInputs || request.outputs_size() > kMostInputs)
    sdk::fail(TSR_INVALID_ARGUMENT, "a request has at most ", kMostInputs, " inputs and as many outputs");
  InferCall call{model_call(TSR_ENDPOINT_INFER, request.model_name(), request.model_version()), {}, {}};
  sdk::EndpointRequest& out = call.request;
  out.id = text_of(request.id(), "the request's id");
  if (const auto asked = request.parameters().find("timeout"); asked != request.parameters().end()) {
    const std::chrono::microseconds timeout(asked->second.int64_param());
    if (timeout.count() > 0) left = left ? std::min(*left, timeout) : timeout;
  }
  if (left) out.timeout = *left;
  out.inputs.reserve(static_cast<size_t>(request.inputs_size()));
  for (int i = 0; i < request.inputs_size(); ++i) {
    const Tensor& tensor = request.inputs(i);
    const sdk::EndpointType* const type = sdk::endpoint_type(tensor.datatype());
    if (type == nullptr)
      sdk::fail(TSR_INVALID_ARGUMENT, "input ", tensor.name(), " has datatype \"", tensor.datatype().substr(0, 40),
                "\", which the protocol does not have");
    if (raw && tensor.has_contents())
      sdk::fail(TSR_INVALID_ARGUMENT, "input ", tensor.name(), " has both contents and raw_input_contents");
    sdk::EndpointTensor& input = out.inputs.emplace_back();
    input.name = text_of(tensor.name(), "the name of an input").c_str();
    input.type = type->type;
    input.shape = {tensor.shape().data(), static_cast<size_t>(tensor.shape_size())};
    if (raw)
      take_raw(tensor, request.raw_input_contents(i), call, input);
    else
      take_contents(tensor, call, input);
  }
  for (const auto& output : request.outputs())
    out.outputs.push_back(text_of(output.name(), "the name of an output").c_str());
  return call;
}

void read_json(std::string_view json, google::protobuf::Message& out) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, &out, options);
  if (!status.ok()) sdk::fail(TSR_INTERNAL, "the server's answer is not JSON of this protocol: ", status.ToString());
}

void read_infer(const sdk::EndpointResponse& answer, inference::ModelInferResponse& out) {
  out.set_model_name(answer.model.data(), answer.model.size());
  out.set_model_version(answer.version.data(), answer.version.size());
  out.set_id(answer.id.data(), answer.id.size());
  for (size_t i = 0; i < answer.outputs.size(); ++i) {
    const sdk::EndpointTensor output = answer.outputs[i];
    const sdk::EndpointType* const type = sdk::endpoint_type(output.type);
    if (type == nullptr || type->name == "BYTES")
      sdk::fail(TSR_INTERNAL, "the server's output ", output.name, " is not of numbers");
    auto& told = *out.add_outputs();
    told.set_name(output.name);
    told.set_datatype(type->name.data(), type->name.size());
    told.mutable_shape()->Add(output.shape.begin(), output.shape.end());
    out.add_raw_output_contents(output.data, output.bytes);
  }
}

void read_index(const sdk::EndpointResponse& answer, inference::RepositoryIndexResponse& out) {
  read_json("{\"models\":" + std::string(answer.text) + "}", out);
}

grpc::Status status_of(const sdk::EndpointResponse& answer) {
  if (answer.code == TSR_OK) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(answer.code), std::string(answer.message)};  // the numbers are the same
}

}  // namespace tessera::endpoint
