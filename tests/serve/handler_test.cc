// Routes and responses without a socket, and model reloads.
#include "serve/handler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "config/test_refusal.h"
#include "fake_predictor.h"
#include "serve/token.h"

namespace tessera::serve {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;
using nlohmann::json;

// A server without its sockets.
class HandlerTest : public ::testing::Test {
 protected:
  void start(const ServiceOptions& options = {}, const BatcherOptions& batching = {},
             const std::vector<std::string>& names = {""}) {
    std::vector<ModelSource> sources;
    for (const std::string& name : names) sources.push_back({name, [this] { return open(); }});
    models_ = std::make_unique<ModelRepository>(sources, metrics_, log_);
    batcher_ = std::make_unique<Batcher>(batching, metrics_);
    service_ = std::make_unique<ModelService>(options, *models_, *batcher_);
    handler_ = std::make_unique<Handler>(*service_, *models_, *batcher_, metrics_);
  }
  ~HandlerTest() override {
    if (model_) model_->let_go();
    if (batcher_) batcher_->stop();
  }

  std::shared_ptr<Predictor> open() {
    const std::lock_guard lock(mutex_);
    ++opened_;
    if (!trouble_.empty()) fail(Code::kDataLoss, trouble_);
    FakeOptions options = next_;
    options.version = str_cat("version-", opened_);
    model_ = std::make_shared<FakePredictor>(options);
    return model_;
  }
  void set_trouble(const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    trouble_ = sentence;
  }
  std::shared_ptr<FakePredictor> model() {
    const std::lock_guard lock(mutex_);
    return model_;
  }

  std::future<HttpResponse> ask(HttpRequest request) {
    auto promise = std::make_shared<std::promise<HttpResponse>>();
    auto future = promise->get_future();
    handler_->handle(std::move(request), [promise](HttpResponse r) { promise->set_value(std::move(r)); });
    return future;
  }
  HttpResponse response(std::future<HttpResponse> future) {
    if (future.wait_for(20s) == std::future_status::ready) return future.get();
    ADD_FAILURE() << "no response";
    return {};
  }
  HttpResponse get(const std::string& target) { return response(ask({.method = "GET", .target = target})); }
  HttpResponse post(const std::string& target, const std::string& body, const std::string& json_bytes = "") {
    return response(ask({.method = "POST", .target = target, .body = body, .json_bytes = json_bytes}));
  }
  std::string error_of(const HttpResponse& r) { return json::parse(r.body)["error"]; }

