// `tessera serve --endpoint grpc` as a program, asked by gRPC's own client: answers are the model's, errors are the
// server's sentences, and HTTP also works.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <fstream>

#include "heads_model.h"
#include "open_inference.grpc.pb.h"

namespace tessera::serve {
namespace {

using ::testing::HasSubstr;
using Stub = ::inference::GRPCInferenceService::Stub;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

::inference::ModelInferRequest request_of(const ModelDescription& model, const test::OwnInput& input,
                                          const std::string& name = "small") {
  ::inference::ModelInferRequest out;
  out.set_model_name(name);
  const auto add = [&](const std::string& name, const char* datatype, const std::vector<int64_t>& shape,
                       const std::string& bytes) {
    auto& tensor = *out.add_inputs();
    tensor.set_name(name);
    tensor.set_datatype(datatype);
    for (const int64_t extent : shape) tensor.add_shape(extent);
    out.add_raw_input_contents(bytes);
  };
  add("dense", "FP32", {input.batch, model.dense_inputs}, bytes_of(input.dense));
  for (size_t f = 0; f < model.features.size(); ++f) {
    const std::string& name = model.features[f].name;
    add(name + ".values", "INT64", {std::ssize(input.values[f])}, bytes_of(input.values[f]));
    add(name + ".lengths", "INT32", {std::ssize(input.lengths[f])}, bytes_of(input.lengths[f]));
  }
  return out;
}

class Asking {
 public:
  explicit Asking(const std::string& address, std::string token = "")
      : stub_(::inference::GRPCInferenceService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        token_(std::move(token)) {}
  template <class Method, class Request, class Response>
  grpc::Status operator()(Method method, const Request& request, Response& response) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    if (!token_.empty()) context.AddMetadata("authorization", "Bearer " + token_);
    return (stub_.get()->*method)(&context, request, &response);
  }

 private:
  std::unique_ptr<Stub> stub_;
  const std::string token_;
};

TEST(ServeGrpc, AnswersAreTheModelsAndSentencesTheServers) {
  ServedModel model;
  const std::string token = "0123456789abcdef";
  std::ofstream(model.file("token")) << token << "\n";
  std::filesystem::permissions(model.file("token"), std::filesystem::perms(0600));
  test::Program program({test::tessera_path(), "serve", "--model", model.link(), "--port", "0", "--endpoint",
                         "grpc?port=0", "--token-file", model.file("token")});
  const std::string address = grpc_address_of(program);
  const Asking ask(address, token);
  const ModelDescription& description = model.predictor().model();

  test::OwnInput input(description, 5, 3);
  ::inference::ModelInferRequest request = request_of(description, input);
  request.set_id("seven");
  ::inference::ModelInferResponse answer;
  grpc::Status status = ask(&Stub::ModelInfer, request, answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answer.id(), "seven");
  EXPECT_EQ(answer.model_version(), description.version);
  ASSERT_EQ(answer.outputs_size(), 1);
  EXPECT_EQ(answer.outputs(0).name(), "score");
  EXPECT_EQ(answer.raw_output_contents(0), bytes_of(test::scores_of(model.predictor(), input.view())));

  // The same ids as typed contents.
  ::inference::ModelInferRequest typed = request;
  typed.clear_raw_input_contents();
  const auto contents = [&](int i) { return typed.mutable_inputs(i)->mutable_contents(); };
  contents(0)->mutable_fp32_contents()->Add(input.dense.begin(), input.dense.end());
  for (size_t f = 0; f < description.features.size(); ++f) {
    const int at = 1 + 2 * static_cast<int>(f);
    contents(at)->mutable_int64_contents()->Add(input.values[f].begin(), input.values[f].end());
    contents(at + 1)->mutable_int_contents()->Add(input.lengths[f].begin(), input.lengths[f].end());
  }
  ::inference::ModelInferResponse same;
  status = ask(&Stub::ModelInfer, typed, same);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(same.SerializeAsString(), answer.SerializeAsString());
  ::inference::ModelInferRequest cut = request;
  cut.mutable_raw_input_contents(0)->pop_back();
  status = ask(&Stub::ModelInfer, cut, same);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr(" bytes of data; its shape needs "));

  request.mutable_inputs(1)->set_name("nothing");
  status = ask(&Stub::ModelInfer, request, answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr(" is missing"));
  request.set_model_name("large");
  status = ask(&Stub::ModelInfer, request, answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("large"));

