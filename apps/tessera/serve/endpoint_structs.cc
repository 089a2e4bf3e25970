#include "serve/endpoint_structs.h"

#include <array>

#include "serve/infer_inputs.h"
#include "serve/infer_json.h"
#include "tessera/error.h"
#include "tessera/sdk/draft/endpoint.h"
#include "tessera/sdk/structs.h"

namespace tessera::serve {
namespace {

constexpr std::array<Ask, 9> kCalls = {Ask::kInfer,      Ask::kServerLive,     Ask::kServerReady,
                                       Ask::kModelReady, Ask::kServerMetadata, Ask::kModelMetadata,
                                       Ask::kIndex,      Ask::kLoad,           Ask::kUnload};
static_assert(TSR_ENDPOINT_INFER == 0 && TSR_ENDPOINT_MODEL_METADATA == 5 && TSR_ENDPOINT_UNLOAD == 8);

template <class... Parts>
[[noreturn]] void unknown(const Parts&... parts) {
  throw Refused{Outcome::failed(501, Failure::kBadRequest,
                                str_cat("the endpoint's request has ", parts..., ", which this server does not know"))};
}

void check_known(uint32_t flags, uint32_t known) {
  if (const uint32_t others = flags & TSR_MUST_UNDERSTAND & ~known; others != 0) unknown("flags ", others);
}

bool is_compact(const DLTensor& tensor) {
  int64_t step = 1;
  for (int32_t d = tensor.ndim; tensor.strides != nullptr && d-- > 0;) {
    if (tensor.shape[d] != 1 && tensor.strides[d] != step) return false;
    if (__builtin_mul_overflow(step, tensor.shape[d], &step)) return false;
  }
  return true;
}

RequestTensor tensor_of(const tsr_endpoint_tensor& given) {
  const auto t = sdk::read_struct(given);
  check_known(t.flags, 0);
  const DLTensor& tensor = *t.tensor;
  const sdk::EndpointType* const type = sdk::endpoint_type(tensor.dtype);
  if (type == nullptr)
    fail(Code::kInvalidArgument, "input ", shown(t.name), " has DLPack type code ", int{tensor.dtype.code}, " of ",
         int{tensor.dtype.bits}, " bits, which the Open Inference Protocol does not have");
  if (tensor.device.device_type != kDLCPU || !is_compact(tensor))
    fail(Code::kInvalidArgument, "input ", shown(t.name), " must be compact and in host memory");
  RequestTensor out{t.name, type->name, {tensor.shape, static_cast<size_t>(tensor.ndim)}};
  const void* const data = sdk::raw(tensor);
  const auto bytes = static_cast<size_t>(t.bytes);
  if (type->name == "BYTES") {
    out.data = RequestTensor::Data::kTexts;
    out.texts = {static_cast<const tsr_endpoint_text*>(data), bytes / sizeof(tsr_endpoint_text)};
  } else {
    out.data = RequestTensor::Data::kBytes;
    out.bytes = {static_cast<const char*>(data), bytes};
  }
  return out;
}

InferRequest input_of(const tsr_endpoint_request& from, const ModelDescription& model, const InferLimits& limits) {
  const auto inputs = static_cast<size_t>(from.inputs), outputs = static_cast<size_t>(from.outputs);
  check_numbers(model, limits, inputs, outputs);
  TensorRequest request{from.id, from.timeout_us};
  request.inputs.reserve(inputs);
  const auto* const first = reinterpret_cast<const char*>(from.input);
  for (size_t i = 0; i < inputs; ++i)
    request.inputs.push_back(tensor_of(*reinterpret_cast<const tsr_endpoint_tensor*>(first + i * from.input_stride)));
  for (size_t o = 0; o < outputs; ++o) request.outputs.push_back({from.output[o]});
  return parse_tensors(model, request, limits);
}

tsr_code code_of(int status) {
  switch (status) {
    case 200:
      return TSR_OK;
    case 400:
    case 415:
      return TSR_INVALID_ARGUMENT;
    case 401:
      return TSR_ENDPOINT_UNAUTHENTICATED;
    case 403:
      return TSR_PERMISSION_DENIED;
    case 404:
      return TSR_NOT_FOUND;
    case 501:
      return TSR_UNIMPLEMENTED;
    case 503:
      return TSR_UNAVAILABLE;
    default:
      return TSR_INTERNAL;
  }
}

}  // namespace

EndpointQuestion::EndpointQuestion(const tsr_endpoint_request& given) : request_(sdk::read_struct(given)) {
  check_known(request_.flags, TSR_ENDPOINT_LOADED);
  if (request_.call < 0 || request_.call >= std::ssize(kCalls)) unknown("call ", request_.call);
  question_.ask = kCalls[static_cast<size_t>(request_.call)];
  question_.model = request_.model;
  question_.version = request_.version;
  question_.authorization = request_.authorization;
  question_.local = (request_.flags & TSR_ENDPOINT_LOCAL) != 0;
  question_.loaded = (request_.flags & TSR_ENDPOINT_LOADED) != 0;
  question_.input = [this](const ModelDescription& model, const InferLimits& limits) {
    return input_of(request_, model, limits);
  };
}

EndpointAnswer::EndpointAnswer(const Outcome& outcome) {
  response_.struct_size = sizeof(response_);
  response_.flags = outcome.retry ? TSR_ENDPOINT_RETRY : 0;
  response_.code = code_of(outcome.status);
  response_.output_stride = sizeof(tsr_endpoint_tensor);
  response_.message = outcome.sentence.c_str();
  response_.text = outcome.text.c_str();
  response_.model = response_.version = response_.id = "";
  if (outcome.inferred != nullptr) add(*outcome.inferred);
}

void EndpointAnswer::add(const Inferred& inferred) {
  outputs_ = outputs_of(inferred.model, inferred.request, inferred.values);
  tensors_.reserve(outputs_.size()), structs_.reserve(outputs_.size());
  for (AnsweredOutput& output : outputs_) {
    const void* data = output.values.data();
    size_t bytes = output.values.size_bytes();
    if (output.items) {
      const std::vector<int64_t>& items = items_.emplace_back(output.values.begin(), output.values.end());
      data = items.data();
      bytes = items.size() * sizeof(int64_t);
    }
    const DLDataType type = output.items ? sdk::dtype_of<int64_t>() : sdk::dtype_of<float>();
    tensors_.push_back({const_cast<void*>(data),
                        {kDLCPU, 0},
                        static_cast<int32_t>(output.dims),
                        type,
                        output.shape.data(),
                        nullptr,
                        0});
    // All names are views of whole strings, so they end with a NUL.
    structs_.push_back(
        {sizeof(tsr_endpoint_tensor), 0, output.name.data(), &tensors_.back(), static_cast<int64_t>(bytes)});
  }
  response_.model = inferred.name.data();
  response_.version = inferred.model.version.c_str();
  response_.id = inferred.request.id.c_str();
  response_.outputs = std::ssize(structs_);
  response_.output = structs_.data();
}

const tsr_endpoint_response kNoMemory = {sizeof(tsr_endpoint_response),
                                         TSR_ENDPOINT_RETRY,
                                         TSR_UNAVAILABLE,
                                         sizeof(tsr_endpoint_tensor),
                                         "there is not enough memory for this request: ask again later",
                                         "",
                                         "",
                                         "",
                                         "",
                                         0,
                                         nullptr};

}  // namespace tessera::serve
