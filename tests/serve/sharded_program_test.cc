// `tessera launch -n 2 -- tessera serve`: tables on two ranks; ranks are killed, stopped and restarted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "served_model.h"
#include "spawn.h"
#include "tessera/layer_graph.h"
#include "tessera/sharding.h"

namespace tessera::serve {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;
using nlohmann::json;
using test::OwnInput;
using test::Program;

class ShardedServer {
 public:
  explicit ShardedServer(std::vector<std::string> more = {}, bool own_plan = false)
      : port_(cli::free_port()), program_(command(std::move(more), own_plan)) {
    EXPECT_EQ(port_of(program_), port_);
  }

  ServedModel& model() { return model_; }
  Program& program() { return program_; }
  Reply ask(uint32_t seed) {
    OwnInput input(model_.predictor().model(), 4, seed);
    Client client(port_);
    if (!client.connected()) return {};
    Reply reply = client.ask(Client::post(kSmall, json_request(model_.predictor().model(), input)));
    if (reply.status == 200) {
      EXPECT_EQ(model_.wrong_with(reply, input), "");
    }
    return reply;
  }
  Reply post(const std::string& target) { return Client(port_).ask(Client::post(target, "")); }

  // Asks until the answer is 200 again. Before that it is 503, or there is none if rank 0 itself is gone. False after
  // 90 s.
  bool recovers(bool rank_0_is_gone = false) {
    const auto end = std::chrono::steady_clock::now() + 90s;
    for (uint32_t seed = 1; std::chrono::steady_clock::now() < end; ++seed) {
      const Reply reply = ask(seed);
      if (reply.status == 200) return true;
      EXPECT_TRUE(reply.status == 503 || (rank_0_is_gone && reply.status == 0)) << reply.status << reply.body;
      std::this_thread::sleep_for(20ms);
    }
    return false;
  }
  // Waits up to 60 s.
  bool says(const std::string& text) const {
    for (int i = 0; i < 3000; ++i) {
      if (program_.output().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(20ms);
    }
    return false;
  }
  void signal_rank(int rank, int signal) { kill(rank_process(program_.pid(), rank), signal); }

 private:
  // Both ranks have rows of every table.
  std::string plan_file() const {
    const Runtime runtime;
    const Topology topology = Topology::of(2);
    std::map<std::string, ShardingRequest> requests;
    for (const EmbeddingBagConfig& table : test::small_tables()) requests[table.name] = row_wise();
    ShardingPlan plan;
    plan.world_size = plan.local_world_size = 2;
    plan.modules.emplace_back(kCollectionPath,
                              construct_module_sharding_plan(runtime, test::small_tables(), requests, topology));
    std::ofstream(model_.file("plan.json")) << plan.json();
    return model_.file("plan.json");
  }
  std::vector<std::string> command(std::vector<std::string> more, bool own_plan) const {
    test::Arguments all =
        test::words(str_cat(test::tessera_path(), " launch -n 2 --restarts 5 --grace 20 -- ", test::tessera_path(),
                            " serve --model ", model_.link(), " --port ", port_, " --backend tcp --rank-timeout-s 4"));
    all.insert(all.end(), more.begin(), more.end());
    if (own_plan) all.insert(all.end(), {"--plan", plan_file()});
    return all;
  }

  ServedModel model_;
  const int port_;
  Program program_;
};

TEST(ShardedServe, AnswersReloadsAndEnds) {
  ShardedServer server;
  for (uint32_t seed = 1; seed < 30; ++seed) ASSERT_EQ(server.ask(seed).status, 200) << server.program().output();
  server.model().exchange();
  const Reply reload = server.post("/admin/reload");
  EXPECT_EQ(reload.status, 200) << reload.body << server.program().output();
  EXPECT_EQ(json::parse(reload.body)["version"], server.model().predictor(1).model().version);
  for (uint32_t seed = 1; seed < 30; ++seed) ASSERT_EQ(server.ask(seed).status, 200);
  kill(server.program().pid(), SIGTERM);
  EXPECT_EQ(server.program().wait(60), 128 + SIGTERM) << "the launcher's own status";
  EXPECT_THAT(server.program().output(), HasSubstr("\"event\":\"ended\""));
  EXPECT_THAT(server.program().output(), HasSubstr("\"event\":\"shards_unloaded\""));
  EXPECT_THAT(server.program().output(), ::testing::Not(HasSubstr("was killed by signal")));
}

// Every request needs rows of both ranks.
TEST(ShardedServe, AKilledRankIs503UntilItIsBack) {
  ShardedServer server({}, true);
  ASSERT_EQ(server.ask(1).status, 200);
  server.signal_rank(1, SIGKILL);
  ASSERT_TRUE(server.recovers()) << server.program().output();
  EXPECT_THAT(server.program().output(), HasSubstr("starting it again"));
  server.signal_rank(0, SIGKILL);
  ASSERT_TRUE(server.recovers(true)) << server.program().output();
}

TEST(ShardedServe, ByAPlanOfOnesOwn) {
  ShardedServer server({}, true);
  for (uint32_t seed = 1; seed < 10; ++seed) ASSERT_EQ(server.ask(seed).status, 200) << server.program().output();
}

// The model itself reports the lost rank, so no request has to fail first.
TEST(ShardedServe, AKilledRankIsReplacedWhileNobodyAsks) {
  ShardedServer server;
  ASSERT_EQ(server.ask(1).status, 200);
  server.signal_rank(1, SIGKILL);
  EXPECT_TRUE(server.says("\"event\":\"model_lost\"")) << server.program().output();
  EXPECT_TRUE(server.says("\"event\":\"model_loaded\"")) << server.program().output();
  EXPECT_EQ(server.ask(2).status, 200) << server.program().output();
}

TEST(ShardedServe, AStoppedRankIs503WithinTheDeadline) {
  ShardedServer server({"--deadline-ms", "700"});
  ASSERT_TRUE(server.recovers());
  server.signal_rank(1, SIGSTOP);
  Reply reply = server.ask(2);
  // The signal stops one thread after the other, so an answer or two may still come.
  for (int i = 0; i < 50 && reply.status == 200; ++i) reply = server.ask(2);
  ASSERT_EQ(reply.status, 503) << reply.body;
  EXPECT_EQ(reply.headers.at("retry-after"), "1");
  server.signal_rank(1, SIGCONT);
  ASSERT_TRUE(server.recovers()) << server.program().output();
}

TEST(ShardedServe, ADamagedModelEndsAllRanksWithItsName) {
  ServedModel model;
  std::filesystem::remove_all(model.file("first"));
  std::filesystem::create_directory(model.file("first"));
  const test::Finished f = test::run_tessera({"launch", "-n", "2", "--", test::tessera_path(), "serve", "--model",
                                              model.link(), "--port", "0", "--backend", "tcp"},
                                             60);
  EXPECT_NE(f.status, 0);
  EXPECT_THAT(f.output, HasSubstr("tessera serve: "));
  EXPECT_THAT(f.output, HasSubstr(model.link()));
}

}  // namespace
}  // namespace tessera::serve
