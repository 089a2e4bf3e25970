// `tessera serve` as a program: every answer is what the model predicts in this process, before, during and after
// reloads; signals; wrong use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>

#include "served_model.h"

namespace tessera::serve {
namespace {

using test::operator+;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using nlohmann::json;
using test::OwnInput;
using test::Program;
using test::succeed;

std::vector<std::string> command(const ServedModel& model, std::vector<std::string> more = {}) {
  return test::Arguments{test::tessera_path(), "serve", "--model", model.link(), "--port", "0"} + more;
}

// Clients that ask and check until they are told to stop.
class Clients {
 public:
  Clients(ServedModel& model, int port, int n) : model_(model), port_(port) {
    for (int i = 0; i < n; ++i) threads_.emplace_back([this, i] { ask(static_cast<uint32_t>(i)); });
  }
  ~Clients() { stop(); }
  void stop() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  // Waits until there are this many answers in all; false after 60 s.
  bool wait_for(int answers) const {
    for (int i = 0; i < 6000 && answers_ < answers; ++i) std::this_thread::sleep_for(10ms);
    return answers_ >= answers;
  }
  int answers() const { return answers_; }
  std::string wrong() {
    const std::lock_guard lock(mutex_);
    return wrong_;
  }

 private:
  void ask(uint32_t seed) {
    Client client(port_);
    while (!stop_) {
      OwnInput input(model_.predictor().model(), 1 + seed % 5, seed);
      seed += 100;
      const Reply reply = client.ask(Client::post(kSmall, json_request(model_.predictor().model(), input)));
      if (const std::string wrong = model_.wrong_with(reply, input); !wrong.empty()) {
        const std::lock_guard lock(mutex_);
        wrong_ = wrong;
        return;
      }
      ++answers_;
    }
  }