  Metrics metrics_;
  Log log_{Level::kError, -1};
  std::mutex mutex_;
  int opened_ = 0;
  std::string trouble_;
  FakeOptions next_;
  std::shared_ptr<FakePredictor> model_;
  std::unique_ptr<ModelRepository> models_;
  std::unique_ptr<Batcher> batcher_;
  std::unique_ptr<ModelService> service_;
  std::unique_ptr<Handler> handler_;
};

constexpr const char* kInfer = "/v2/models/fake/infer";

std::vector<float> scores_of(const HttpResponse& r) {
  if (r.status != 200) {
    ADD_FAILURE() << r.status << " " << r.body;
    return {};
  }
  return json::parse(r.body)["outputs"][0]["data"].get<std::vector<float>>();
}

TEST_F(HandlerTest, Routes) {
  start();
  const std::vector<std::tuple<const char*, const char*, int>> cases = {
      {"GET", "/v2", 200},
      {"GET", "/v2/", 200},
      {"GET", "/v2?x=1", 200},
      {"GET", "/v2/health/live", 200},
      {"GET", "/v2/health/ready", 200},
      {"GET", "/v2/models/fake", 200},
      {"GET", "/v2/models/f%61ke", 200},
      {"GET", "/v2/models/fake/ready", 200},
      {"GET", "/v2/models/fake/versions/version-1", 200},
      {"GET", "/v2/models/fake/versions/version-1/ready", 200},
      {"GET", "/metrics", 200},
      {"GET", "/", 404},
      {"GET", "", 404},
      {"GET", "/v3", 404},
      {"GET", "/v2/models", 404},
      {"GET", "/v2/models/", 404},
      {"GET", "/v2/models/other", 404},
      {"GET", "/v2/models/fake/versions/version-2", 404},
      {"GET", "/v2/models/fake/versions", 404},
      {"GET", "/v2/models/fake/config", 404},
      {"GET", "/v2/models/fake/ready/more", 404},
      {"POST", "/nowhere", 404},
      {"HEAD", "/v2/health/live", 200},
      {"HEAD", "/v2/health/ready", 200},
      {"HEAD", "/metrics", 200},
      {"HEAD", "/nowhere", 404},
      {"HEAD", kInfer, 405},
      {"POST", "/v2", 405},
      {"PUT", "/v2/health/live", 405},
      {"GET", kInfer, 405},
      {"GET", "/admin/reload", 405},
      {"POST", "/v2/repository/index", 200},
      {"GET", "/v2/repository/index", 405},
      {"GET", "/v2/repository/models/fake/load", 405},
      {"POST", "/v2/repository/models/fake/load", 403},
      {"POST", "/v2/repository/models/fake/unload", 403},
      {"POST", "/v2/repository/models/fake/eat", 404},
      {"POST", "/v2/repository/models/fake", 404},
      {"POST", "/admin/reload", 403},
      {"POST", "/v2/models/other/infer", 404},
      {"POST", "/v2/models/fake/versions/version-2/infer", 404},
  };
  for (const auto& [method, target, status] : cases) {
    const HttpResponse r = response(ask({.method = method, .target = target}));
    EXPECT_EQ(r.status, status) << method << " " << target << " " << r.body;
    EXPECT_EQ(r.failure.has_value(), status != 200) << target;
    if (status != 200) {
      EXPECT_FALSE(error_of(r).empty()) << target;
    }
  }
  EXPECT_STREQ(response(ask({.method = "GET", .target = kInfer})).allow, "POST");
  EXPECT_STREQ(response(ask({.method = "PUT", .target = "/v2/health/live"})).allow, "GET, HEAD");
  EXPECT_EQ(error_of(get("/v2/models/other")), "model \"other\" is not served here; \"fake\" is");
}

TEST_F(HandlerTest, AnswersAreTheModels) {
  start();
  const Message message(kSamples);
  EXPECT_EQ(scores_of(post(kInfer, message.json())), message.scores());
  EXPECT_EQ(scores_of(post("/v2/models/fake/versions/version-1/infer", message.json())), message.scores());
  size_t n = 0;
  const std::string body = message.binary(&n);
  const HttpResponse r = post(kInfer, body, std::to_string(n));
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_STREQ(r.content_type, "application/octet-stream");
  ASSERT_EQ(r.body.size(), r.json_bytes.value() + 8);
  std::vector<float> scores(2);
  std::memcpy(scores.data(), r.body.data() + *r.json_bytes, 8);
  EXPECT_EQ(scores, message.scores());
}

TEST_F(HandlerTest, RowsAreScoredByName) {
  start();
  const std::string rows = R"("rows": [{"dense": [0.5, -1.25], "user": [3, 999], "item": 7},
                                       {"dense": [0.1, 2], "item": [0, 1, 99]}])";
  const Message message(kSamples);
  for (const char* target : {"/v1/score", "/v1/models/fake/score", "/v1/models/fake/versions/version-1/score"}) {
    const HttpResponse r = post(target, str_cat("{", rows, "}"));
    ASSERT_EQ(r.status, 200) << target << r.body;
    const json answer = json::parse(r.body);
    EXPECT_EQ(answer["model"], "fake");
    EXPECT_EQ(answer["version"], "version-1");
    ASSERT_EQ(answer["scores"].size(), 2u);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(answer["scores"][i]["score"].get<float>(), message.scores()[i]);
  }
  EXPECT_EQ(response(ask({.method = "GET", .target = "/v1/score"})).status, 405);
  EXPECT_EQ(post("/v1/models/other/score", "{}").status, 404);
  EXPECT_EQ(post("/v1/models/fake/eat", "{}").status, 404);
  const HttpResponse bad = post("/v1/score", R"({"rows": [{"dense": [1, 2], "item": 100}]})");
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(error_of(bad), "feature item has id 100; ids are below 100");
  EXPECT_EQ(response(ask({.method = "POST", .target = "/v1/score", .body = "{}", .content_encoding = "gzip"})).status,
            415);
}

