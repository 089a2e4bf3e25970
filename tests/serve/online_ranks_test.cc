// `tessera launch -n 2 -- tessera serve --follow`: each answer is that of one version on all ranks; a version that one
// rank cannot take is taken by none; a killed rank returns with the newest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "online_job.h"
#include "publishing/test_publications.h"
#include "served_model.h"
#include "spawn.h"
#include "tessera/layer_graph.h"
#include "tessera/sharding.h"

namespace tessera::serve {
namespace {

using test::operator+;
using nlohmann::json;
using test::copy_publication;
using test::model_at;
using test::OwnInput;
using test::Program;
using test::Publication;
using test::TestDirectory;
using ::testing::HasSubstr;

constexpr int64_t kVersions = 7;

// Trained once: 20 steps, a publication every 3 steps and at the end, and another run's delta.
class OnlineRanks : public testing::Test {
 protected:
  void SetUp() override {
    test::succeed(test::run_tessera(
        {"train", "--config", folder_.write("job.toml", kOnlineJob), "--publish", published_, "--every", "3steps"}));
    for (int64_t n = 1; n <= kVersions; ++n) {
      const auto kind = n == 1 ? Publication::kBase : Publication::kDelta;
      versions_.push_back(publishing::read_publication(published_, kind, n).hash);
      predictors_.push_back(make_predictor(runtime_, model_at(published_, n).model()));
    }
    for (const char* rank : {"0", "1"}) {
      std::filesystem::create_directories(directory_of(rank));
      copy_publication(published_, directory_of(rank), Publication::kBase, 1);
    }
  }
  // A directory for each rank, so that they may differ.
  std::string directory_of(const std::string& rank) const { return folder_.file("rank" + rank); }
  void publish(int64_t number, Publication::Kind kind = Publication::kDelta) const {
    for (const char* rank : {"1", "0"}) copy_publication(published_, directory_of(rank), kind, number);
  }
  // A table divided by rows, one by columns, and one only on rank 1.
  std::string plan_file() const {
    std::vector<EmbeddingBagConfig> tables;
    const publishing::PatchedModel first = model_at(published_, 1);
    for (const QuantizedTable& t : first.model().tables) {
      tables.push_back(t.config);
      tables.back().row_format.reset();
    }
    ShardingPlan plan;
    plan.world_size = plan.local_world_size = 2;
    plan.modules.emplace_back(
        kCollectionPath, construct_module_sharding_plan(
                             runtime_, tables, {{"c0", row_wise()}, {"c1", column_wise({0, 1})}, {"c2", table_wise(1)}},
                             Topology::of(2)));
    return folder_.write("plan.json", plan.json());
  }
  std::vector<std::string> command(const std::vector<std::string>& more = {}) {
    port_ = cli::free_port();
    std::string serve = str_cat("exec ", test::tessera_path(), " serve --follow published=", folder_.file("rank"),
                                "$RANK --port ", port_, " --backend tcp --rank-timeout-s 4 --workers 2");
    for (const std::string& word : more) serve += " " + word;
    return {
        test::tessera_path(), "launch", "-n", "2", "--restarts", "5", "--grace", "20", "--", "/bin/sh", "-c", serve};
  }
  // The number of the version that answered; 0 if there was no answer. The test fails if an answer is not equal, bit
  // for bit, to that of one version.
  int64_t ask(uint32_t seed) {
    OwnInput input(predictors_[0]->model(), 1 + seed % 7, seed);
    Client client(port_);
    if (!client.connected()) return 0;
    const Reply reply =
        client.ask(Client::post("/v2/models/published/infer", json_request(predictors_[0]->model(), input)));
    if (reply.status != 200) return 0;
    const json body = json::parse(reply.body);
    for (size_t v = 0; v < versions_.size(); ++v) {
      if (body["model_version"] != versions_[v]) continue;
      const std::vector<float> want = test::scores_of(*predictors_[v], input.view());
      const auto got = body["outputs"][0]["data"].get<std::vector<float>>();
      EXPECT_EQ(got.size(), want.size());
      for (size_t i = 0; i < std::min(got.size(), want.size()); ++i)
        EXPECT_NEAR(got[i], want[i], 1e-6f) << "publication " << v + 1;
      return static_cast<int64_t>(v) + 1;
    }
    ADD_FAILURE() << "of no version: " << reply.body;
    return 0;
  }
  // Asks until `stop`; returns how often there was no answer.
  int ask_on(const std::atomic<bool>& stop, uint32_t seed) {
    int unanswered = 0;
    for (; !stop; seed += 2) unanswered += ask(seed) == 0 ? 1 : 0;
    return unanswered;
  }
  bool answers_with(int64_t number) {
    return comes_true([&] { return ask(++seed_) == number; });
  }
  static bool says(const Program& server, const std::string& text) {
    return comes_true([&] { return server.output().find(text) != std::string::npos; });
  }