  ::inference::ModelMetadataRequest about;
  about.set_name("small");
  ::inference::ModelMetadataResponse metadata;
  ASSERT_TRUE(ask(&Stub::ModelMetadata, about, metadata).ok());
  EXPECT_EQ(metadata.versions(0), description.version);
  EXPECT_EQ(metadata.inputs(0).name(), "dense");
  EXPECT_EQ(metadata.inputs(0).shape(1), description.dense_inputs);
  ::inference::ServerMetadataResponse server;
  ASSERT_TRUE(ask(&Stub::ServerMetadata, ::inference::ServerMetadataRequest(), server).ok());
  EXPECT_EQ(server.name(), "tessera");
  ::inference::ServerReadyResponse ready;
  ASSERT_TRUE(Asking(address)(&Stub::ServerReady, ::inference::ServerReadyRequest(), ready).ok());  // needs no token
  EXPECT_TRUE(ready.ready());
  EXPECT_EQ(Asking(address)(&Stub::ModelMetadata, about, metadata).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST(ServeGrpc, HeadsAreOutputs) {
  HeadsModel model;
  test::Program program(
      {test::tessera_path(), "serve", "--model", model.path(), "--port", "0", "--endpoint", "grpc?port=0"});
  const Asking ask(grpc_address_of(program));
  ::inference::ModelMetadataRequest about;
  about.set_name("two");
  ::inference::ModelMetadataResponse metadata;
  ASSERT_TRUE(ask(&Stub::ModelMetadata, about, metadata).ok());
  ASSERT_EQ(metadata.outputs_size(), 2);
  EXPECT_EQ(metadata.outputs(1).name(), "stars");

  test::OwnInput input(model.description(), 5, 3);
  const std::vector<std::vector<float>> values = model.values(input);
  ::inference::ModelInferRequest request = request_of(model.description(), input, "two");
  ::inference::ModelInferResponse answer;
  grpc::Status status = ask(&Stub::ModelInfer, request, answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(answer.outputs_size(), 2);
  EXPECT_EQ(answer.outputs(0).name(), "click");
  EXPECT_EQ(answer.raw_output_contents(0), bytes_of(values[0]));
  EXPECT_EQ(answer.raw_output_contents(1), bytes_of(values[1]));
  request.add_outputs()->set_name("stars");
  status = ask(&Stub::ModelInfer, request, answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(answer.outputs_size(), 1);
  EXPECT_EQ(answer.raw_output_contents(0), bytes_of(values[1]));
  request.mutable_outputs(0)->set_name("star");
  status = ask(&Stub::ModelInfer, request, answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("there are \"click\" and \"stars\""));
}

TEST(ServeGrpc, ModelsComeAndGoAndThePortIsItsOwn) {
  ServedModel model;
  test::Program program(
      {test::tessera_path(), "serve", "--model", model.link(), "--port", "0", "--endpoint", "grpc?port=0"});
  const std::string address = grpc_address_of(program);
  const Asking ask(address);
  ::inference::RepositoryModelUnloadRequest unload;
  unload.set_model_name("small");
  ::inference::RepositoryModelUnloadResponse unloaded;
  ASSERT_TRUE(ask(&Stub::RepositoryModelUnload, unload, unloaded).ok());
  ::inference::RepositoryIndexResponse index;
  ASSERT_TRUE(ask(&Stub::RepositoryIndex, ::inference::RepositoryIndexRequest(), index).ok());
  EXPECT_EQ(index.models(0).state(), "UNAVAILABLE");
  ::inference::ModelReadyRequest is_ready;
  is_ready.set_name("small");
  ::inference::ModelReadyResponse model_ready;
  ASSERT_TRUE(ask(&Stub::ModelReady, is_ready, model_ready).ok());
  EXPECT_FALSE(model_ready.ready());
  ::inference::RepositoryModelLoadRequest load;
  load.set_model_name("small");
  ::inference::RepositoryModelLoadResponse loaded;
  ASSERT_TRUE(ask(&Stub::RepositoryModelLoad, load, loaded).ok());
  EXPECT_TRUE(ask(&Stub::ModelReady, is_ready, model_ready).ok());
  EXPECT_TRUE(model_ready.ready());

  // The port is taken, also for another gRPC server.
  const std::string port = address.substr(address.rfind(':') + 1);
  const test::Finished second =
      test::run_tessera({"serve", "--model", model.link(), "--port", "0", "--endpoint", "grpc?port=" + port}, 60);
  EXPECT_NE(second.status, 0);
  EXPECT_THAT(second.output, HasSubstr("grpc: cannot listen at 127.0.0.1:" + port));
  EXPECT_EQ(std::count(second.output.begin(), second.output.end(), '\n'), 1) << second.output;

  ASSERT_EQ(kill(program.pid(), SIGTERM), 0);
  EXPECT_EQ(program.wait(30), 0);
  EXPECT_THAT(program.output(), HasSubstr("\"event\":\"endpoint\""));
}

}  // namespace
}  // namespace tessera::serve
