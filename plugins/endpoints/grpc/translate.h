// Converts the Open Inference Protocol's gRPC messages to the requests that the server takes over HTTP, and its answers
// to messages. It knows no socket. Throws sdk::Failure with a sentence for messages that cannot be converted.
#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "open_inference.pb.h"
#include "tessera/sdk/draft/endpoint.h"

namespace tessera::endpoint {

// "/v2/models/NAME[/versions/V]" followed by `action`, which includes its slash.
std::string model_path(std::string_view name, std::string_view version, std::string_view action);

// A request's body: JSON with the tensors' names and shapes, then their bytes. `left` is how long the client still
// waits.
struct InferBody {
  std::string bytes;
  int64_t json_bytes = 0;
};
InferBody infer_body(const inference::ModelInferRequest& request, std::optional<std::chrono::microseconds> left);

// Converts answers of status 200.
void read_infer(const sdk::EndpointResponse& answer, inference::ModelInferResponse& out);
void read_index(const sdk::EndpointResponse& answer, inference::RepositoryIndexResponse& out);
void read_json(std::string_view json, google::protobuf::Message& out);  // by equal field names

// Converts any other answer.
grpc::Status failed(const sdk::EndpointResponse& answer);

}  // namespace tessera::endpoint
