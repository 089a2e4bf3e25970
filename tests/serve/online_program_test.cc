// tessera train --publish and tessera serve --follow, as programs: two ranks publish, a server answers meanwhile, and
// trainers are killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>

#include "online_job.h"
#include "publishing/test_publications.h"
#include "served_model.h"
#include "tessera/online.h"

namespace tessera::serve {
namespace {

using nlohmann::json;
using test::copy_publication;
using test::difference;
using test::model_at;
using test::OwnInput;
using test::Program;
using test::Publication;
using test::run_tessera;
using test::succeed;
using test::TestDirectory;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Asks continuously; each answer must be that of exactly one version.
class Asking {
 public:
  Asking(const std::string& published, int64_t versions, int port) : port_(port) {
    for (int64_t n = 1; n <= versions; ++n) {
      InferenceModel model = model_at(published, n).model();
      const bool first = n == 1;
      const std::string version = first ? publishing::read_publication(published, Publication::kBase, n).hash
                                        : publishing::read_publication(published, Publication::kDelta, n).hash;
      models_.emplace(version, make_predictor(runtime_, std::move(model)));
    }
    for (uint32_t i = 0; i < 3; ++i) threads_.emplace_back([this, i] { ask(i); });
  }
  ~Asking() { stop(); }
  void stop() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  std::map<std::string, int> answers() {
    const std::lock_guard lock(mutex_);
    return answers_;
  }
  std::string wrong() {
    const std::lock_guard lock(mutex_);
    return wrong_;
  }

 private:
  void ask(uint32_t seed) {
    Client client(port_);
    const ModelDescription& model = models_.begin()->second->model();
    while (!stop_) {
      OwnInput input(model, 1 + seed % 7, seed);
      seed += 3;
      const Reply reply = client.ask(Client::post("/v2/models/published/infer", json_request(model, input)));
      const std::string wrong = check(reply, input);
      const std::lock_guard lock(mutex_);
      if (!wrong.empty()) wrong_ = wrong;
    }
  }
  std::string check(const Reply& reply, OwnInput& input) {
    if (reply.status != 200) return str_cat("status ", reply.status, ": ", reply.body);
    const json body = json::parse(reply.body);
    const auto version = body["model_version"].get<std::string>();
    const auto found = models_.find(version);
    if (found == models_.end()) return "no such version: " + version;
    const std::vector<float> expected = test::scores_of(*found->second, input.view());
    const auto got = body["outputs"][0]["data"].get<std::vector<float>>();
    if (got.size() != expected.size()) return "another number of scores";
    for (size_t i = 0; i < got.size(); ++i) {  // different batches round differently
      if (std::abs(got[i] - expected[i]) > 1e-6f) return str_cat("score ", got[i], " of version ", version);
    }
    const std::lock_guard lock(mutex_);
    ++answers_[version];
    return "";
  }

  const int port_;
  Runtime runtime_;
  std::map<std::string, std::unique_ptr<Predictor>> models_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::map<std::string, int> answers_;
  std::string wrong_;
  std::vector<std::thread> threads_;
};

class OnlineProgram : public testing::Test {
 protected:
  void publish() {
    succeed({"train", "--config", folder_.write("job.toml", kOnlineJob), "--nproc", "2", "--publish", published_,
             "--every", "3steps", "--save", folder_.file("saved")});
  }
  const TestDirectory folder_;
  const std::string published_ = folder_.file("published");
};

// 20 steps, a publication every 3 and at the end.
TEST_F(OnlineProgram, TwoRanksPublishTheModelToTheBitAndAServerFollows) {
  publish();
  ASSERT_FALSE(HasFatalFailure());
  const std::string packed = folder_.file("packed"), to = folder_.file("followed");
  pack_model(open_float_model(folder_.file("saved")).model, packed, {});
  EXPECT_EQ(difference(model_at(published_, 7).model(), open_packed_model(packed)), "");
  EXPECT_EQ(difference(model_at(published_, 5).model(), open_packed_model(published_ + "/base-5")), "");

  std::filesystem::create_directories(to);
  copy_publication(published_, to, Publication::kBase, 1);
  Program server({test::tessera_path(), "serve", "--follow", to, "--port", "0", "--workers", "2"});
  const int port = port_of(server);
  ASSERT_NE(port, 0);
  const auto metrics = [&] { return Client(port).ask(Client::get("/metrics", "Connection: close\r\n")).body; };
  const auto serves = [&](int64_t number) {
    return comes_true([&] {
      return metrics().find(str_cat("tessera_followed_publication{model=\"published\"} ", number, "\n")) !=
             std::string::npos;
    });
  };
  Asking asking(published_, 7, port);
  for (int64_t n = 2; n <= 4; ++n) {
    ASSERT_TRUE(comes_true([&] { return asking.answers().size() >= static_cast<size_t>(n - 1); })) << asking.wrong();
    copy_publication(published_, to, Publication::kDelta, n);
    ASSERT_TRUE(serves(n)) << server.output();
  }
  copy_publication(published_, to, Publication::kDelta, 6);  // without the previous one
  ASSERT_TRUE(comes_true([&] { return server.output().find("delta-5.json is missing") != std::string::npos; }));
  EXPECT_THAT(metrics(), HasSubstr("tessera_followed_refused_total{model=\"published\"} 1\n"));
  copy_publication(published_, to, Publication::kBase, 5);
  ASSERT_TRUE(serves(6)) << server.output();
  copy_publication(published_, to, Publication::kDelta, 7);
  ASSERT_TRUE(serves(7)) << server.output();
  ASSERT_TRUE(comes_true([&] { return asking.answers().size() >= 5; }));
  asking.stop();
  EXPECT_EQ(asking.wrong(), "");
  EXPECT_THAT(metrics(), HasSubstr("tessera_followed_age_seconds{model=\"published\"} "));
  EXPECT_EQ(json::parse(Client(port).ask(Client::post("/admin/reload", "")).body)["version"],
            publishing::read_publication(published_, Publication::kDelta, 7).hash);
  // An unloaded model is not served by the follower, and loading it is one event.
  const auto events = [&](const std::string& event) {
    const std::string text = server.output(), line = "\"event\":\"" + event + "\",\"model\":\"published\"";
    int count = 0;
    for (size_t at = text.find(line); at != std::string::npos; at = text.find(line, at + 1)) ++count;
    return count;
  };
  const auto change = [&](const char* what) {
    return Client(port).ask(Client::post(str_cat("/v2/repository/models/published/", what), "")).status;
  };
  const int served = events("publication_served"), loaded = events("model_loaded");
  EXPECT_GE(served, 4) << server.output();
  EXPECT_EQ(change("unload"), 200);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));  // three looks at the directory
  EXPECT_EQ(change("load"), 200);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(events("publication_served"), served) << server.output();
  EXPECT_EQ(events("model_loaded"), loaded + 1) << server.output();
  EXPECT_EQ(events("model_unloaded"), 1);
  ASSERT_EQ(kill(server.pid(), SIGTERM), 0);
  EXPECT_EQ(server.wait(30), 0);
}

