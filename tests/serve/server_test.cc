// The server over real sockets: answers, order, deadlines, the end.
#include "serve/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>

#include "config/test_directory.h"
#include "config/test_refusal.h"
#include "running_server.h"

namespace tessera::serve {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;
using nlohmann::json;

std::vector<float> scores_of(const Reply& r) {
  if (r.status != 200) {
    ADD_FAILURE() << r.status << " " << r.body;
    return {};
  }
  return json::parse(r.body)["outputs"][0]["data"].get<std::vector<float>>();
}

TEST(Server, AnswersOnOneConnection) {
  RunningServer server;
  Client client(server.port());
  const Message message(kSamples);
  for (int i = 0; i < 3; ++i) {
    const Reply r = client.ask(Client::post(kInfer, message.json()));
    EXPECT_EQ(scores_of(r), message.scores());
    EXPECT_EQ(r.headers.at("content-type"), "application/json");
  }
  size_t n = 0;
  const std::string body = message.binary(&n);
  const Reply r =
      client.ask(Client::post(kInfer, body, "inference-header-content-length: " + std::to_string(n) + "\r\n"));
  ASSERT_EQ(r.status, 200) << r.body;
  const size_t head = std::stoul(r.headers.at("inference-header-content-length"));
  ASSERT_EQ(r.body.size(), head + 8);
  std::vector<float> scores(2);
  std::memcpy(scores.data(), r.body.data() + head, 8);
  EXPECT_EQ(scores, message.scores());
  const Reply wrong = client.ask(Client::get(kInfer));
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  EXPECT_THAT(server.metrics(), HasSubstr("tessera_request_seconds_count 4\n"));
}

TEST(Server, HttpDetails) {
  RunningServer server;
  Client old(server.port());
  EXPECT_EQ(old.ask("GET /v2 HTTP/1.0\r\n\r\n").status, 200);
  EXPECT_TRUE(old.is_closed());
  Client closing(server.port());
  EXPECT_EQ(closing.ask(Client::get("/v2", "Connection: close\r\n")).headers.at("connection"), "close");
  EXPECT_TRUE(closing.is_closed());
  Client head(server.port());
  for (const char* path : {"/v2", "/v2/health/live", "/v2/health/ready"}) {
    ASSERT_TRUE(head.send(str_cat("HEAD ", path, " HTTP/1.1\r\nHost: x\r\n\r\n")));
    const auto answer = head.read(false);
    EXPECT_EQ(answer.status, 200) << path;
    EXPECT_GT(std::stoi(answer.headers.at("content-length")), 0) << "what GET would have sent";
  }
  EXPECT_EQ(head.ask(Client::get("/v2")).status, 200) << "no body came with HEAD's response";
  Client patient(server.port());
  const std::string body = Message(kSamples).json();
  ASSERT_TRUE(patient.send("POST " + std::string(kInfer) + " HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: " +
                           std::to_string(body.size()) + "\r\n\r\n"));
  EXPECT_EQ(patient.read(false).status, 100);
  EXPECT_EQ(patient.ask(body).status, 200);
  Client chunked(server.port());
  char size[16];
  std::snprintf(size, sizeof(size), "%zx", body.size());
  EXPECT_EQ(chunked
                .ask("POST " + std::string(kInfer) + " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + size + "\r\n" +
                     body + "\r\n0\r\n\r\n")
                .status,
            200);
}

// If a transfer encoding is not understood, the end of the request is unknown.
TEST(Server, OtherTransferEncodingsEndTheConnection) {
  RunningServer server;
  for (const char* coding : {"gzip", "gzip, chunked", "identity", "chunked, chunked", "xchunked", "chunked;q=1"}) {
    Client client(server.port());
    const Reply reply = client.ask(str_cat("POST ", kInfer, " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ", coding,
                                           "\r\n\r\n0\r\n\r\nGET /v2 HTTP/1.1\r\n\r\n"));
    EXPECT_TRUE(reply.status == 501 || reply.status == 400) << coding << " " << reply.status;
    EXPECT_TRUE(client.is_closed()) << coding << ": what follows is not a request";
  }
  Client twice(server.port());
  EXPECT_EQ(
      twice.ask(str_cat("POST ", kInfer, " HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n"))
                  .status /
              100 >=
          4,
      true);
  Client shouts(server.port());
  EXPECT_EQ(shouts.ask(str_cat("POST ", kInfer, " HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"))
                .status,
            400)
      << "it was read, and is not a request of the model";
}

// A request parsed by another thread gets the same answer.
TEST(Server, LargeRequestsAreAnsweredBesideSmallOnes) {
  RunningServer server;
  Client large(server.port()), small(server.port());
  std::string body = Message(kSamples).json();
  const std::string little = body;
  body.resize(size_t{1} << 20, ' ');
  const std::string bad = std::string(size_t{1} << 20, ' ') + "x";
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(large.send(Client::post(kInfer, body) + Client::post(kInfer, bad) + Client::post(kInfer, body)));
    EXPECT_EQ(scores_of(small.ask(Client::post(kInfer, little))), Message(kSamples).scores());
    EXPECT_EQ(scores_of(large.read()), Message(kSamples).scores());
    EXPECT_EQ(large.read().status, 400);
    EXPECT_EQ(scores_of(large.read()), Message(kSamples).scores());
  }
  server.model().hold();
  ASSERT_TRUE(large.send(Client::post(kInfer, body)));
  ASSERT_TRUE(server.model().wait_for_calls(10));
  server.model().let_go();
  EXPECT_EQ(scores_of(large.read()), Message(kSamples).scores());
}