  ServedModel& model_;
  const int port_;
  std::atomic<bool> stop_{false};
  std::atomic<int> answers_{0};
  std::mutex mutex_;
  std::string wrong_;
  std::vector<std::thread> threads_;
};

// tests/integration/plugins/reads_only.cc: a kernel that refuses any other lookup.
TEST(ServeProgram, RequestsInsertNothing) {
  ServedModel model;
  Program program(command(model), [] { setenv("TESSERA_PLUGIN_PATH", TESSERA_READS_ONLY, 1); });
  Client client(port_of(program));
  OwnInput input(model.predictor().model(), 2, 7);
  const Reply reply = client.ask(Client::post(kSmall, json_request(model.predictor().model(), input)));
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_THAT(program.output(), HasSubstr("test.reads_only: nothing is inserted"));
}

TEST(ServeProgram, EveryAnswerIsTheModelsAndModelsAreExchangedInPassing) {
  ServedModel model;
  Program program(command(model, {"--max-batch", "16", "--workers", "2", "--deadline-ms", "30000"}));
  const int port = port_of(program);
  ASSERT_NE(port, 0);
  Clients clients(model, port, 6);
  ASSERT_TRUE(clients.wait_for(200)) << clients.wrong();
  model.exchange();
  ASSERT_EQ(kill(program.pid(), SIGHUP), 0);
  const std::string second = model.predictor(1).model().version;
  for (int i = 0; i < 1000 && program.output().find("\"event\":\"model_loaded\"") == std::string::npos; ++i) {
    std::this_thread::sleep_for(10ms);
  }
  ASSERT_TRUE(clients.wait_for(clients.answers() + 100)) << clients.wrong();
  EXPECT_EQ(json::parse(Client(port).ask(Client::get("/v2/models/small")).body)["versions"], json({second}));
  EXPECT_EQ(json::parse(Client(port).ask(Client::post("/admin/reload", "")).body)["version"], second);
  clients.stop();
  EXPECT_EQ(clients.wrong(), "");
  ASSERT_EQ(kill(program.pid(), SIGTERM), 0);
  EXPECT_EQ(program.wait(30), 0);
  EXPECT_THAT(program.output(), HasSubstr("\"event\":\"ended\""));
}

TEST(ServeProgram, BadSamplesAreNamedAndADamagedSuccessorIsNotServed) {
  ServedModel model;
  Program program(command(model, {"--name", "shown", "--log-level", "debug"}));
  const int port = port_of(program);
  ASSERT_NE(port, 0);
  OwnInput input(model.predictor().model(), 3, 1);
  input.values[2] = {1, 999};
  input.lengths[2] = {0, 1, 1};
  Client client(port);
  const Reply bad = client.ask(Client::post("/v2/models/shown/infer", json_request(model.predictor().model(), input)));
  EXPECT_EQ(bad.status, 400);
  EXPECT_THAT(bad.body, HasSubstr("sample 2: id 999"));
  EXPECT_THAT(client.ask(Client::get("/metrics")).body, HasSubstr(",table=\"user\"} 1\n"));
  std::filesystem::remove_all(model.file("second"));
  std::filesystem::create_directory(model.file("second"));
  model.exchange();
  const Reply reload = client.ask(Client::post("/admin/reload", ""));
  EXPECT_EQ(reload.status, 500);
  EXPECT_THAT(reload.body, HasSubstr("error"));
  EXPECT_EQ(client.ask(Client::get("/v2/models/shown/ready")).status, 200);
  ASSERT_EQ(kill(program.pid(), SIGINT), 0);
  EXPECT_EQ(program.wait(30), 0);
}

TEST(ServeProgram, WrongUseIsOneSentence) {
  ServedModel model;
  Program program(command(model));
  const int port = port_of(program);
  const std::string here = model.link();
  const std::string no_pem = model.file("no.pem");
  std::ofstream(no_pem) << "x\n";
  std::filesystem::permissions(no_pem, std::filesystem::perms(0600));
  const std::string seen = model.file("seen");
  std::ofstream(seen) << "0123456789abcdef\n";
  std::filesystem::permissions(seen, std::filesystem::perms(0644));
  const std::string plan = model.file("plan.json");
  std::ofstream(plan) << R"({"tessera_plan": 1, "world_size": 2, "local_world_size": 2, "compute_device": "cpu",
                             "modules": []})";
  struct Case {
    std::vector<std::string> args;
    std::string sentence;
  };
  const std::vector<Case> cases = {
      {{}, "--model DIR or --follow DIR is needed"},
      {{"--model", model.file("absent")}, "absent"},
      {{"--model", here, "--port", "70000"}, "--port takes a number from 0 to 65535, not 70000"},
      {{"--model", here, "--port", "x"}, "'x'"},
      {{"--model", here, "--port", std::to_string(port)}, "Address already in use; choose another --port"},
      {{"--model", here, "--host", "nowhere.example"}, "is not a numeric address"},
      {{"--model", here, "--max-batch", "0"}, "--max-batch takes a number from 1 to 1048576, not 0"},
      {{"--model", here, "--log-level", "loud"}, "--log-level takes error, warning, info or debug, not \"loud\""},
      {{"--model", here, "--tls-cert", no_pem}, "--tls-cert and --tls-key are given together or not at all"},
      {{"--model", here, "--port", "0", "--tls-cert", no_pem, "--tls-key", no_pem}, "no.pem"},
      {{"--model", here, "--plan", model.file("absent")}, "--plan: cannot read"},
      {{"--model", here, "--plan", plan}, "is for 2 ranks, but this job has 1: make a new plan"},
      {{"--model", here, "--colour", "red"}, "see tessera serve --help"},
      {{"--model", here, "--model", "b=" + here, "--name", "c"}, "give each its name as --model NAME=DIR"},
      {{"--model", "a=" + here, "--name", "c"}, "both name the model"},
      {{"--model", "a="}, "--model takes DIR or NAME=DIR, not \"a=\""},
      {{"--model", "a=" + here, "--model", "a=" + here, "--port", "0"},
       "two models have the name \"a\" and the version"},
      {{"--model", here, "--token-file", model.file("absent")}, "--token-file: cannot read a line of"},
      {{"--model", here, "--token-file", no_pem}, "must be a token of 16 to 4096 letters"},
      {{"--model", here, "--token-file", seen}, "everybody on this host can read or change"},
  };
  for (auto [args, sentence] : cases) {
    args.insert(args.begin(), "serve");
    const test::Finished f = test::run_tessera(args, 60);
    EXPECT_EQ(f.status, sentence.starts_with("Address") ? 1 : 2) << sentence;
    EXPECT_THAT(f.output, HasSubstr(sentence));
    EXPECT_EQ(std::count(f.output.begin(), f.output.end(), '\n'), 1) << f.output;
  }
  EXPECT_THAT(succeed({"serve", "--help"}), HasSubstr("--max-wait-us"));
}

TEST(ServeProgram, SeveralModelsBehindAToken) {
  ServedModel model;
  const std::string token = "0123456789abcdef~0123456789";
  std::ofstream(model.file("token")) << token << "\n";
  std::filesystem::permissions(model.file("token"), std::filesystem::perms(0600));
  Program program({test::tessera_path(), "serve", "--model", "small=" + model.file("first"), "--model",
                   "small=" + model.file("second"), "--model", "other=" + model.file("first"), "--port", "0",
                   "--token-file", model.file("token"), "--log-level", "debug"});
  const int port = port_of(program);
  ASSERT_NE(port, 0);
  Client client(port);
  OwnInput input(model.predictor().model(), 3, 1);
  const std::string body = json_request(model.predictor().model(), input),
                    shows = "Authorization: Bearer " + token + "\r\n";
  const Reply refused = client.ask(Client::post(kSmall, body));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(client.ask(Client::get("/v2/health/ready")).status, 200);
  const std::string first = model.predictor(0).model().version, second = model.predictor(1).model().version;
  for (const auto& [target, version] : {std::pair<std::string, std::string>{kSmall, second},
                                        {"/v2/models/small/versions/" + first + "/infer", first},
                                        {"/v2/models/small/versions/" + second + "/infer", second},
                                        {"/v2/models/other/infer", first}}) {
    const Reply reply = client.ask(Client::post(target, body, shows));
    EXPECT_EQ(model.wrong_with(reply, input), "") << target;
    EXPECT_EQ(json::parse(reply.body)["model_version"], version) << target;
  }
  EXPECT_EQ(client.ask(Client::post("/v2/repository/models/other/unload", "", shows)).status, 200);
  EXPECT_EQ(client.ask(Client::post("/v2/models/other/infer", body, shows)).status, 503);
  const json index = json::parse(client.ask(Client::post("/v2/repository/index", "", shows)).body);
  ASSERT_EQ(index.size(), 3u);
  EXPECT_EQ(index[2]["state"], "UNAVAILABLE");
  ASSERT_EQ(kill(program.pid(), SIGTERM), 0);
  EXPECT_EQ(program.wait(30), 0);
  EXPECT_THAT(program.output(),
              HasSubstr("serving small (version " + first + "), small (version " + second + "), other"));
  EXPECT_THAT(program.output(), ::testing::Not(HasSubstr(token)));
}

