// Converts the Open Inference Protocol's gRPC messages to the server's requests, and its answers to messages. It knows
// no socket. Throws sdk::Failure with a sentence for messages that cannot be converted.
#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "open_inference.pb.h"
#include "tessera/sdk/draft/endpoint.h"

namespace tessera::endpoint {

// A request whose tensors are views of its message, and of the rest of this struct.
struct InferCall {
  sdk::EndpointRequest request;
  std::vector<std::vector<tsr_endpoint_text>> texts;  // of BYTES tensors
  std::vector<std::vector<char>> numbers;             // of types that the message has in a wider field
};
// `left` is how long the client still waits; nothing: it has no deadline.
InferCall infer_call(const inference::ModelInferRequest& request, std::optional<std::chrono::microseconds> left);

// A call about a model.
sdk::EndpointRequest model_call(int32_t call, const std::string& name, const std::string& version = "");

// Convert answers of code TSR_OK.
void read_infer(const sdk::EndpointResponse& answer, inference::ModelInferResponse& out);
void read_index(const sdk::EndpointResponse& answer, inference::RepositoryIndexResponse& out);
void read_json(std::string_view json, google::protobuf::Message& out);  // by equal field names

// Converts the code and the message of any answer.
grpc::Status status_of(const sdk::EndpointResponse& answer);

}  // namespace tessera::endpoint