TEST_F(HandlerTest, ARequestForScoresSaysWhichOfSeveralModels) {
  start({}, {}, {"a", "b"});
  const std::string rows = R"("rows": [{"dense": [0.5, 1]}])";
  EXPECT_EQ(json::parse(post("/v1/score", str_cat("{", rows, R"(, "model": "b"})")).body)["model"], "b");
  EXPECT_EQ(json::parse(post("/v1/models/a/score", str_cat("{", rows, "}")).body)["model"], "a");
  const HttpResponse which = post("/v1/score", str_cat("{", rows, "}"));
  EXPECT_EQ(which.status, 400);
  EXPECT_THAT(error_of(which),
              HasSubstr("several models are served here: name one, {\"model\": \"a\", \"rows\": [...]}"));
  EXPECT_EQ(post("/v1/score", str_cat("{", rows, R"(, "model": "c"})")).status, 404);
  EXPECT_EQ(post("/v1/score", "{").status, 400);
}

// A large request waited too long for another thread.
TEST_F(HandlerTest, ARequestThatWaitedTooLongIsNotTakenApart) {
  start({.deadline = 1s});
  HttpRequest request{.method = "POST", .target = kInfer, .body = Message(kSamples).json()};
  request.arrived = Clock::now() - 2s;
  const HttpResponse late = response(ask(std::move(request)));
  EXPECT_EQ(late.status, 503);
  EXPECT_EQ(model()->calls(), 0);
}

TEST_F(HandlerTest, EveryHeadAnswersOrThoseThatAreAsked) {
  next_.outputs = {{"click"}, {"like"}};
  start();
  const Message message(kSamples);
  const auto outputs = [&](const std::string& asked) {
    const HttpResponse r = post(kInfer, message.json(asked));
    EXPECT_EQ(r.status, 200) << r.body;
    return r.status == 200 ? json::parse(r.body)["outputs"] : json();
  };
  const json all = outputs("");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["name"], "click");
  EXPECT_EQ(all[0]["data"].get<std::vector<float>>(), message.scores());
  EXPECT_EQ(all[1]["name"], "like");
  EXPECT_EQ(all[1]["data"].get<std::vector<float>>(), message.values(1));
  const json like = outputs(R"("outputs":[{"name":"like"}],)");
  ASSERT_EQ(like.size(), 1u);
  EXPECT_EQ(like[0], all[1]);
  const json score = outputs(R"("outputs":[{"name":"score"}],)");
  ASSERT_EQ(score.size(), 1u);
  EXPECT_EQ(score[0]["name"], "score");
  EXPECT_EQ(score[0]["data"], all[0]["data"]);
  const HttpResponse unknown = post(kInfer, message.json(R"("outputs":[{"name":"buy"}],)"));
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(error_of(unknown),
            "output \"buy\" is unknown; there are \"click\" and \"like\", and \"score\" is the first of them");
  EXPECT_EQ(json::parse(get("/v2/models/fake").body)["outputs"].size(), 2u);
}

