// The gRPC endpoint on arbitrary bytes: a message is refused with one sentence, or becomes a request whose tensors and
// texts lie in the message or in the call.
#include <google/protobuf/stubs/logging.h>

#include "endpoints/grpc/translate.h"
#include "fuzz.h"
#include "tessera/sdk/error.h"

namespace tessera::fuzz {
namespace {

volatile uint8_t g_last;

// Reads all bytes, so that a sanitizer sees each of them.
void read_all(const void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) g_last = static_cast<const uint8_t*>(data)[i];
}

void check(const sdk::EndpointTensor& tensor) {
  const sdk::EndpointType* const type = sdk::endpoint_type(tensor.type);
  require(type != nullptr && tensor.name != nullptr, "a tensor has a name and a type of the protocol");
  read_all(tensor.data, tensor.bytes);
  if (type->name != "BYTES") return;
  require(tensor.bytes % sizeof(tsr_endpoint_text) == 0, "a tensor of texts has whole ones");
  const auto* const texts = static_cast<const tsr_endpoint_text*>(tensor.data);
  for (size_t i = 0; i < tensor.bytes / sizeof(*texts); ++i)
    read_all(texts[i].bytes, static_cast<size_t>(texts[i].size));
}

}  // namespace

void fuzz_grpc_request(Input input) {
  [[maybe_unused]] static const auto silent = google::protobuf::SetLogHandler(nullptr);
  inference::ModelInferRequest message;
  if (!message.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  try {
    const endpoint::InferCall call = endpoint::infer_call(message, std::nullopt);
    require(call.request.inputs.size() == static_cast<size_t>(message.inputs_size()), "all inputs");
    require(call.request.outputs.size() == static_cast<size_t>(message.outputs_size()), "all outputs");
    for (const sdk::EndpointTensor& tensor : call.request.inputs) check(tensor);
  } catch (const sdk::Failure& e) {
    require(e.code() == TSR_INVALID_ARGUMENT && *e.what() != '\0', "a refusal is the client's fault");
  }
}

}  // namespace tessera::fuzz
