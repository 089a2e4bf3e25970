// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/endpoint.h - base class of an endpoint: another protocol for clients of `tessera serve`.
//
// abi/draft/endpoint.h is the specification.
//
//   class Pigeons : public Endpoint {
//     std::string start(const EndpointServer& server) override { ... server.handle(request, respond); ... }
//     void stop() override { ... }
//   };
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/abi/draft/endpoint.h"
#include "tessera/sdk/plugin.h"
#include "tessera/sdk/structs.h"
#include "tessera/sdk/tensor.h"

namespace tessera::sdk {
inline namespace v1 {

// True for a header or metadata key that only a proxy or a web page adds; a request with one is not `local`. It ignores
// case, and covers Forwarded, Via, Origin, X-Real-IP, names with "forwarded", and others that name the client.
inline bool tells_of_a_proxy(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  constexpr std::array<std::string_view, 6> kEnds = {"real-ip", "client-ip",     "clientip",
                                                     "user-ip", "connecting-ip", "external-address"};
  return lower == "via" || lower == "origin" || lower.find("forwarded") != std::string::npos ||
         std::any_of(kEnds.begin(), kEnds.end(), [&](std::string_view end) { return lower.ends_with(end); });
}

// A data type of the Open Inference Protocol.
struct EndpointType {
  std::string_view name;
  DLDataType type;
};
inline constexpr std::array<EndpointType, 14> kEndpointTypes = {{
    {"BOOL", {TSR_ENDPOINT_BOOL, 8, 1}},
    {"INT8", {kDLInt, 8, 1}},
    {"INT16", {kDLInt, 16, 1}},
    {"INT32", {kDLInt, 32, 1}},
    {"INT64", {kDLInt, 64, 1}},
    {"UINT8", {kDLUInt, 8, 1}},
    {"UINT16", {kDLUInt, 16, 1}},
    {"UINT32", {kDLUInt, 32, 1}},
    {"UINT64", {kDLUInt, 64, 1}},
    {"FP16", {kDLFloat, 16, 1}},
    {"BF16", {kDLBfloat, 16, 1}},
    {"FP32", {kDLFloat, 32, 1}},
    {"FP64", {kDLFloat, 64, 1}},
    {"BYTES", {kDLOpaqueHandle, 8 * sizeof(tsr_endpoint_text), 1}},
}};
// These return the entry of kEndpointTypes, or NULL if there is none.
inline const EndpointType* endpoint_type(std::string_view name) {
  const auto at =
      std::find_if(kEndpointTypes.begin(), kEndpointTypes.end(), [&](const auto& t) { return t.name == name; });
  return at == kEndpointTypes.end() ? nullptr : &*at;
}
inline const EndpointType* endpoint_type(DLDataType type) {
  const auto at = std::find_if(kEndpointTypes.begin(), kEndpointTypes.end(),
                               [&](const auto& t) { return same_dtype(t.type, type); });
  return at == kEndpointTypes.end() ? nullptr : &*at;
}

// A view of an input or an output. The data of a BYTES tensor is an array of tsr_endpoint_text.
struct EndpointTensor {
  const char* name;  // NUL-terminated
  DLDataType type;
  std::span<const int64_t> shape;
  const void* data;
  size_t bytes;  // size of the data; the server checks that it is what the shape needs
};

// The caller owns the names and the memory of tensors.
struct EndpointRequest {
  int32_t call = TSR_ENDPOINT_INFER;
  std::string authorization;  // "Bearer TOKEN"; empty: none
  std::string model, version;
  bool local = false;   // from this host, and not forwarded for somebody else
  bool loaded = false;  // TSR_ENDPOINT_INDEX: only models that are loaded
  // The rest is for TSR_ENDPOINT_INFER.
  std::vector<EndpointTensor> inputs;
  std::vector<const char*> outputs;      // names; empty: all
  std::string id;                        // the answer repeats it
  std::chrono::microseconds timeout{0};  // 0: unknown
};

// The outputs of an answer.
class EndpointOutputs {
 public:
  EndpointOutputs(const tsr_endpoint_tensor* first, uint32_t stride, int64_t count)
      : first_(reinterpret_cast<const char*>(first)), stride_(stride), size_(static_cast<size_t>(count)) {}

  size_t size() const { return size_; }
  EndpointTensor operator[](size_t i) const {
    const tsr_endpoint_tensor t = at(i);
    const std::span<const int64_t> shape(t.tensor->shape, static_cast<size_t>(t.tensor->ndim));
    return {t.name, t.tensor->dtype, shape, raw(*t.tensor), static_cast<size_t>(t.bytes)};
  }
  uint32_t flags() const {  // of all outputs together
    uint32_t out = 0;
    for (size_t i = 0; i < size_; ++i) out |= at(i).flags;
    return out;
  }

 private:
  tsr_endpoint_tensor at(size_t i) const {
    return read_struct(*reinterpret_cast<const tsr_endpoint_tensor*>(first_ + i * stride_));
  }

  const char* first_;
  size_t stride_, size_;
};

// Valid during the call that passes it.
struct EndpointResponse {
  int32_t code = TSR_OK;     // also TSR_ENDPOINT_UNAUTHENTICATED
  bool retry = false;        // the same request may succeed a second later
  std::string_view message;  // one sentence, unless the code is TSR_OK
  std::string_view text;     // JSON, for calls that have a text
  // The rest is for TSR_ENDPOINT_INFER.
  std::string_view model, version, id;
  EndpointOutputs outputs{nullptr, 0, 0};
};

// Can be copied freely, and used until stop() has returned.
class EndpointServer {
 public:
  using Respond = std::function<void(const EndpointResponse&)>;  // must neither wait nor throw

  explicit EndpointServer(const tsr_endpoint_server& server) : server_(read_struct(server)) {}

  // [any-thread] `respond` is called exactly once, within this call or later by another thread. If this throws (memory
  // is exhausted), it is not called.
  void handle(const EndpointRequest& request, Respond respond) const {
    std::vector<DLTensor> tensors;
    std::vector<tsr_endpoint_tensor> inputs;
    tensors.reserve(request.inputs.size()), inputs.reserve(request.inputs.size());
    for (const EndpointTensor& t : request.inputs) {
      // DLPack has no pointers to const; the server only reads.
      tensors.push_back({const_cast<void*>(t.data),
                         {kDLCPU, 0},
                         static_cast<int32_t>(t.shape.size()),
                         t.type,
                         const_cast<int64_t*>(t.shape.data()),
                         nullptr,
                         0});
      inputs.push_back({sizeof(tsr_endpoint_tensor), 0, t.name, &tensors.back(), static_cast<int64_t>(t.bytes)});
    }
    tsr_endpoint_request asked{};
    asked.struct_size = sizeof(asked);
    asked.flags = (request.local ? TSR_ENDPOINT_LOCAL : 0) | (request.loaded ? TSR_ENDPOINT_LOADED : 0);
    asked.authorization = request.authorization.c_str();
    asked.model = request.model.c_str();
    asked.version = request.version.c_str();
    asked.call = request.call;
    asked.input_stride = sizeof(tsr_endpoint_tensor);
    asked.inputs = static_cast<int64_t>(inputs.size());
    asked.input = inputs.data();
    asked.outputs = static_cast<int64_t>(request.outputs.size());
    asked.output = request.outputs.data();
    asked.id = request.id.c_str();
    asked.timeout_us = request.timeout.count();
    auto context = std::make_unique<Respond>(std::move(respond));
    server_.handle(server_.self, &asked, &EndpointServer::respond, context.release());
  }

  std::string host() const { return server_.host; }
  std::string tls_cert() const { return server_.tls_cert == nullptr ? "" : server_.tls_cert; }  // "": no TLS
  std::string tls_key() const { return server_.tls_key == nullptr ? "" : server_.tls_key; }
  int64_t max_body_bytes() const { return server_.max_body_bytes; }
  int64_t max_bytes() const { return server_.max_bytes; }

 private:
  static void respond(void* context, const tsr_endpoint_response* given) {
    const std::unique_ptr<Respond> respond(static_cast<Respond*>(context));
    const tsr_endpoint_response r = read_struct(*given);
    const EndpointOutputs outputs(r.output, r.output_stride, r.outputs);
    const bool known = ((r.flags | outputs.flags()) & TSR_MUST_UNDERSTAND) == 0,
               retry = (r.flags & TSR_ENDPOINT_RETRY) != 0;
    if (known) return (*respond)({r.code, retry, r.message, r.text, r.model, r.version, r.id, outputs});
    EndpointResponse refused;
    refused.code = TSR_UNIMPLEMENTED;
    refused.message = "the server's answer has a flag that this endpoint does not know";
    (*respond)(refused);
  }

  tsr_endpoint_server server_;
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;
  // starts to listen; returns the clients' address: "grpc://127.0.0.1:8001"
  virtual std::string start(const EndpointServer& server) = 0;
  virtual void stop() = 0;  // returns when all requests are answered

  static constexpr const char* kKind = TSR_ENDPOINT_KIND;
  template <class C>
  static const tsr_endpoint table;

 private:
  template <class C>
  static tsr_code start_slot(void* self, const tsr_endpoint_server* server, const char** url, tsr_error* err) noexcept {
    return guard(err, [&] {
      Endpoint& endpoint = *static_cast<C*>(self);
      endpoint.url_ = endpoint.start(EndpointServer(*server));
      *url = endpoint.url_.c_str();
    });
  }
  template <class C>
  static tsr_code stop_slot(void* self, tsr_error* err) noexcept {
    return guard(err, [&] { static_cast<Endpoint&>(*static_cast<C*>(self)).stop(); });
  }

  std::string url_;
};

template <class C>
constexpr tsr_endpoint Endpoint::table = {sizeof(tsr_endpoint), 0, &start_slot<C>, &stop_slot<C>};

}  // namespace v1
}  // namespace tessera::sdk