  const TestDirectory folder_;
  const std::string published_ = folder_.file("published");
  Runtime runtime_;
  std::vector<std::string> versions_;
  std::vector<std::unique_ptr<Predictor>> predictors_;
  int port_ = 0;
  uint32_t seed_ = 0;
};

TEST_F(OnlineRanks, AllTakeAVersionOrNone) {
  Program server(command({"--plan", plan_file()}));
  ASSERT_EQ(port_of(server), port_);
  ASSERT_TRUE(answers_with(1)) << server.output();
  std::atomic<bool> stop{false};
  std::atomic<int> unanswered{0};
  std::thread beside([&] { unanswered = ask_on(stop, 1001); });
  for (int64_t n = 2; n <= 4; ++n) {
    publish(n);
    EXPECT_TRUE(answers_with(n)) << server.output();
  }
  stop = true;
  beside.join();
  EXPECT_EQ(unanswered, 0);
  // Rank 1's copy of the next delta is damaged.
  const std::string damaged = directory_of("1") + "/delta-5.safetensors";
  copy_publication(published_, directory_of("1"), Publication::kDelta, 5);
  const auto size = std::filesystem::file_size(damaged);
  std::string bytes = test::contents(damaged);
  bytes[size - 5] = static_cast<char>(bytes[size - 5] ^ 1);
  std::ofstream(damaged, std::ios::binary) << bytes;
  copy_publication(published_, directory_of("0"), Publication::kDelta, 5);
  ASSERT_TRUE(says(server, "publication_refused")) << server.output();
  EXPECT_THAT(server.output(), HasSubstr("rank 1: " + damaged));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ask(++seed_), 4) << server.output();
  // The next base has everything.
  publish(5, Publication::kBase);
  ASSERT_TRUE(answers_with(5)) << server.output();
  publish(6);
  ASSERT_TRUE(answers_with(6)) << server.output();
  const std::string metrics = Client(port_).ask(Client::get("/metrics", "Connection: close\r\n")).body;
  EXPECT_THAT(metrics, HasSubstr("tessera_followed_publication{model=\"published\"} 6\n"));
  EXPECT_THAT(metrics, HasSubstr("tessera_followed_refused_total{model=\"published\"} 1\n"));
  ASSERT_EQ(kill(server.pid(), SIGTERM), 0);
  EXPECT_EQ(server.wait(60), 128 + SIGTERM);
}

TEST_F(OnlineRanks, AGapAndAnotherChainAreRefused) {
  Program server(command());
  ASSERT_EQ(port_of(server), port_);
  publish(2);
  ASSERT_TRUE(answers_with(2)) << server.output();
  publish(4);
  ASSERT_TRUE(says(server, "delta-3.json is missing, but publication 4 exists")) << server.output();
  // Rank 1 has another run's file with that number, of the same job and therefore of the same tables.
  const std::string other = folder_.file("other");
  test::succeed({"train", "--config", folder_.file("job.toml"), "--set", "data.samples=256", "--publish", other,
                 "--every", "3steps"});
  copy_publication(other, directory_of("1"), Publication::kDelta, 3);
  copy_publication(published_, directory_of("0"), Publication::kDelta, 3);
  ASSERT_TRUE(says(server, "rank 1: " + directory_of("1") + "/delta-3.json belongs to another chain"))
      << server.output();
  EXPECT_EQ(ask(++seed_), 2);
}

TEST_F(OnlineRanks, AKilledRankComesBackToTheNewestVersion) {
  Program server(command());
  ASSERT_EQ(port_of(server), port_);
  for (int64_t n = 2; n <= 3; ++n) publish(n);
  ASSERT_TRUE(answers_with(3)) << server.output();
  const pid_t rank = rank_process(server.pid(), 1);
  ASSERT_NE(rank, 0);
  kill(rank, SIGKILL);
  publish(4);
  ASSERT_TRUE(answers_with(4)) << server.output();
  publish(5);
  ASSERT_TRUE(answers_with(5)) << server.output();
}

// Works with any assignment of tables to ranks.
TEST_F(OnlineRanks, ItemsOfEachVersionAreSearchedByAllRanks) {
  for (const char* items : {"c0", "c1", "c2"}) {
    std::vector<std::string> search{"--top-k", "20", "--items", items, "--query", "dense_arch"};
    const auto asked = [&](int port) {
      OwnInput input(predictors_[0]->model(), 6, 3);
      const Reply reply =
          Client(port).ask(Client::post("/v2/models/published/infer", json_request(predictors_[0]->model(), input)));
      return reply.status == 200 ? json::parse(reply.body) : json();
    };
    Program one(test::Arguments{test::tessera_path(), "serve", "--follow", published_, "--port", "0"} + search);
    const json want = asked(port_of(one));
    ASSERT_EQ(want["model_version"], versions_.back()) << one.output();
    search.insert(search.end(), {"--plan", plan_file()});
    Program server(command(search));
    ASSERT_EQ(port_of(server), port_);
    for (const char* rank : {"0", "1"}) {
      for (int64_t n = 2; n <= kVersions; ++n) {
        if (!std::filesystem::exists(directory_of(rank) + "/" + Publication::name_of(Publication::kDelta, n) + ".json"))
          copy_publication(published_, directory_of(rank), Publication::kDelta, n);
      }
    }
    json got;
    ASSERT_TRUE(comes_true([&] { return (got = asked(port_))["model_version"] == versions_.back(); }))
        << server.output();
    EXPECT_EQ(got["outputs"], want["outputs"]) << items;
  }
}

}  // namespace
}  // namespace tessera::serve