TEST_F(HandlerTest, BadRequestsGetTheSentenceAndBadIdsAreCounted) {
  start();
  Sample bad = kSamples[0];
  bad.item = {100, -5};
  const HttpResponse r = post(kInfer, Message({kSamples[1], bad}).json());
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(error_of(r), "feature item has id 100; ids are below 100");
  EXPECT_EQ(r.failure, Failure::kBadRequest);
  EXPECT_EQ(post(kInfer, "{").status, 400);
  EXPECT_EQ(post(kInfer, "{}", "abc").status, 400);
  for (const std::string wrong : {"-1", "2x", "99999999999999999999"}) {
    EXPECT_EQ(error_of(post(kInfer, "{}", wrong)),
              "Inference-Header-Content-Length takes a number of bytes, not \"" + wrong + "\"");
  }
  HttpRequest zipped{.method = "POST", .target = kInfer, .body = "x", .content_encoding = "gzip"};
  EXPECT_EQ(response(ask(std::move(zipped))).status, 415);
  EXPECT_THAT(get("/metrics").body,
              HasSubstr("tessera_bad_ids_total{model=\"fake\",version=\"version-1\",table=\"item_table\"} 2\n"));
  EXPECT_EQ(model()->calls(), 0);
}

TEST_F(HandlerTest, AModelIsCalledAsClientsCallIt) {
  start({}, {}, {"shown"});
  const std::string infer = "/v2/models/shown/infer", good = Message(kSamples).json();
  const auto about = [](const HttpResponse& r) { return std::to_string(r.status) + " " + std::string(r.model); };
  EXPECT_EQ(about(post(infer, good)), "200 shown");
  EXPECT_EQ(about(get("/v2/models/shown")), "200 shown");
  EXPECT_EQ(about(get("/v2/models/shown/ready")), "200 shown");
  Sample weighted = kSamples[0];
  weighted.item_weights = {1};
  const HttpResponse unknown = post(infer, Message({weighted}).json());
  EXPECT_EQ(about(unknown), "400 shown");
  EXPECT_THAT(error_of(unknown), HasSubstr("model shown takes dense and NAME.values and NAME.lengths of its 2 feat"));
  Sample bad = kSamples[0];
  bad.item = {100};
  EXPECT_EQ(about(post(infer, Message({bad}).json())), "400 shown");
  EXPECT_EQ(about(post("/v2/models/shown/versions/7/infer", good)), "404 shown");
  EXPECT_EQ(about(post("/v2/models/fake/infer", good)), "404 ") << "of no model that there is";
  EXPECT_EQ(about(get("/v2/health/live")), "200 ");
  const auto local = [&](const char* action) {
    const std::string target = std::string("/v2/repository/models/shown/") + action;
    return about(response(ask({.method = "POST", .target = target, .local = true})));
  };
  EXPECT_EQ(local("unload"), "200 shown");
  EXPECT_EQ(about(post(infer, good)), "503 shown");
  EXPECT_EQ(local("load"), "200 shown");
}

TEST_F(HandlerTest, IdsThatTheModelLetsPassAreCountedToo) {
  next_.bounds_check = BoundsCheckMode::kIgnore;
  start();
  Sample bad = kSamples[0];
  bad.user = {1000};
  EXPECT_EQ(post(kInfer, Message({bad}).json()).status, 200);
  EXPECT_THAT(get("/metrics").body, HasSubstr(",table=\"user_table\"} 1\n"));
}

TEST_F(HandlerTest, AFullQueueSaysWhenToComeBack) {
  start({}, {.max_batch = 1, .max_queue = 1});
  model()->hold();
  const std::string body = Message(kSamples).json();
  auto first = ask({.method = "POST", .target = kInfer, .body = body});
  ASSERT_TRUE(model()->wait_for_calls(1));
  auto second = ask({.method = "POST", .target = kInfer, .body = body});
  const HttpResponse third = post(kInfer, body);
  EXPECT_EQ(third.status, 503);
  EXPECT_TRUE(third.retry);
  EXPECT_EQ(third.failure, Failure::kQueueFull);
  EXPECT_EQ(error_of(third), "the queue is full (1 requests): ask again later");
  model()->let_go();
  EXPECT_EQ(response(std::move(first)).status, 200);
  EXPECT_EQ(response(std::move(second)).status, 200);
}

