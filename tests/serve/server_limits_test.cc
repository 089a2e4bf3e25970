// Misbehaving clients: too much, too slow, too many, not HTTP, gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>

#include "config/test_refusal.h"
#include "running_server.h"
#include "serve/connection.h"

namespace tessera::serve {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;
using nlohmann::json;

const Message& message() {
  static const Message kMessage({{{0.5f, -1.25f}, {3, 999}, {7}, {}}});
  return kMessage;
}
std::string good() { return Client::post(kInfer, message().json()); }

std::string error_of(const Reply& r) {
  if (r.body.empty()) return "no body";
  return json::parse(r.body)["error"];
}

TEST(Limits, Bodies) {
  RunningServer server({.server = {.max_body = 1000}});
  Client declared(server.port());
  const Reply r = declared.ask("POST " + std::string(kInfer) + " HTTP/1.1\r\nContent-Length: 1001\r\n\r\n");
  EXPECT_EQ(r.status, 413);
  EXPECT_EQ(error_of(r), "a request takes at most 1000 bytes");
  Client sent(server.port());  // the response has arrived although nobody read the request
  EXPECT_EQ(sent.ask(Client::post(kInfer, std::string(100000, 'x'))).status, 413);
  EXPECT_TRUE(sent.send("") && sent.is_closed());
  Client chunked(server.port());
  EXPECT_EQ(chunked
                .ask("POST " + std::string(kInfer) + " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
                     std::string(2000, 'x') + "\r\n0\r\n\r\n")
                .status,
            413);
  Client expecting(server.port());
  EXPECT_EQ(expecting.ask("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 100000000\r\n\r\n").status, 413);
  EXPECT_EQ(Client(server.port()).ask(good()).status, 200);
}

TEST(Limits, Headers) {
  RunningServer server({.server = {.max_header = 2000, .max_fields = 20}});
  const Reply bytes = Client(server.port()).ask(Client::get("/v2", "X: " + std::string(3000, 'x') + "\r\n"));
  EXPECT_EQ(bytes.status, 431);
  EXPECT_EQ(error_of(bytes), "a request's header takes at most 2000 bytes");
  std::string many;
  for (int i = 0; i < 20; ++i) many += "X" + std::to_string(i) + ": y\r\n";
  const Reply fields = Client(server.port()).ask(Client::get("/v2", many));
  EXPECT_EQ(fields.status, 431);
  EXPECT_EQ(error_of(fields), "a request's header takes at most 20 fields; this one has 21");
  EXPECT_EQ(Client(server.port()).ask("GET /" + std::string(3000, 'x')).status, 431);
}

TEST(Limits, SlowSenders) {
  RunningServer server({.server = {.read_timeout = 150ms, .idle_timeout = 20s}});
  Client header(server.port()), body(server.port());
  ASSERT_TRUE(header.send(good().substr(0, 20)));
  ASSERT_TRUE(body.send(good().substr(0, good().size() - 3)));
  for (Client* client : {&header, &body}) {
    const Reply r = client->read();
    EXPECT_EQ(r.status, 408);
    EXPECT_EQ(error_of(r), "the request did not arrive within 150 ms");
    EXPECT_TRUE(client->is_closed());
  }
  Client dripping(server.port());  // bytes that keep coming do not extend the deadline
  const std::string request = good();
  size_t sent = 0;
  for (; sent < request.size() && sent < 60 && dripping.send(request.substr(sent, 1)); ++sent) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(dripping.read().status, 408);
}

TEST(Limits, IdleConnectionsAreClosedWithoutAWord) {
  RunningServer server({.server = {.idle_timeout = 100ms}});
  Client silent(server.port());
  EXPECT_TRUE(silent.is_closed());
  Client once(server.port());
  EXPECT_EQ(once.ask(good()).status, 200);
  EXPECT_TRUE(once.is_closed());
}

TEST(Limits, WhatIsNoHttp) {
  RunningServer server;
  for (const char* text : {"hello\r\n\r\n", "GET /v2 HTTP/9.9\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02",
                           "GET /v2 HTTP/1.1\r\nbad header\r\n\r\n", "POST /v2 HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                           "POST /v2 HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"}) {
    Client client(server.port());
    const Reply r = client.ask(text);
    EXPECT_EQ(r.status, 400) << text;
    EXPECT_THAT(error_of(r), HasSubstr("this is not an HTTP/1.1 request")) << text;
    EXPECT_TRUE(client.is_closed());
  }
}

TEST(Limits, ClientsThatGoAwayHarmNobody) {
  RunningServer server;
  for (int i = 0; i < 20; ++i) {
    Client in_header(server.port()), in_body(server.port()), before_answer(server.port());
    in_header.send("POST /v2");
    in_body.send(good().substr(0, good().size() - 3));
    before_answer.send(good());
  }
  EXPECT_EQ(Client(server.port()).ask(good()).status, 200);
  for (int i = 0; i < 1000 && server.metrics().find("tessera_connections 1\n") == std::string::npos; ++i) {
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_THAT(server.metrics(), HasSubstr("tessera_connections 1\n"));
}

TEST(Limits, Connections) {
  RunningServer server({.server = {.max_connections = 2}});
  Client a(server.port()), b(server.port());
  EXPECT_EQ(a.ask(good()).status, 200);
  EXPECT_EQ(b.ask(good()).status, 200);
  Client c(server.port());
  const Reply r = c.read();
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.headers.at("retry-after"), "1");
  EXPECT_EQ(error_of(r), "2 connections are open: ask again later");
  EXPECT_EQ(a.ask(good()).status, 200);
}

// Each of 4 connections has 128 bytes of its own; the rest of 2048 is shared.
RunningOptions small_pool() { return {.server = {.max_connections = 4, .max_body = 2000, .max_bodies = 2048}}; }

TEST(Limits, BytesOfAllRequestsTogether) {
  RunningServer server(small_pool());
  const std::string body = message().json(), padded = body + std::string(1600 - body.size(), ' ');
  const std::string head = "POST " + std::string(kInfer) + " HTTP/1.1\r\nContent-Length: 1600\r\n\r\n";
  Client first(server.port());
  ASSERT_TRUE(first.send(head + padded.substr(0, 1500)));
  Reply second;
  for (int i = 0; i < 1000 && second.status != 503; ++i) {  // until the first one's bytes have been read
    second = Client(server.port()).ask(head + padded);
  }
  EXPECT_EQ(second.status, 503);
  EXPECT_EQ(error_of(second), "requests of 2048 bytes are under way: ask again later");
  EXPECT_EQ(Client(server.port()).ask(Client::post("/v2/x", std::string(128, ' '))).status, 404)
      << "a small request has its room";
  EXPECT_EQ(first.ask(padded.substr(1500)).status, 200);
  EXPECT_EQ(Client(server.port()).ask(head + padded).status, 200) << "bytes are given back";
}

TEST(Limits, BytesThatDoNotArriveCostNothing) {
  RunningServer server(small_pool());
  std::deque<Client> silent;
  for (int i = 0; i < 3; ++i) {
    silent.emplace_back(server.port());
    ASSERT_TRUE(silent.back().send("POST " + std::string(kInfer) + " HTTP/1.1\r\nContent-Length: 2000\r\n\r\n"));
  }
  const std::string body = message().json();
  EXPECT_EQ(Client(server.port()).ask(Client::post(kInfer, body + std::string(1500 - body.size(), ' '))).status, 200);
}

// A line that never ends, before a chunk or after the last one.
TEST(Limits, ChunkExtensionsAndTrailers) {
  RunningServer server({.server = {.max_header = 2000}});
  const std::string head = "POST " + std::string(kInfer) + " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* line : {"5;x=", "0\r\nX: ", "0\r\nX: y\r\nZ: "}) {
    Client client(server.port());
    const Reply r = client.ask(head + line + std::string(40000, 'x'));
    EXPECT_EQ(r.status, 431) << line;
    EXPECT_EQ(error_of(r), "the line before a chunk, or the trailer, takes at most 2000 bytes");
    EXPECT_TRUE(client.is_closed());
  }
  const std::string body = message().json();
  char size[16];
  std::snprintf(size, sizeof(size), "%zx", body.size());
  EXPECT_EQ(Client(server.port())
                .ask(head + size + ";x=" + std::string(1000, 'y') + "\r\n" + body +
                     "\r\n0\r\nX: " + std::string(1000, 'y') + "\r\n\r\n")
                .status,
            200)
      << "those of ordinary length are passed over";
}

TEST(Limits, BytesCountUntilTheAnswer) {
  const std::string body = message().json();
  RunningServer server(
      {.server = {.max_connections = 1000000, .max_body = 2 * body.size(), .max_bodies = 2 * body.size() - 1}});
  server.model().hold();
  Client first(server.port()), second(server.port());
  ASSERT_TRUE(first.send(Client::post(kInfer, body)));
  ASSERT_TRUE(server.model().wait_for_calls(1));
  EXPECT_THAT(error_of(second.ask(Client::post(kInfer, body))), HasSubstr("under way: ask again later"));
  server.model().let_go();
  EXPECT_EQ(first.read().status, 200);
  EXPECT_EQ(Client(server.port()).ask(Client::post(kInfer, body)).status, 200);
}

// The server's end meets a connection whose last other reference disappears at that moment, and destroys it.
TEST(Limits, AnEndingConnectionMayBeTheLastReference) {
  struct Last : Connection {
    explicit Last(Shared& shared) : Connection(shared) {}
    void start(bool) override {}
    void end_soon() override { other_reference->reset(); }
    std::shared_ptr<Connection>* other_reference = nullptr;
  };
  Metrics metrics;
  Log log(Level::kError, -1);
  const ServerOptions options;
  Shared shared(options, metrics, log);
  auto last = std::make_shared<Last>(shared);
  std::shared_ptr<Connection> other = last;
  last->other_reference = &other;
  last.reset();
  EXPECT_EQ(shared.connections(), 1u);
  shared.end_all();
  EXPECT_EQ(shared.connections(), 0u);
}

TEST(Limits, WhereTheServerCannotListen) {
  RunningServer server;
  Metrics metrics;
  Log log(Level::kError, -1);
  const auto refused = [&](const ServerOptions& options) -> std::string {
    return test::refusal([&] { Server other(options, metrics, log); }, "accepted");
  };
  EXPECT_EQ(refused({.port = server.port()}), "cannot listen at 127.0.0.1:" + std::to_string(server.port()) +
                                                  ": Address already in use; choose another --port");
  EXPECT_EQ(refused({.host = "nowhere", .port = 0}),
            "host \"nowhere\" is not a numeric address such as 127.0.0.1, 0.0.0.0 or ::");
}

}  // namespace
}  // namespace tessera::serve
