// SPDX-License-Identifier: Apache-2.0 OR MIT
// The endpoint "grpc": inference.GRPCInferenceService of the Open Inference Protocol, by gRPC's own library.
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>

#include "open_inference.grpc.pb.h"
#include "translate.h"

namespace tessera::endpoint {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using grpc::Status;
using sdk::EndpointRequest;
using sdk::EndpointResponse;
using sdk::EndpointServer;
using sdk::Failure;

constexpr auto kGrace = std::chrono::milliseconds(250);  // limit of open connections after the server ends

// True for peers such as "ipv4:127.0.0.1:5" and "ipv6:%5B::1%5D:5", unless a proxy forwarded the call.
bool is_local(const CallbackServerContext& context) {
  const std::string peer = context.peer();
  const auto begins = [&](std::string_view with) { return std::string_view(peer).substr(0, with.size()) == with; };
  const auto& metadata = context.client_metadata();
  return (begins("ipv4:127.") || begins("ipv6:%5B::1%5D:") || begins("ipv6:[::1]:")) &&
         std::none_of(metadata.begin(), metadata.end(), [](const auto& entry) {
           return sdk::tells_of_a_proxy({entry.first.data(), entry.first.size()});
         });
}

std::optional<std::chrono::microseconds> patience(const CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return std::nullopt;
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - std::chrono::system_clock::now());
  return std::max(left, std::chrono::microseconds(1));
}

EndpointRequest server_call(int32_t call) {
  EndpointRequest out;
  out.call = call;
  return out;
}

// Reads an answer of code TSR_OK; another code is the call's status.
template <class Read>
auto if_ok(Read read) {
  return [read](const EndpointResponse& answer) {
    if (answer.code == TSR_OK) read(answer);
    return status_of(answer);
  };
}

class Service final : public inference::GRPCInferenceService::CallbackService {
 public:
  explicit Service(const EndpointServer& server) : server_(server) {}

  // Refuses calls from now on, and returns when earlier calls are answered.
  void end() {
    std::unique_lock lock(mutex_);
    ending_ = true;
    answered_.wait(lock, [this] { return under_way_ == 0; });
  }

  ServerUnaryReactor* ServerLive(CallbackServerContext* context, const inference::ServerLiveRequest*,
                                 inference::ServerLiveResponse* out) override {
    return ask(
        context, [] { return server_call(TSR_ENDPOINT_SERVER_LIVE); },
        [out](const EndpointResponse& answer) {
          out->set_live(answer.code == TSR_OK);
          return Status::OK;
        });
  }
  ServerUnaryReactor* ServerReady(CallbackServerContext* context, const inference::ServerReadyRequest*,
                                  inference::ServerReadyResponse* out) override {
    return ask(
        context, [] { return server_call(TSR_ENDPOINT_SERVER_READY); },
        [out](const EndpointResponse& answer) {
          out->set_ready(answer.code == TSR_OK);
          return Status::OK;
        });
  }
  ServerUnaryReactor* ModelReady(CallbackServerContext* context, const inference::ModelReadyRequest* request,
                                 inference::ModelReadyResponse* out) override {
    return ask(
        context, [=] { return model_call(TSR_ENDPOINT_MODEL_READY, request->name(), request->version()); },
        [out](const EndpointResponse& answer) {
          if (answer.code != TSR_OK && answer.code != TSR_UNAVAILABLE) return status_of(answer);
          out->set_ready(answer.code == TSR_OK);
          return Status::OK;
        });
  }
  ServerUnaryReactor* ServerMetadata(CallbackServerContext* context, const inference::ServerMetadataRequest*,
                                     inference::ServerMetadataResponse* out) override {
    return ask(
        context, [] { return server_call(TSR_ENDPOINT_SERVER_METADATA); },
        if_ok([out](const EndpointResponse& answer) { read_json(answer.text, *out); }));
  }
  ServerUnaryReactor* ModelMetadata(CallbackServerContext* context, const inference::ModelMetadataRequest* request,
                                    inference::ModelMetadataResponse* out) override {
    return ask(
        context, [=] { return model_call(TSR_ENDPOINT_MODEL_METADATA, request->name(), request->version()); },
        if_ok([out](const EndpointResponse& answer) { read_json(answer.text, *out); }));
  }
  ServerUnaryReactor* ModelInfer(CallbackServerContext* context, const inference::ModelInferRequest* request,
                                 inference::ModelInferResponse* out) override {
    InferCall infer;
    return ask(
        context,
        [&] {
          infer = infer_call(*request, patience(*context));
          return std::move(infer.request);
        },
        if_ok([out](const EndpointResponse& answer) { read_infer(answer, *out); }));
  }
  ServerUnaryReactor* RepositoryIndex(CallbackServerContext* context, const inference::RepositoryIndexRequest* request,
                                      inference::RepositoryIndexResponse* out) override {
    return ask(
        context,
        [=] {
          EndpointRequest asked = server_call(TSR_ENDPOINT_INDEX);
          asked.loaded = request->ready();
          return asked;
        },
        if_ok([out](const EndpointResponse& answer) { read_index(answer, *out); }));
  }
  ServerUnaryReactor* RepositoryModelLoad(CallbackServerContext* context,
                                          const inference::RepositoryModelLoadRequest* request,
                                          inference::RepositoryModelLoadResponse*) override {
    return ask(
        context, [=] { return model_call(TSR_ENDPOINT_LOAD, request->model_name()); }, status_of);
  }
  ServerUnaryReactor* RepositoryModelUnload(CallbackServerContext* context,
                                            const inference::RepositoryModelUnloadRequest* request,
                                            inference::RepositoryModelUnloadResponse*) override {
    return ask(
        context, [=] { return model_call(TSR_ENDPOINT_UNLOAD, request->model_name()); }, status_of);
  }