TEST_F(OnlineProgram, TrainersThatAreKilledLeaveNothingThatIsNotWhole) {
  const std::string saved = folder_.file("saved");
  const test::Arguments command = test::words(str_cat(
      test::tessera_path(), " train --config ", folder_.write("job.toml", kOnlineJob),
      " --set data.epochs=100000 --publish ", published_, " --every 30ms --save ", saved, " --save-every 20 --resume"));
  Runtime runtime;
  std::unique_ptr<ModelFollower> follower;
  int64_t seen = 0;
  const auto look = [&] {
    if (!follower && !publishing::publications_in(published_, Publication::kBase).empty())
      follower = std::make_unique<ModelFollower>(runtime, published_);
    if (!follower) return;
    follower->update();
    EXPECT_THAT(follower->refusals(), IsEmpty());
    EXPECT_GE(follower->status().number, seen);
    seen = follower->status().number;
  };
  std::filesystem::create_directories(published_);
  for (int run = 0; run < 4; ++run) {
    Program trainer(command);
    const int64_t before = seen;
    ASSERT_TRUE(comes_true([&] {
      look();
      return seen > before + 3;
    })) << trainer.output();
    std::this_thread::sleep_for(std::chrono::milliseconds(7 * run));
    kill(trainer.pid(), run < 3 ? SIGKILL : SIGTERM);
    EXPECT_EQ(trainer.wait(60), run < 3 ? 128 + SIGKILL : 75) << trainer.output();
  }
  look();
  const std::string packed = folder_.file("packed");
  pack_model(open_float_model(saved).model, packed, {});
  const auto last = make_predictor(runtime, open_packed_model(packed));
  OwnInput input(last->model(), 64, 1);
  EXPECT_EQ(test::scores_of(*follower->current(), input.view()), test::scores_of(*last, input.view()));
}

TEST_F(OnlineProgram, WrongUseIsOneSentence) {
  const std::string job = folder_.write("job.toml", kOnlineJob);
  const auto said = [&](std::vector<std::string> args) { return run_tessera(std::move(args)).output; };
  EXPECT_THAT(said({"train", "--config", job, "--publish", published_, "--every", "often"}),
              HasSubstr("--every takes a time, 60s, 500ms, 5min or 1h, or steps, 100steps, not \"often\""));
  EXPECT_THAT(said({"train", "--config", job, "--every", "60s"}), HasSubstr("--every needs --publish DIR"));
  EXPECT_THAT(said({"train", "--config", job, "--publish", published_, "--set", "job.kernel_plugin=reference"}),
              HasSubstr("does not report which of its rows change"));
  EXPECT_THAT(said({"serve", "--follow", folder_.file("nothing"), "--port", "0"}), HasSubstr("cannot list"));
  EXPECT_THAT(said({"serve", "--port", "0"}), HasSubstr("--model DIR or --follow DIR is needed"));
}

}  // namespace
}  // namespace tessera::serve
