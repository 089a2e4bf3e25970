// Endpoint components: their requests are answered once, by the handler or at the deadline; they are counted and need
// the token.
#include "serve/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "running_server.h"
#include "serve/token.h"
#include "tessera/sdk/draft/endpoint.h"

namespace tessera::serve {
namespace {

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

  struct Answer {
    int32_t status = 0;
    std::string json, tensors;
  };
  static std::future<Answer> ask(const sdk::EndpointRequest& request) {
    auto answer = std::make_shared<std::promise<Answer>>();
    asked->handle(request, [answer](const sdk::EndpointResponse& r) {
      answer->set_value({r.status, std::string(r.json), std::string(r.tensors)});
    });
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
  explicit Asked(std::chrono::milliseconds deadline = kLong)
      : handler({.deadline = deadline}, models, batcher, metrics), guard("0123456789abcdef", handler) {}
  ~Asked() {
    model->let_go();
    batcher.stop();
  }
  std::unique_ptr<Endpoint> open(const std::string& name = "hand") {
    ServerOptions options;
    options.host = "::1";
    return std::make_unique<Endpoint>(runtime, name, options, guard, metrics, log);
  }

  Runtime runtime{{.default_path = false, .plugins = {tessera_plugin_v1(nullptr, nullptr)}}};
  Metrics metrics;
  Log log{Level::kError, -1};
  std::shared_ptr<FakePredictor> model = std::make_shared<FakePredictor>();
  ModelRepository models{{{"", [this] { return model; }}}, metrics, log};
  Batcher batcher{{}, metrics};
  Handler handler;
  TokenHandler guard;
};

sdk::EndpointRequest infer(std::string_view body, std::optional<int64_t> json_bytes = std::nullopt) {
  return {"POST", kInfer, "Bearer 0123456789abcdef", body, json_bytes, true};
}

TEST(EndpointComponents, AnswersAreTheModelsAndCounted) {
  Asked it;
  const auto endpoint = it.open();
  EXPECT_EQ(endpoint->url(), "hand://::1");
  const Message message({{{1, 2}, {3, 4}, {5}, {}}, {{0, 1}, {}, {7, 8}, {}}});
  size_t json_bytes = 0;
  const std::string body = message.binary(&json_bytes);
  const ByHand::Answer answer = ByHand::ask(infer(body, static_cast<int64_t>(json_bytes))).get();
  EXPECT_EQ(answer.status, 200) << answer.json;
  std::vector<float> scores(answer.tensors.size() / sizeof(float));
  ASSERT_FALSE(scores.empty());
  std::memcpy(scores.data(), answer.tensors.data(), answer.tensors.size());
  EXPECT_EQ(scores, message.scores());

  sdk::EndpointRequest stranger = infer(body);
  stranger.authorization = "";
  EXPECT_EQ(ByHand::ask(stranger).get().status, 401);
  EXPECT_THAT(ByHand::ask(infer("{}")).get().json, HasSubstr("\"error\":\"input dense is missing: "));
  sdk::EndpointRequest from_elsewhere{"POST", "/admin/reload", stranger.authorization, "", std::nullopt, false};
  from_elsewhere.authorization = "Bearer 0123456789abcdef";
  EXPECT_EQ(ByHand::ask(from_elsewhere).get().status, 403);
  const std::string counted = it.metrics.text({});
  EXPECT_THAT(counted, HasSubstr("{code=\"200\"} 1\n"));
  EXPECT_THAT(counted, HasSubstr("{code=\"401\"} 1\n"));
  EXPECT_THAT(counted, HasSubstr("{kind=\"bad_request\"} 1\n"));
}

TEST(EndpointComponents, WhatIsDueIsAnsweredWhileTheModelIsStuck) {
  Asked it(std::chrono::milliseconds(50));
  const auto endpoint = it.open();
  const Message message({{{1, 2}, {3}, {5}, {}}});
  const std::string body = message.json();
  it.model->hold();
  std::vector<std::future<ByHand::Answer>> answers;
  for (int i = 0; i < 5; ++i) answers.push_back(ByHand::ask(infer(body)));
  for (auto& answer : answers) {
    const ByHand::Answer late = answer.get();
    EXPECT_EQ(late.status, 503);
    EXPECT_THAT(late.json, HasSubstr("the deadline passed before the model had an answer"));
  }
  it.model->let_go();  // later answers are for requests already answered
  EXPECT_TRUE(it.model->wait_for_calls(1));
}

TEST(EndpointComponents, LateAnswersFindTheEndpointGone) {
  Asked it(std::chrono::milliseconds(20));
  auto endpoint = it.open();
  const Message message({{{1, 2}, {3}, {5}, {}}});
  it.model->hold();
  auto answer = ByHand::ask(infer(message.json()));
  EXPECT_EQ(answer.get().status, 503);
  endpoint.reset();
  it.model->let_go();
}

TEST(EndpointComponents, WrongUseIsOneSentence) {
  Asked it;
  const auto why = [&](const std::string& name) {
    try {
      it.open(name);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("it opened");
  };
  EXPECT_THAT(why("hand?refuses=true"), HasSubstr("hand: the door is shut"));
  EXPECT_THAT(why("hand?port=1"), HasSubstr("unknown option \"port\""));
  EXPECT_THAT(why("hnad"), HasSubstr("hand"));
}

}  // namespace
}  // namespace tessera::serve