TEST(Server, PipelinedRequestsAreAnsweredInOrder) {
  RunningServer server;
  Client client(server.port());
  std::string all;
  for (int i = 0; i < 50; ++i) {
    all += Client::post(kInfer, Message({{{0.01f * static_cast<float>(i), 1}, {i}, {}, {}}}).json());
  }
  ASSERT_TRUE(client.send(all));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(scores_of(client.read()), Message({{{0.01f * static_cast<float>(i), 1}, {i}, {}, {}}}).scores()) << i;
  }
}

// A client that sends a thousand requests at once still has only one in the queue.
TEST(Server, AConnectionThatPipelinesDoesNotDelayOthers) {
  RunningServer server({.batcher = {.max_batch = 1}});
  server.model().hold();
  Client greedy(server.port()), modest(server.port());
  const std::string one = Client::post(kInfer, Message({kSamples[0]}).json());
  std::string all;
  for (int i = 0; i < 1000; ++i) all += one;
  ASSERT_TRUE(greedy.send(all));
  ASSERT_TRUE(server.model().wait_for_calls(1));
  ASSERT_TRUE(modest.send(one));
  for (int i = 0; i < 2000 && server.metrics().find("tessera_queue_requests 1\n") == std::string::npos; ++i) {
    std::this_thread::sleep_for(2ms);
  }
  server.model().let_go();
  EXPECT_EQ(modest.read().status, 200);
  EXPECT_LT(server.model().calls(), 1000) << "before the greedy one had all its answers";
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(greedy.read().status, 200) << i;
}

TEST(Server, ManyClientsGetTheirOwnAnswers) {
  RunningServer server({.server = {.threads = 2}, .batcher = {.max_batch = 16, .max_wait = 100us, .workers = 2}});
  std::atomic<int> wrong{0};
  std::vector<std::thread> clients;
  for (int t = 0; t < 16; ++t) {
    clients.emplace_back([&, t] {
      Client client(server.port());
      for (int i = 0; i < 50; ++i) {
        const Message message({{{0.1f * static_cast<float>(t), 0.5f}, {t * 50 + i}, {i}, {}}});
        const Reply r = client.ask(Client::post(kInfer, message.json()));
        wrong += r.status != 200 || scores_of(r) != message.scores();
      }
    });
  }
  for (std::thread& c : clients) c.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Server, ADeadlineThatPassesIs503AndTheConnectionStaysGood) {
  RunningServer server({.service = {.deadline = 100ms}});
  server.model().hold();
  Client client(server.port());
  const Message message(kSamples);
  const Reply late = client.ask(Client::post(kInfer, message.json()));
  EXPECT_EQ(late.status, 503);
  EXPECT_EQ(late.headers.at("retry-after"), "1");
  EXPECT_THAT(late.body, HasSubstr("the deadline passed"));
  EXPECT_EQ(client.ask(Client::get("/v2/health/live")).status, 200);
  server.model().let_go();
  Reply good;
  for (int i = 0; i < 100 && good.status != 200; ++i) good = client.ask(Client::post(kInfer, message.json()));
  EXPECT_EQ(scores_of(good), message.scores()) << "the late answer went to nobody";
  EXPECT_THAT(server.metrics(), HasSubstr("tessera_errors_total{kind=\"deadline\"}"));
}

TEST(Server, EndingAnswersWhatIsUnderWayAndClosesTheRest) {
  RunningServer server;
  server.model().hold();
  Client busy(server.port()), idle(server.port()), half(server.port());
  const Message message(kSamples);
  EXPECT_EQ(idle.ask(Client::get("/v2/health/live")).status, 200);
  const std::string request = Client::post(kInfer, message.json());
  ASSERT_TRUE(half.send(request.substr(0, 30)));
  ASSERT_TRUE(busy.send(request));
  ASSERT_TRUE(server.model().wait_for_calls(1));
  std::thread ending([&] { server.end_and_wait(); });
  EXPECT_TRUE(idle.is_closed());
  EXPECT_FALSE(Client(server.port()).connected()) << "nobody new";
  ASSERT_TRUE(half.send(request.substr(30)));
  server.model().let_go();
  for (Client* client : {&busy, &half}) {
    const Reply r = client->read();
    EXPECT_EQ(scores_of(r), message.scores());
    EXPECT_EQ(r.headers.at("connection"), "close");
    EXPECT_TRUE(client->is_closed());
  }
  ending.join();
}

