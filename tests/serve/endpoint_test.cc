// Endpoint components: their requests are answered once, by the service or at the deadline; they are counted and need
// the token. Their structs are checked.
#include "serve/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>

#include "config/test_refusal.h"
#include "fake_predictor.h"
#include "serve/endpoint_structs.h"
#include "serve/token.h"
#include "tessera/data.h"
#include "tessera/sdk/draft/endpoint.h"

namespace tessera::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Passes on the requests of the test, in its thread.
class ByHand : public sdk::Endpoint {
 public:
  explicit ByHand(sdk::Options& options) : refuses_(options.flag("refuses", false)) {}
  std::string start(const sdk::EndpointServer& server) override {
    if (refuses_) sdk::fail(TSR_UNAVAILABLE, "the door is shut");
    asked.emplace(server);
    return "hand://" + server.host();
  }
  void stop() override { asked.reset(); }

  struct Output {
    std::string name, datatype;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  struct Answer {
    int32_t code = 0;
    bool retry = false;
    std::string message, text, model, version, id;
    std::vector<Output> outputs;
  };
  static Answer copy(const sdk::EndpointResponse& r) {
    Answer out{r.code,
               r.retry,
               std::string(r.message),
               std::string(r.text),
               std::string(r.model),
               std::string(r.version),
               std::string(r.id),
               {}};
    for (size_t i = 0; i < r.outputs.size(); ++i) {
      const sdk::EndpointTensor t = r.outputs[i];
      out.outputs.push_back({t.name,
                             std::string(sdk::endpoint_type(t.type)->name),
                             {t.shape.begin(), t.shape.end()},
                             {static_cast<const char*>(t.data), t.bytes}});
    }
    return out;
  }
  static std::future<Answer> ask(const sdk::EndpointRequest& request) {
    auto answer = std::make_shared<std::promise<Answer>>();
    asked->handle(request, [answer](const sdk::EndpointResponse& r) { answer->set_value(copy(r)); });
    return answer->get_future();
  }
  static inline std::optional<sdk::EndpointServer> asked;

 private:
  const bool refuses_;
};

}  // namespace
}  // namespace tessera::serve

TESSERA_PLUGIN(
    "test-endpoint", "1.0.0",
    tessera::sdk::component<tessera::serve::ByHand>({.id = "hand", .version = "1.0.0", .about = "a test's"}));

namespace tessera::serve {
namespace {

constexpr std::chrono::seconds kLong{20};

struct Asked {
  explicit Asked(std::chrono::milliseconds deadline = kLong, const FakeOptions& options = {})
      : model(std::make_shared<FakePredictor>(options)),
        service({.deadline = deadline}, models, batcher),
        guard("0123456789abcdef", service) {}
  ~Asked() {
    model->let_go();
    batcher.stop();
  }
  std::unique_ptr<Endpoint> open(const std::string& name = "hand") {
    ServerOptions options{.host = "::1"};
    return std::make_unique<Endpoint>(runtime, name, options, guard, metrics, log);
  }

  Runtime runtime{{.default_path = false, .plugins = {tessera_plugin_v1(nullptr, nullptr)}}};
  Metrics metrics;
  Log log{Level::kError, -1};
  std::shared_ptr<FakePredictor> model;
  ModelRepository models{{{"", [this] { return model; }}}, metrics, log};
  Batcher batcher{{}, metrics};
  ModelService service;
  TokenService guard;
};

sdk::EndpointRequest call(int32_t what, const std::string& model = "fake") {
  return {.call = what, .authorization = "Bearer 0123456789abcdef", .model = model, .local = true};
}

// The message's samples as tensors, which are views of this object.
class Samples {
 public:
  explicit Samples(const Message& message) : input_(message.input()) {
    shapes_ = {{input_.batch, std::ssize(input_.dense) / input_.batch}};
    for (const PredictInput::Feature& f : input_.features)
      shapes_.insert(shapes_.end(), {{std::ssize(f.values)}, {input_.batch}});
  }
  sdk::EndpointRequest request() const {
    sdk::EndpointRequest out = call(TSR_ENDPOINT_INFER);
    add(out, "dense", 0, input_.dense);
    add(out, "user.values", 1, input_.features[0].values);
    add(out, "user.lengths", 2, input_.features[0].lengths);
    add(out, "item.values", 3, input_.features[1].values);
    add(out, "item.lengths", 4, input_.features[1].lengths);
    return out;
  }