TEST_F(HandlerTest, ReloadSwapsModelsAndDropsNothing) {
  start();
  const Message message(kSamples);
  const auto old_model = model();
  old_model->hold();
  auto during = ask({.method = "POST", .target = kInfer, .body = message.json()});
  ASSERT_TRUE(old_model->wait_for_calls(1));
  const HttpResponse r = response(ask({.method = "POST", .target = "/admin/reload", .local = true}));
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(json::parse(r.body), json::parse(R"({"name":"fake","version":"version-2","previous":"version-1"})"));
  EXPECT_EQ(json::parse(get("/v2/models/fake").body)["versions"], json({"version-2"}));
  old_model->let_go();
  const HttpResponse answer = response(std::move(during));
  EXPECT_EQ(scores_of(answer), message.scores());
  EXPECT_EQ(json::parse(answer.body)["model_version"], "version-1");
  EXPECT_EQ(json::parse(post(kInfer, message.json()).body)["model_version"], "version-2");
}

TEST_F(HandlerTest, AModelThatCannotBeLoadedLeavesTheOldOne) {
  start();
  set_trouble("tables/film.bin is truncated");
  const HttpResponse r = response(ask({.method = "POST", .target = "/admin/reload", .local = true}));
  EXPECT_EQ(r.status, 500);
  EXPECT_EQ(error_of(r), "tables/film.bin is truncated");
  EXPECT_EQ(json::parse(post(kInfer, Message(kSamples).json()).body)["model_version"], "version-1");
  EXPECT_THAT(get("/metrics").body, HasSubstr("tessera_reloads_total{result=\"failed\"} 1\n"));
}

TEST_F(HandlerTest, ALostModelIsUnavailableUntilItIsLoadedAgain) {
  start();
  const std::string body = Message(kSamples).json();
  set_trouble("rank 1 does not answer");
  model()->fail_with(Code::kUnavailable, "rank 1 is lost");
  const HttpResponse first = post(kInfer, body);
  EXPECT_EQ(first.status, 503);
  EXPECT_TRUE(first.retry);
  EXPECT_EQ(error_of(first), "rank 1 is lost");
  const HttpResponse second = post(kInfer, body);
  EXPECT_EQ(second.status, 503);
  EXPECT_EQ(second.failure, Failure::kUnavailable);
  EXPECT_EQ(get("/v2/health/ready").status, 503);
  EXPECT_EQ(get("/v2/health/live").status, 200);
  EXPECT_EQ(get("/metrics").status, 200);
  set_trouble("");
  int status = 503;
  for (int i = 0; i < 400 && status == 503; ++i) {
    std::this_thread::sleep_for(50ms);
    status = post(kInfer, body).status;
  }
  EXPECT_EQ(status, 200);
  EXPECT_EQ(get("/v2/health/ready").status, 200);
}

TEST_F(HandlerTest, AModelThatBreaksDownIsLoadedAgainBeforeAnybodyAsks) {
  start();
  model()->break_down();
  std::string version = "version-1";
  for (int i = 0; i < 400 && version == "version-1"; ++i) {
    std::this_thread::sleep_for(50ms);
    const HttpResponse r = get("/v2/models/fake");
    if (r.status == 200) version = json::parse(r.body)["versions"][0];
  }
  EXPECT_EQ(version, "version-2");
}