// Connections end in their own threads while the ending server calls those that are left.
TEST(Server, EndingWhileConnectionsClose) {
  for (int round = 0; round < 20; ++round) {
    RunningServer server({.server = {.threads = 3}});
    std::deque<Client> clients;
    for (int i = 0; i < 30; ++i) clients.emplace_back(server.port());
    for (Client& client : clients) EXPECT_TRUE(client.send(Client::get("/v2", "Connection: close\r\n")));
    server.end_and_wait();
    for (Client& client : clients) EXPECT_EQ(client.read().status, 200);
  }
}

// Clients ask as fast as they can while the server ends. A response that was begun is completed; other connections
// close before the first byte.
void end_under_load(int rounds) {
  const Message message(kSamples);
  const std::string request = Client::post(kInfer, message.json());
  for (int round = 0; round < rounds; ++round) {
    RunningServer server({.server = {.threads = 2}});
    std::atomic<int> wrong{0}, answered{0};
    std::vector<std::thread> clients;
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back([&] {
        for (Client client(server.port()); client.send(request); ++answered) {
          const Reply reply = client.read();
          if (reply.status == 0) return;
          wrong += reply.status != 200 || scores_of(reply) != message.scores();
          if (reply.headers.contains("connection") && reply.headers.at("connection") == "close") return;
        }
      });
    }
    while (answered < 1 + round % 40) std::this_thread::yield();
    server.end_and_wait();
    for (std::thread& client : clients) client.join();
    ASSERT_EQ(wrong, 0) << "round " << round;
  }
}
TEST(Server, EndingUnderLoad) { end_under_load(20); }
TEST(Long, EndingUnderLoad) { end_under_load(500); }

TEST(Server, AdminCallsComeFromThisHostAlone) {
  RunningServer server;
  Client client(server.port());
  EXPECT_EQ(client.ask(Client::post("/admin/reload", "")).status, 200);
  for (const char* header :
       {"X-Forwarded-For: 10.0.0.1", "Origin: http://evil.example", "X-Real-IP: 10.0.0.1", "x-real-ip: 10.0.0.1",
        "Via: 1.1 proxy", "Forwarded: for=10.0.0.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: a.example",
        "X-Forwarded: 10.0.0.1", "CF-Connecting-IP: 10.0.0.1", "True-Client-IP: 10.0.0.1",
        "X-Envoy-External-Address: 10.0.0.1", "X-Original-Forwarded-For: 10.0.0.1"})
    EXPECT_EQ(client.ask(Client::post("/admin/reload", "", str_cat(header, "\r\n"))).status, 403) << header;
  EXPECT_EQ(client.ask(Client::post("/admin/reload", "", "X-Request-Id: 7\r\nUser-Agent: curl\r\n")).status, 200);
}

TEST(Server, Tls) {
  const test::TestDirectory folder;
  const std::string cert = folder.file("cert.pem"), key = folder.file("key.pem"), out = folder.file("out");
  const auto run = [](const std::string& command) { return std::system(command.c_str()) == 0; };
  if (!run("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext "
           "subjectAltName=IP:127.0.0.1 -keyout " +
           key + " -out " + cert + " 2>/dev/null") ||
      !run("curl --version >/dev/null 2>&1")) {
    GTEST_SKIP() << "openssl or curl is not installed";
  }
  const std::string request = folder.write("request", Message(kSamples).json());
  {
    RunningServer server({.server = {.tls_cert = cert, .tls_key = key}});
    const std::string url = server.server().url();
    EXPECT_THAT(url, HasSubstr("https://127.0.0.1:"));
    ASSERT_TRUE(run("curl -sS --max-time 20 --cacert " + cert + " --data-binary @" + request + " " + url + kInfer +
                    " -o " + out));
    std::ifstream in(out);
    EXPECT_EQ(json::parse(in)["outputs"][0]["data"].get<std::vector<float>>(), Message(kSamples).scores());
    Client plain(server.port());
    EXPECT_EQ(plain.ask(Client::get("/v2")).status, 0) << "plain HTTP is not spoken here";
    EXPECT_TRUE(run("curl -sS --max-time 20 --cacert " + cert + " " + url + "/v2 " + url + "/metrics >/dev/null"));
  }
  const std::string bad = folder.write("bad.pem", "no certificate\n");
  Metrics metrics;
  Log log(Level::kError, -1);
  const auto refused = [&](const std::string& c, const std::string& k) -> std::string {
    return test::refusal([&] { Server server({.port = 0, .tls_cert = c, .tls_key = k}, metrics, log); }, "accepted");
  };
  EXPECT_THAT(refused(bad, key), HasSubstr("cannot use the TLS certificate"));
  EXPECT_THAT(refused(folder.file("absent.pem"), key), HasSubstr("absent.pem"));
  EXPECT_THAT(refused(cert, bad), HasSubstr("cannot use the TLS key"));
}

}  // namespace
}  // namespace tessera::serve