 private:
  template <class T>
  void add(sdk::EndpointRequest& out, const char* name, size_t shape, std::span<const T> values) const {
    out.inputs.push_back({name, sdk::dtype_of<T>(), shapes_[shape], values.data(), values.size_bytes()});
  }

  const PredictInput input_;
  std::vector<std::vector<int64_t>> shapes_;
};

template <class T>
std::vector<T> values_of(const ByHand::Output& output) {
  std::vector<T> out(output.bytes.size() / sizeof(T));
  std::memcpy(out.data(), output.bytes.data(), output.bytes.size());
  return out;
}

TEST(EndpointComponents, AnswersAreTheModelsAndCounted) {
  Asked it;
  const auto endpoint = it.open();
  EXPECT_EQ(endpoint->url(), "hand://::1");
  const Message message({{{1, 2}, {3, 4}, {5}, {}}, {{0, 1}, {}, {7, 8}, {}}});
  const Samples samples(message);
  sdk::EndpointRequest request = samples.request();
  request.id = "seven";
  const ByHand::Answer answer = ByHand::ask(request).get();
  ASSERT_EQ(answer.code, TSR_OK) << answer.message;
  EXPECT_EQ(answer.model, "fake");
  EXPECT_EQ(answer.version, "0000000000000001");
  EXPECT_EQ(answer.id, "seven");
  EXPECT_EQ(answer.message + answer.text, "");
  ASSERT_EQ(answer.outputs.size(), 1u);
  EXPECT_EQ(answer.outputs[0].name, "score");
  EXPECT_EQ(answer.outputs[0].datatype, "FP32");
  EXPECT_THAT(answer.outputs[0].shape, ElementsAre(2));
  EXPECT_EQ(values_of<float>(answer.outputs[0]), message.scores());

  sdk::EndpointRequest stranger = request;
  stranger.authorization = "";
  EXPECT_EQ(ByHand::ask(stranger).get().code, TSR_ENDPOINT_UNAUTHENTICATED);
  EXPECT_THAT(ByHand::ask(call(TSR_ENDPOINT_INFER)).get().message, HasSubstr("input dense is missing: "));
  sdk::EndpointRequest from_elsewhere = call(TSR_ENDPOINT_LOAD);
  from_elsewhere.local = false;
  EXPECT_EQ(ByHand::ask(from_elsewhere).get().code, TSR_PERMISSION_DENIED);
  EXPECT_THAT(it.metrics.text({}), testing::AllOf(HasSubstr("{code=\"200\"} 1\n"), HasSubstr("{code=\"401\"} 1\n"),
                                                  HasSubstr("{kind=\"bad_request\"} 1\n")));
}

TEST(EndpointComponents, OutputsAreThoseThatAreNamed) {
  FakeOptions options{.outputs = {{"click"}, {"kinds", 3, false}}};
  Asked it(kLong, options);
  const auto endpoint = it.open();
  const Message message(kSamples);
  const Samples samples(message);
  sdk::EndpointRequest request = samples.request();
  EXPECT_EQ(ByHand::ask(request).get().outputs.size(), 2u);
  request.outputs = {"kinds", "score"};
  const ByHand::Answer answer = ByHand::ask(request).get();
  ASSERT_EQ(answer.outputs.size(), 2u) << answer.message;
  EXPECT_EQ(answer.outputs[0].name, "kinds");
  EXPECT_THAT(answer.outputs[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(values_of<float>(answer.outputs[0]), message.values(1, 3));
  EXPECT_EQ(answer.outputs[1].name, "score");
  EXPECT_EQ(values_of<float>(answer.outputs[1]), message.scores());
  request.outputs = {"buy"};
  EXPECT_THAT(ByHand::ask(request).get().message, HasSubstr("output \"buy\" is unknown; there are \"click\""));
}

TEST(EndpointComponents, CallsWithoutTensors) {
  Asked it;
  const auto endpoint = it.open();
  const auto answer = [](int32_t what, const std::string& model = "", bool loaded = false) {
    sdk::EndpointRequest request = call(what, model);
    request.loaded = loaded;
    return ByHand::ask(request).get();
  };
  sdk::EndpointRequest stranger = call(TSR_ENDPOINT_SERVER_READY, "");
  stranger.authorization = "";
  EXPECT_EQ(ByHand::ask(stranger).get().code, TSR_OK) << "health needs no token";
  stranger.call = TSR_ENDPOINT_INDEX;
  EXPECT_EQ(ByHand::ask(stranger).get().code, TSR_ENDPOINT_UNAUTHENTICATED);
  EXPECT_EQ(answer(TSR_ENDPOINT_SERVER_LIVE).code, TSR_OK);
  EXPECT_THAT(answer(TSR_ENDPOINT_SERVER_METADATA).text, HasSubstr("\"name\":\"tessera\""));
  EXPECT_THAT(answer(TSR_ENDPOINT_MODEL_METADATA, "fake").text, HasSubstr("{\"name\":\"user.values\""));
  EXPECT_EQ(answer(TSR_ENDPOINT_MODEL_READY, "fake").code, TSR_OK);
  EXPECT_EQ(answer(TSR_ENDPOINT_MODEL_READY, "other").message, "model \"other\" is not served here; \"fake\" is");
  EXPECT_THAT(answer(TSR_ENDPOINT_INDEX).text, HasSubstr("\"state\":\"READY\""));
  for (const int32_t what : {TSR_ENDPOINT_MODEL_READY, TSR_ENDPOINT_MODEL_METADATA, TSR_ENDPOINT_LOAD,
                             TSR_ENDPOINT_UNLOAD, TSR_ENDPOINT_INFER})
    EXPECT_EQ(answer(what).code, TSR_NOT_FOUND) << "call " << what << " names no model";
  EXPECT_EQ(answer(TSR_ENDPOINT_UNLOAD, "fake").code, TSR_OK);
  EXPECT_THAT(answer(TSR_ENDPOINT_INDEX).text, HasSubstr("\"state\":\"UNAVAILABLE\""));
  EXPECT_EQ(answer(TSR_ENDPOINT_INDEX, "", true).text, "[]");
  EXPECT_EQ(answer(TSR_ENDPOINT_MODEL_READY, "fake").code, TSR_UNAVAILABLE);
  EXPECT_EQ(answer(TSR_ENDPOINT_SERVER_READY).code, TSR_UNAVAILABLE);
  EXPECT_EQ(answer(TSR_ENDPOINT_LOAD, "fake").code, TSR_OK);
  EXPECT_EQ(answer(TSR_ENDPOINT_SERVER_READY).code, TSR_OK);
  const ByHand::Answer unknown = answer(9);
  EXPECT_EQ(unknown.code, TSR_UNIMPLEMENTED);
  EXPECT_EQ(unknown.message, "the endpoint's request has call 9, which this server does not know");
}

TEST(EndpointComponents, WhatIsDueIsAnsweredWhileTheModelIsStuck) {
  Asked it(std::chrono::milliseconds(50));
  const auto endpoint = it.open();
  const Message message({{{1, 2}, {3}, {5}, {}}});
  const Samples samples(message);
  it.model->hold();
  std::vector<std::future<ByHand::Answer>> answers;
  for (int i = 0; i < 5; ++i) answers.push_back(ByHand::ask(samples.request()));
  for (auto& answer : answers) {
    const ByHand::Answer late = answer.get();
    EXPECT_EQ(late.code, TSR_UNAVAILABLE);
    EXPECT_TRUE(late.retry);
    EXPECT_THAT(late.message, HasSubstr("the deadline passed before the model had an answer"));
  }
  it.model->let_go();  // later answers are for requests already answered
  EXPECT_TRUE(it.model->wait_for_calls(1));
}

TEST(EndpointComponents, ClientsMayShortenTheDeadline) {
  Asked it;
  const auto endpoint = it.open();
  const Message message({{{1, 2}, {3}, {5}, {}}});
  const Samples samples(message);
  sdk::EndpointRequest request = samples.request();
  request.timeout = std::chrono::milliseconds(20);
  it.model->hold();
  EXPECT_EQ(ByHand::ask(request).get().code, TSR_UNAVAILABLE);
}

TEST(EndpointComponents, LateAnswersFindTheEndpointGone) {
  Asked it(std::chrono::milliseconds(20));
  auto endpoint = it.open();
  const Message message({{{1, 2}, {3}, {5}, {}}});
  const Samples samples(message);
  it.model->hold();
  auto answer = ByHand::ask(samples.request());
  EXPECT_EQ(answer.get().code, TSR_UNAVAILABLE);
  endpoint.reset();
  it.model->let_go();
}

TEST(EndpointComponents, WrongUseIsOneSentence) {
  Asked it;
  const auto why = [&](const std::string& name) { return test::refusal([&] { it.open(name); }, "it opened"); };
  EXPECT_THAT(why("hand?refuses=true"), HasSubstr("hand: the door is shut"));
  EXPECT_THAT(why("hand?port=1"), HasSubstr("unknown option \"port\""));
  EXPECT_THAT(why("hnad"), HasSubstr("hand"));
}

// A server that converts the tensors of a request for a model, and nothing else.
struct Converter {
  Converter() {
    raw.struct_size = sizeof(raw);
    raw.self = this;
    raw.handle = [](void* self, const tsr_endpoint_request* given, tsr_endpoint_respond respond, void* context) {
      static_cast<Converter*>(self)->convert(*given);
      respond(context, &kNoMemory);
    };
    raw.host = "";
  }
  void convert(const tsr_endpoint_request& given) {
    why = "";
    try {
      const EndpointQuestion asked(given);
      got = asked.question().input(model, {4, columns, "shown"});
    } catch (const Error& e) {
      why = e.what();
    } catch (const Refused& refused) {
      EXPECT_EQ(refused.outcome.status, 501);
      why = refused.outcome.sentence;
    }
  }
  void ask(const sdk::EndpointRequest& request) {
    sdk::EndpointServer(raw).handle(request, [](const sdk::EndpointResponse&) {});
  }
  std::string refusal(const sdk::EndpointRequest& request) {
    ask(request);
    return why;
  }

  tsr_endpoint_server raw{};
  ModelDescription model = FakePredictor().model();
  const ColumnEncoding* columns = nullptr;
  InferRequest got;
  std::string why;
};

TEST(EndpointStructs, TensorsThatDoNotFitAreNamed) {
  Converter server;
  const Message message(kSamples);
  const Samples samples(message);
  const auto with = [&](size_t input, const auto& change) {
    sdk::EndpointRequest request = samples.request();
    change(request.inputs[input]);
    return server.refusal(request);
  };
  EXPECT_EQ(server.refusal(samples.request()), "");
  EXPECT_EQ(server.got.dense, std::vector<float>(message.input().dense.begin(), message.input().dense.end()));
  EXPECT_EQ(with(0, [](auto& t) { t.bytes -= 4; }), "input dense has 12 bytes of data; its shape needs 4 times 4");
  const std::vector<int64_t> huge = {int64_t{1} << 62, 16}, negative = {-2, 2};
  EXPECT_EQ(with(0, [&](auto& t) { t.shape = huge; }), "input dense has a shape of too many elements");
  EXPECT_EQ(with(0, [&](auto& t) { t.shape = negative; }), "input dense has a dimension of -2");
  EXPECT_EQ(with(0, [](auto& t) { t.type = sdk::endpoint_type("FP16")->type; }),
            "input dense has datatype \"FP16\"; it must be FP32");
  EXPECT_EQ(with(1,
                 [](auto& t) {
                   t.type = {kDLInt, 64, 2};
                 }),
            "input user.values has DLPack type code 0 of 64 bits, which the Open Inference Protocol does not have");
  EXPECT_EQ(with(4, [](auto& t) { t.name = "item.weights"; }).substr(0, 45),
            "input item.lengths is missing; model shown ta");
  sdk::EndpointRequest many = samples.request();
  many.inputs.resize(8, many.inputs[0]);
  EXPECT_EQ(server.refusal(many), "the request has more inputs than the 7 that the model takes");
  many = samples.request();
  many.outputs.resize(17, "score");
  EXPECT_EQ(server.refusal(many), "the request asks for more than 16 outputs");
}

// Structs of an endpoint that was compiled with another length, and members that need a newer server.
TEST(EndpointStructs, MayBeShorterAndLongerAndHaveFlags) {
  Converter server;
  struct Longer {
    tsr_endpoint_tensor tensor;
    int64_t more;
  };
  const std::vector<float> dense = {1, 2};
  const std::vector<int64_t> id = {3}, two = {1, 2}, one = {1};
  const std::vector<int32_t> length = {1};
  const auto shape = [](const std::vector<int64_t>& of) { return const_cast<int64_t*>(of.data()); };
  const auto data = [](const auto& of) { return const_cast<void*>(static_cast<const void*>(of.data())); };
  DLTensor dlpack[] = {{data(dense), {kDLCPU, 0}, 2, sdk::dtype_of<float>(), shape(two), nullptr, 0},
                       {data(id), {kDLCPU, 0}, 1, sdk::dtype_of<int64_t>(), shape(one), nullptr, 0},
                       {data(length), {kDLCPU, 0}, 1, sdk::dtype_of<int32_t>(), shape(one), nullptr, 0}};
  const auto tensor = [&](const char* name, size_t of, int64_t bytes) {
    return Longer{{sizeof(Longer), 0, name, &dlpack[of], bytes}, -1};
  };
  Longer inputs[] = {tensor("dense", 0, 8), tensor("user.values", 1, 8), tensor("user.lengths", 2, 4),
                     tensor("item.values", 1, 8), tensor("item.lengths", 2, 4)};
  tsr_endpoint_request request{};
  request.struct_size = offsetof(tsr_endpoint_request, timeout_us);
  request.authorization = request.model = request.version = request.id = "";
  request.input_stride = sizeof(Longer);
  request.inputs = 5;
  request.input = &inputs[0].tensor;
  request.timeout_us = 7;  // beyond the size
  server.convert(request);
  ASSERT_EQ(server.why, "");
  EXPECT_EQ(server.got.dense, dense);
  EXPECT_EQ(server.got.values, (std::vector<int64_t>{3, 3}));
  EXPECT_FALSE(server.got.timeout);

  const int64_t strides[] = {3, 1};
  dlpack[0].shape = shape(one), dlpack[0].ndim = 1;
  dlpack[0].strides = const_cast<int64_t*>(strides);
  server.convert(request);
  EXPECT_EQ(server.why, "input dense has 1 dimensions; it must have 2") << "one element is compact";
  const std::vector<int64_t> square = {2, 2};
  dlpack[0].shape = shape(square), dlpack[0].ndim = 2;
  server.convert(request);
  EXPECT_EQ(server.why, "input dense must be compact and in host memory");
  dlpack[0].strides = nullptr;
  dlpack[0].device.device_type = kDLCUDA;
  server.convert(request);
  EXPECT_EQ(server.why, "input dense must be compact and in host memory");
  inputs[0].tensor.flags = 0x40000;
  server.convert(request);
  EXPECT_EQ(server.why, "the endpoint's request has flags 262144, which this server does not know");
  request.flags = 0x20000 | TSR_ENDPOINT_LOADED;
  server.convert(request);
  EXPECT_EQ(server.why, "the endpoint's request has flags 131072, which this server does not know");
}

// Values as in files: texts, wherever they are in memory, numbers that are words, and missing ones.
TEST(EndpointStructs, TextsAreViews) {
  const ColumnEncoding columns(R"({"reader": "csv", "columns": [
      {"name": "click", "as": "label", "table": "click"},
      {"name": "user", "as": "ids", "table": "user", "ids": "vocabulary", "rows": 0, "pooling": "sum"},
      {"name": "item", "as": "ids", "table": "item", "ids": "vocabulary", "rows": 0, "pooling": "sum"}],
      "vocabularies": {"user": ["ann", "bob", "true"], "item": ["4", "0.5"]}})",
                               "the test");
  Converter server;
  server.columns = &columns;
  server.model.dense_inputs = 0;
  const std::string bob = "a bob";
  const std::vector<tsr_endpoint_text> users = {{bob.data() + 2, 3}, {nullptr, 0}, {"ann", 3}};
  const std::vector<double> items = {0.5, std::nan("")};
  const std::vector<int32_t> two_one = {2, 1}, one_one = {1, 1};
  const std::vector<int64_t> three = {3}, two = {2};
  sdk::EndpointRequest request = call(TSR_ENDPOINT_INFER);
  request.inputs = {{"user.values", sdk::endpoint_type("BYTES")->type, three, users.data(), 48},
                    {"user.lengths", sdk::dtype_of<int32_t>(), two, two_one.data(), 8},
                    {"item.values", sdk::dtype_of<double>(), two, items.data(), 16},
                    {"item.lengths", sdk::dtype_of<int32_t>(), two, one_one.data(), 8}};
  ASSERT_EQ(server.refusal(request), "");
  EXPECT_THAT(server.got.features[0].values, ElementsAre(2, 1));
  EXPECT_THAT(server.got.features[0].lengths, ElementsAre(1, 1));
  EXPECT_THAT(server.got.features[1].values, ElementsAre(2));
  EXPECT_THAT(server.got.features[1].lengths, ElementsAre(1, 0));
  const uint8_t truth[] = {1, 1, 1};
  request.inputs[0].type = sdk::endpoint_type("BOOL")->type;
  request.inputs[0].data = truth;
  request.inputs[0].bytes = 3;
  ASSERT_EQ(server.refusal(request), "");
  EXPECT_THAT(server.got.features[0].values, ElementsAre(3, 3, 3));
  request.inputs[0] = {"user.values", sdk::endpoint_type("BYTES")->type, three, users.data(), 32};
  EXPECT_EQ(server.refusal(request), "input user.values has 2 values; its shape needs 3");
}

// Items of a search are whole numbers.
TEST(EndpointStructs, ItemsAreIntegers) {
  ModelDescription model = FakePredictor().model();
  model.type = "top_k";
  model.outputs = {{"score", 2, false}, {"item", 2, false}};
  const std::vector<float> score = {0.5f, 0.25f}, item = {16777216, 3};
  const std::vector<std::span<const float>> values = {score, item};
  InferRequest request;
  const Inferred inferred{model, "shown", nullptr, request, values};
  Outcome outcome;
  outcome.inferred = &inferred;
  const EndpointAnswer answer(outcome);
  const tsr_endpoint_response& r = answer.response();
  ASSERT_EQ(r.outputs, 2);
  const ByHand::Answer copied = ByHand::copy(
      {r.code, false, r.message, r.text, r.model, r.version, r.id, {r.output, r.output_stride, r.outputs}});
  EXPECT_EQ(copied.model, "shown");
  EXPECT_EQ(copied.outputs[1].datatype, "INT64");
  EXPECT_THAT(copied.outputs[1].shape, ElementsAre(1, 2));
  EXPECT_EQ(values_of<int64_t>(copied.outputs[1]), (std::vector<int64_t>{16777216, 3}));
}

}  // namespace
}  // namespace tessera::serve