// Provides sockets, a file and the expected answer for external tools.
struct Outside {
  explicit Outside(ServedModel& model) : input(model.predictor().model(), 2, 7) {
    std::ofstream(model.file("request.json")) << json_request(model.predictor().model(), input);
    const json outputs = {{{"name", "score"}, {"data", test::scores_of(model.predictor(), input.view())}}};
    std::ofstream(model.file("response.json")) << json{{"outputs", outputs}}.dump();
  }
  OwnInput input;
};

int64_t resident_bytes(int port) {
  const std::string text = Client(port).ask(Client::get("/metrics", "Connection: close\r\n")).body;
  const std::string name = "\nprocess_resident_memory_bytes ";
  const size_t at = text.find(name);
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + name.size());
}

// Load from wrk for `seconds`: no answer is wrong or lost, and memory does not grow.
void load(int connections, int seconds) {
  if (std::system("wrk --version >/dev/null 2>&1; [ $? -ne 127 ]") != 0) GTEST_SKIP() << "wrk is not installed";
  ServedModel model;
  const Outside outside(model);
  Program program(command(model, {"--deadline-ms", "60000", "--log-level", "warning"}));
  const int port = port_of(program);
  ASSERT_NE(port, 0);
  const auto run = [&](int for_seconds) {
    const std::string url = str_cat("http://127.0.0.1:", port, kSmall);
    return test::run_program(
        {"/usr/bin/env", "wrk", "-t2", str_cat("-c", connections), str_cat("-d", for_seconds, "s"), "--latency",
         "--timeout", "60s", "-s", std::string(TESSERA_SOURCE_DIR) + "/tests/serve/load.lua", url, "--",
         model.file("request.json"), model.file("response.json")},
        for_seconds + 120);
  };
  run(1);  // warm-up
  const int64_t before = resident_bytes(port);
  const test::Finished f = run(seconds);
  std::cout << f.output;
  EXPECT_EQ(f.status, 0);
  EXPECT_THAT(f.output, HasSubstr("wrong: 0, lost: 0"));
  EXPECT_THAT(f.output, ::testing::Not(HasSubstr("answers: 0,")));
  EXPECT_GT(before, 0);
#ifndef TESSERA_TEST_SANITIZE
  EXPECT_LT(resident_bytes(port) - before, 16 << 20) << "bytes before: " << before;
#endif
  ASSERT_EQ(kill(program.pid(), SIGTERM), 0);
  EXPECT_EQ(program.wait(60), 0);
}

TEST(ServeProgram, Load) { load(16, 2); }
TEST(Long, LoadOfAMinute) { load(64, 60); }

TEST(Long, TritonClient) {
  ServedModel model;
  const std::string venv = model.file("venv");
  if (std::system(("python3 -m venv " + venv + " >/dev/null 2>&1 && timeout 240 " + venv +
                   "/bin/pip install -q --retries 1 'tritonclient[http,grpc]' >/dev/null 2>&1")
                      .c_str()) != 0) {
    GTEST_SKIP() << "tritonclient cannot be installed (no network?)";
  }
  const Outside outside(model);
  std::vector<std::string> options{"--deadline-ms", "60000"};
#ifdef TESSERA_GRPC
  options.insert(options.end(), {"--endpoint", "grpc?port=0"});
#endif
  Program program(command(model, options));
  const int port = port_of(program);
  ASSERT_NE(port, 0);
  std::vector<std::string> client{
      venv + "/bin/python",        std::string(TESSERA_SOURCE_DIR) + "/tests/serve/triton_client.py",
      str_cat("127.0.0.1:", port), "small",
      model.file("request.json"),  model.file("response.json")};
#ifdef TESSERA_GRPC
  client.push_back(grpc_address_of(program));
#endif
  const std::string f = succeed(test::run_program(client, 120));
#ifdef TESSERA_GRPC
  EXPECT_THAT(f, HasSubstr("tritonclient.grpc: every answer is right"));
#endif
  EXPECT_THAT(f, HasSubstr("tritonclient: every answer is right"));
}

}  // namespace
}  // namespace tessera::serve