TEST_F(HandlerTest, ManyReloadsUnderLoadLoseNothing) {
  start({}, {.max_batch = 8, .max_queue = 1000, .workers = 2});
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, asked{0};
  std::vector<std::thread> clients;
  for (int t = 0; t < 4; ++t) {
    clients.emplace_back([&] {
      const Message message(kSamples);
      while (!stop) {
        const HttpResponse r = post(kInfer, message.json());
        wrong += r.status != 200 || scores_of(r) != message.scores();
        ++asked;
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(response(ask({.method = "POST", .target = "/admin/reload", .local = true})).status, 200);
  }
  while (asked < 100) std::this_thread::sleep_for(1ms);
  stop = true;
  for (std::thread& c : clients) c.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(HandlerTest, ClientsMayShortenTheDeadline) {
  start({.deadline = 60s});
  model()->hold();
  const auto before = Clock::now();
  const auto due = handler_->handle(
      {.method = "POST", .target = kInfer, .body = Message(kSamples).json(R"("parameters":{"timeout":2000000},)")},
      [](const HttpResponse&) {});
  EXPECT_GE(due, before + 2s);
  EXPECT_LE(due, Clock::now() + 2s);
  const auto most = handler_->handle({.method = "POST",
                                      .target = kInfer,
                                      .body = Message(kSamples).json(R"("parameters":{"timeout":9000000000000},)")},
                                     [](const HttpResponse&) {});
  EXPECT_LE(most, Clock::now() + 60s);
  const HttpResponse late = handler_->overdue();
  EXPECT_EQ(late.status, 503);
  EXPECT_TRUE(late.retry);
}

TEST_F(HandlerTest, AServerThatEndsIsNotReadyButAnswers) {
  start({}, {}, {"shown"});
  handler_->end();
  EXPECT_EQ(get("/v2/health/ready").status, 503);
  EXPECT_EQ(get("/v2/health/live").status, 200);
  EXPECT_EQ(post("/v2/models/shown/infer", Message(kSamples).json()).status, 200);
  EXPECT_EQ(get("/v2/models/fake").status, 404);
}

TEST_F(HandlerTest, SeveralModelsAndVersionsOfThem) {
  start({}, {}, {"a", "b", "a"});  // versions 1, 2 and 3
  const std::string body = Message(kSamples).json();
  const auto version_of = [&](const std::string& target) {
    const HttpResponse r = post(target, body);
    return r.status == 200 ? json::parse(r.body)["model_version"].get<std::string>() : r.body;
  };
  EXPECT_EQ(version_of("/v2/models/a/infer"), "version-3");
  EXPECT_EQ(version_of("/v2/models/a/versions/version-1/infer"), "version-1");
  EXPECT_EQ(version_of("/v2/models/b/infer"), "version-2");
  EXPECT_EQ(json::parse(get("/v2/models/a").body)["versions"], json({"version-1", "version-3"}));
  EXPECT_EQ(json::parse(get("/v2/models/a/versions/version-1").body)["name"], "a");
  EXPECT_EQ(error_of(get("/v2/models/a/versions/version-2")),
            "version version-2 of model a is not served; version-1 and version-3 are");
  EXPECT_EQ(error_of(get("/v2/models/c")), "model \"c\" is not served here; \"a\" and \"b\" are");
  EXPECT_THAT(get("/metrics").body, HasSubstr("tessera_model_info{model=\"b\",version=\"version-2\"} 1\n"));
  const HttpResponse all = response(ask({.method = "POST", .target = "/admin/reload", .local = true}));
  EXPECT_EQ(json::parse(all.body)["models"].size(), 3u) << all.body;
  set_trouble("tables/film.bin is truncated");
  EXPECT_EQ(error_of(response(ask({.method = "POST", .target = "/v2/repository/models/b/load", .local = true}))),
            "tables/film.bin is truncated");
}

TEST_F(HandlerTest, TwoModelsOfOneNameAndVersionAreRefused) {
  const auto same = [] { return std::make_shared<FakePredictor>(); };
  const std::vector<ModelSource> sources = {{"a", same}, {"a", same}};
  EXPECT_THAT(test::refusal(Code::kInvalidArgument, [&] { const ModelRepository repository(sources, metrics_, log_); }),
              HasSubstr("two models have the name \"a\" and the version 0000000000000001"));
}

TEST_F(HandlerTest, UnloadedModelsAnswerWhatTheyHaveAndNothingMore) {
  start({}, {}, {"a", "b"});
  const Message message(kSamples);
  const auto change = [&](const std::string& what) {
    return response(ask({.method = "POST", .target = "/v2/repository/models/" + what, .local = true}));
  };
  const auto state_of_b = [&] { return json::parse(post("/v2/repository/index", "").body)[1]["state"]; };
  const auto last = model();
  last->hold();
  auto during = ask({.method = "POST", .target = "/v2/models/b/infer", .body = message.json()});
  ASSERT_TRUE(last->wait_for_calls(1));
  EXPECT_EQ(state_of_b(), "READY");
  EXPECT_EQ(change("b/unload").status, 200);
  EXPECT_EQ(state_of_b(), "UNAVAILABLE");
  EXPECT_EQ(json::parse(post("/v2/repository/index", R"({"ready": true})").body).size(), 1u);
  EXPECT_EQ(post("/v2/repository/index", R"({"ready": 3})").status, 400);
  EXPECT_EQ(post("/v2/repository/index", "{").status, 400);
  EXPECT_EQ(error_of(post("/v2/models/b/infer", message.json())),
            "model \"b\" is unloaded: POST /v2/repository/models/b/load loads it");
  EXPECT_EQ(get("/v2/health/ready").status, 200);  // a is loaded, as requested
  last->let_go();
  EXPECT_EQ(scores_of(response(std::move(during))), message.scores());
  EXPECT_EQ(change("a/unload").status, 200);
  EXPECT_EQ(get("/v2/health/ready").status, 503);
  std::this_thread::sleep_for(700ms);  // longer than reloading a lost model takes
  EXPECT_EQ(state_of_b(), "UNAVAILABLE");
  EXPECT_EQ(change("c/unload").status, 404);
  EXPECT_EQ(change("c/load").status, 404);
  const HttpResponse loaded = change("b/load");
  EXPECT_EQ(json::parse(loaded.body), json::parse(R"({"name":"b","version":"version-3","previous":""})"));
  EXPECT_EQ(scores_of(post("/v2/models/b/infer", message.json())), message.scores());
}

TEST_F(HandlerTest, WithoutTheTokenNothingButHealthIsAnswered) {
  start();
  const std::string token = "abcdefghijklmnop.0";
  TokenHandler guard(token, *handler_);
  const auto status = [&](const std::string& target, const std::string& authorization) {
    HttpResponse out;
    guard.handle({.method = "GET", .target = target, .authorization = authorization},
                 [&](HttpResponse r) { out = std::move(r); });
    if (out.status == 401) {
      EXPECT_STREQ(out.challenge, "Bearer");
      EXPECT_EQ(out.failure, Failure::kNoToken);
      EXPECT_EQ(out.body.find(token), std::string::npos);
    }
    return out.status;
  };
  EXPECT_EQ(status("/v2/models/fake", "Bearer " + token), 200);
  EXPECT_EQ(status("/v2/models/fake", "bearer  " + token), 200);
  EXPECT_EQ(status("/v2/health/live", ""), 200);
  EXPECT_EQ(status("/v2/health/ready?x", "Bearer no"), 200);
  const std::string shorter = token.substr(0, token.size() - 1), zero(1, '\0');
  for (const std::string& wrong :
       std::vector<std::string>{"", token, "Bearer", "Bearer ", "Bearer" + token, "Bearer " + token + "0",
                                "Bearer " + shorter, "Bearer " + token + zero, "Basic " + token}) {
    EXPECT_EQ(status("/v2/models/fake", wrong), 401) << wrong;
    EXPECT_EQ(status("/metrics", wrong), 401) << wrong;
    EXPECT_EQ(status("/v2/health", wrong), 401) << wrong;
  }
}

}  // namespace
}  // namespace tessera::serve