 private:
  static ServerUnaryReactor* refused(CallbackServerContext* context, const Status& status) {
    ServerUnaryReactor* call = context->DefaultReactor();
    call->Finish(status);
    return call;
  }
  bool begin() {
    const std::lock_guard lock(mutex_);
    if (!ending_) ++under_way_;
    return !ending_;
  }
  void finish(ServerUnaryReactor* call, const Status& status) {
    call->Finish(status);
    const std::lock_guard lock(mutex_);
    if (--under_way_ == 0) answered_.notify_all();
  }

  // `make` converts the call's message to a request, which is handed on before this returns. `read` converts the
  // server's answer to the call's other message, and returns the call's status.
  template <class Make, class Read>
  ServerUnaryReactor* ask(CallbackServerContext* context, const Make& make, Read read) {
    if (!begin()) return refused(context, {grpc::StatusCode::UNAVAILABLE, "the server is ending"});
    ServerUnaryReactor* call = context->DefaultReactor();
    try {
      EndpointRequest request = make();
      const auto& metadata = context->client_metadata();
      if (const auto shown = metadata.find("authorization"); shown != metadata.end())
        request.authorization.assign(shown->second.data(), shown->second.size());
      request.local = is_local(*context);
      server_.handle(request, [this, call, read](const EndpointResponse& answer) {
        Status status;
        try {
          status = read(answer);
        } catch (const std::exception& e) {
          status = {grpc::StatusCode::INTERNAL, e.what()};
        }
        finish(call, status);
      });
    } catch (const Failure& e) {
      finish(call, {grpc::StatusCode::INVALID_ARGUMENT, e.what()});
    } catch (const std::bad_alloc&) {
      finish(call, {grpc::StatusCode::UNAVAILABLE, "there is not enough memory for this request: ask again later"});
    }
    return call;
  }

  const EndpointServer server_;
  std::mutex mutex_;
  std::condition_variable answered_;
  int64_t under_way_ = 0;  // calls being served
  bool ending_ = false;
};

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) sdk::fail(TSR_INVALID_ARGUMENT, "cannot read ", path);
  return text.str();
}

class GrpcEndpoint : public sdk::Endpoint {
 public:
  explicit GrpcEndpoint(sdk::Options& options)
      : host_(options.string("host", "")), port_(static_cast<int>(options.integer("port", 8001))) {
    if (port_ < 0 || port_ > 65535) sdk::fail(TSR_INVALID_ARGUMENT, "port takes 0 to 65535, not ", port_);
  }
  ~GrpcEndpoint() override { stop(); }

  std::string start(const EndpointServer& server) override {
    gpr_set_log_function([](gpr_log_func_args*) {});  // suppresses its lines on standard error; failures come as status
    service_ = std::make_unique<Service>(server);
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    builder.SetMaxReceiveMessageSize(static_cast<int>(server.max_body_bytes()));
    builder.SetResourceQuota(grpc::ResourceQuota().Resize(static_cast<size_t>(server.max_bytes())));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    const std::string host = host_.empty() ? server.host() : host_;
    const std::string shown = host.find(':') == std::string::npos ? host : "[" + host + "]";
    int port = 0;
    builder.AddListeningPort(shown + ":" + std::to_string(port_), credentials(server), &port);
    grpc_ = builder.BuildAndStart();
    if (!grpc_ || port == 0) {
      grpc_ = nullptr;
      sdk::fail(TSR_UNAVAILABLE, "cannot listen at ", shown, ":", port_,
                ": another program may be there (choose another port), or the address or the TLS files are wrong");
    }
    return (server.tls_cert().empty() ? "grpc://" : "grpcs://") + shown + ":" + std::to_string(port);
  }

  void stop() override {
    if (!grpc_) return;
    service_->end();
    grpc_->Shutdown(std::chrono::system_clock::now() + kGrace);
    grpc_->Wait();
    grpc_ = nullptr;
  }

 private:
  static std::shared_ptr<grpc::ServerCredentials> credentials(const EndpointServer& server) {
    if (server.tls_cert().empty()) return grpc::InsecureServerCredentials();
    grpc::SslServerCredentialsOptions options;
    options.pem_key_cert_pairs.push_back({contents(server.tls_key()), contents(server.tls_cert())});
    return grpc::SslServerCredentials(options);
  }

  const std::string host_;
  const int port_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> grpc_;
};

}  // namespace
}  // namespace tessera::endpoint

TESSERA_PLUGIN("tessera-grpc", "1.0.0",
               tessera::sdk::component<tessera::endpoint::GrpcEndpoint>(
                   {.id = "grpc", .version = "1.0.0", .about = "the Open Inference Protocol over gRPC"}));
