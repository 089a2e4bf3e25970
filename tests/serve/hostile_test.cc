// `tessera serve` with hostile clients and circumstances: its memory stays within bounds, and an honest client gets its
// answers.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <deque>
#include <fstream>

#include "served_model.h"

namespace tessera::serve {
namespace {

using test::operator+;
using nlohmann::json;
using test::OwnInput;
using test::Program;
using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;
#ifdef TESSERA_TEST_SANITIZE
constexpr int64_t kFreed = 256 * kMiB;  // memory that the sanitizer keeps
#else
constexpr int64_t kFreed = 0;
#endif

class Hostile : public ::testing::Test {
 protected:
  void start(std::vector<std::string> more = {}, const std::function<void()>& in_child = {}) {
    program_.emplace(test::Arguments{test::tessera_path(), "serve", "--model", model_.link(), "--port", "0",
                                     "--read-timeout-ms", "60000"} +
                         more,
                     in_child);
    port_ = port_of(*program_);
    ASSERT_NE(port_, 0);
    EXPECT_EQ(honest(), "");
  }
  std::string request() { return json_request(model_.predictor().model(), input_); }
  // Checks the answer to an honest client's request padded to `bytes`; "" if it is right.
  std::string honest(size_t bytes = 0) {
    std::string body = request();
    body.resize(std::max(bytes, body.size()), ' ');
    return model_.wrong_with(Client(port_).ask(Client::post(kSmall, body)), input_);
  }
  // The server's peak memory.
  int64_t peak_bytes() const {
    std::ifstream in(str_cat("/proc/", program_->pid(), "/status"));
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("VmHWM:")) return std::atoll(line.c_str() + 6) * 1024;
    }
    ADD_FAILURE() << "the server is gone; it wrote:\n" << program_->output();
    return 0;
  }
  void end() {
    ASSERT_EQ(kill(program_->pid(), SIGTERM), 0);
    EXPECT_EQ(program_->wait(30), 0);
  }

  ServedModel model_;
  OwnInput input_{model_.predictor().model(), 2, 7};
  std::optional<Program> program_;
  int port_ = 0;
};

std::string chunked() { return str_cat("POST ", kSmall, " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"); }
std::string announcing(int64_t bytes) {
  return str_cat("POST ", kSmall, " HTTP/1.1\r\nContent-Length: ", bytes, "\r\n\r\n");
}

TEST_F(Hostile, LinesWithoutEnd) {
  start();
  const int64_t before = peak_bytes();
  const std::string piece(kMiB, 'x');
  for (const std::string& begin :
       {chunked() + "5;x=", chunked() + "0\r\nX: ", std::string("GET /v2 HTTP/1.1\r\nX: ")}) {
    Client client(port_);
    ASSERT_TRUE(client.send(begin));
    for (int i = 0; i < 128 && client.send(piece); ++i) {
    }
    EXPECT_EQ(client.read().status, 431);
  }
  EXPECT_LT(peak_bytes() - before, 32 * kMiB);
  EXPECT_EQ(honest(), "");
  end();
}

TEST_F(Hostile, ConnectionsThatAnnounceAndStaySilent) {
  start();
  const int64_t before = peak_bytes();
  std::deque<Client> silent;
  for (int i = 0; i < 200; ++i) {
    silent.emplace_back(port_);
    ASSERT_TRUE(silent.back().send(announcing(16 * kMiB)));
  }
  EXPECT_EQ(honest(), "");
  EXPECT_EQ(honest(4 * kMiB), "") << "nor a large one";
  EXPECT_LT(peak_bytes() - before, 64 * kMiB);
}

// 240 MiB that are never completed: 12 connections fill the shared pool, but not the share of each connection.
TEST_F(Hostile, ConnectionsThatSendAlmostAll) {
  start();
  const int64_t before = peak_bytes();
  const std::string part(15 * kMiB, ' ');
  std::deque<Client> senders;
  for (int i = 0; i < 16; ++i) {
    senders.emplace_back(port_);
    senders.back().send(announcing(16 * kMiB) + part);
  }
  int large = 0;
  for (int i = 0; i < 50 && large != 503; ++i) {  // until their bytes have been read
    large = Client(port_).ask(Client::post(kSmall, part)).status;
  }
  EXPECT_EQ(large, 503);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(honest(), "");
  EXPECT_LT(peak_bytes() - before, 768 * kMiB);
  senders.clear();
  std::string later;
  for (int i = 0; i < 500 && !(later = honest(4 * kMiB)).empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(later, "") << "their bytes come back";
}

// More connections than the server accepts, and more than it could have open files for.
TEST_F(Hostile, MoreConnectionsThanOpenFiles) {
  const rlimit limit{64, 400};  // the server raises the first
  start({"--max-connections", "250"}, [&] { setrlimit(RLIMIT_NOFILE, &limit); });
  Client first(port_);
  EXPECT_EQ(first.ask(Client::get("/v2/health/live")).status, 200);
  std::deque<Client> many;
  for (int i = 0; i < 600; ++i) many.emplace_back(port_);
  int open = 0;
  for (Client& client : many) open += client.ask(Client::get("/v2/health/live")).status == 200;
  EXPECT_GT(open, 200);
  EXPECT_LE(open, 250);
  model_.exchange();
  const Reply reload = first.ask(Client::post("/admin/reload", ""));
  EXPECT_EQ(reload.status, 200) << reload.body;
  EXPECT_EQ(model_.wrong_with(first.ask(Client::post(kSmall, request())), input_), "");
  many.clear();
  end();
}

TEST_F(Hostile, MoreConnectionsThanTheSystemAllowsAreRefusedAtTheStart) {
  const rlimit limit{64, 400};
  const test::Finished f = test::run_program(
      {test::tessera_path(), "serve", "--model", model_.link(), "--port", "0", "--max-connections", "1000"}, 60,
      [&] { setrlimit(RLIMIT_NOFILE, &limit); });
  EXPECT_EQ(f.status, 2);
  EXPECT_EQ(f.output,
            "tessera serve: --max-connections 1000 needs 1136 open files, but this process may have 400 (ulimit "
            "-Hn): take --max-connections 264, or raise that limit\n");
}

TEST_F(Hostile, AModelThatIsNestedWithoutEnd) {
  start();
  const std::string json = model_.file("second") + "/model.json";
  std::ofstream(json) << R"({"format": "tessera.model", "version": 1, "name": "x", "crc32": "0", "content": )"
                      << std::string(200 << 10, '[') << std::string(200 << 10, ']') << "}";
  model_.exchange();
  const std::string sentence = model_.link() + "/model.json is damaged: it is nested deeper than 32";
  const Reply reload = Client(port_).ask(Client::post("/admin/reload", ""));
  EXPECT_EQ(reload.status, 500);
  EXPECT_EQ(json::parse(reload.body)["error"], sentence);
  EXPECT_EQ(honest(), "") << "the old model is served";
  const test::Finished f = test::run_tessera({"model", "inspect", model_.link()});
  EXPECT_EQ(f.status, 1);
  EXPECT_EQ(f.output, "tessera model: " + sentence + "\n");
  const Reply request = Client(port_).ask(Client::post(kSmall, "{\"x\":" + std::string(400 << 10, '[')));
  EXPECT_EQ(request.status, 400);
  EXPECT_EQ(json::parse(request.body)["error"], "the request is nested deeper than 32");
  end();
}

// Like an I/O error: a mapped table becomes shorter.
TEST_F(Hostile, ATableThatCannotBeReadAnyMore) {
  start();
  const std::string table = model_.file("first") + "/table-0.rows", rows = test::contents(table);
  std::filesystem::resize_file(table, 4096);
  const Reply lost = Client(port_).ask(Client::post(kSmall, request()));
  EXPECT_EQ(lost.status, 503);
  EXPECT_THAT(lost.body, HasSubstr("cannot be read any more: an I/O error, or it was made shorter"));
  const auto becomes = [&](const std::string& right) {
    std::string now;
    for (int i = 0; i < 1000 && (now = honest()) != right; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return now;
  };
  const std::string reloading =
      "status 503: {\"error\":\"the model, or a rank of it, is lost; it is being loaded again\"}";
  EXPECT_EQ(becomes(reloading), reloading);
  const std::string damaged = "table-0.rows is damaged: it has ";
  for (int i = 0; i < 1000 && program_->output().find(damaged) == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_THAT(program_->output(), HasSubstr(damaged));
  std::ofstream(table, std::ios::binary) << rows;
  EXPECT_EQ(becomes(""), "") << "it is loaded again as soon as it can be";
  end();
}

TEST_F(Hostile, WhatElseCannotBeReadIsExplained) {
  start();
  ASSERT_EQ(kill(program_->pid(), SIGBUS), 0);
  EXPECT_EQ(program_->wait(30), 128 + SIGBUS);
  EXPECT_THAT(program_->output(), HasSubstr("\ntessera: a file that is mapped into memory cannot be read any more: "));
}

// The log's reader disappears.
TEST_F(Hostile, NobodyReadsTheLog) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  start({"--log-level", "debug"}, [&] { dup2(ends[1], STDERR_FILENO); });
  close(ends[0]);
  close(ends[1]);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(honest(), "");
  EXPECT_EQ(Client(port_).ask(Client::get("/nowhere")).status, 404);
  end();
}

// Each begins a request, its header or its body, and continues one byte at a time.
TEST_F(Hostile, ConnectionsThatDrip) {
  start();
  const int64_t before = peak_bytes();
  const std::string header = "GET /v2 HTTP/1.1\r\nX: " + std::string(1000, 'x');
  std::deque<Client> slow;
  for (int i = 0; i < 300; ++i) {
    slow.emplace_back(port_);
    ASSERT_TRUE(slow.back().send(i % 2 == 0 ? header.substr(0, 20) : announcing(kMiB)));
  }
  for (size_t at = 20; at < 60; ++at) {
    for (Client& client : slow) ASSERT_TRUE(client.send(header.substr(at, 1)));
    EXPECT_EQ(honest(), "") << "byte " << at;
  }
  EXPECT_LT(peak_bytes() - before, 32 * kMiB + kFreed);
}

TEST_F(Hostile, TwoThousandConnections) {
  constexpr int kMany = 2000;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < kMany + 500) GTEST_SKIP() << "only " << limit.rlim_max << " open files (ulimit -Hn)";
  const rlimit raised{std::max<rlim_t>(limit.rlim_cur, kMany + 500), limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  start({"--max-connections", "2100"});
  const int64_t before = peak_bytes();
  std::deque<Client> many;
  for (int i = 0; i < kMany; ++i) {
    many.emplace_back(port_);
    ASSERT_TRUE(many.back().send(Client::get("/v2/health/live") + announcing(1000)));
  }
  int open = 0;
  for (Client& client : many) open += client.read().status == 200;
  EXPECT_EQ(open, kMany);
  EXPECT_EQ(honest(), "");
  EXPECT_LT(peak_bytes() - before, 128 * kMiB + kFreed);
  setrlimit(RLIMIT_NOFILE, &limit);
}

// A client that sends requests without pause, and reads no answer until it has sent all.
TEST_F(Hostile, RequestsWithoutReading) {
  start();
  const int64_t before = peak_bytes();
  constexpr int kRequests = 20000;
  Client client(port_);
  std::thread sender([&] {
    std::string hundred;
    for (int i = 0; i < 100; ++i) hundred += Client::get("/v2");
    for (int i = 0; i < kRequests / 100 && client.send(hundred); ++i) {
    }
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(honest(), "");
  EXPECT_LT(peak_bytes() - before, 32 * kMiB + kFreed) << "what it has not read waits at its end";
  int answered = 0;
  while (answered < kRequests && client.read().status == 200) ++answered;
  sender.join();
  EXPECT_EQ(answered, kRequests);
  EXPECT_EQ(honest(), "");
}

// Numbers that no type holds, and lengths that do not fit, on one connection that stays usable.
TEST_F(Hostile, NumbersAndLengths) {
  start();
  const int64_t before = peak_bytes();
  const json good = json::parse(request());
  Client client(port_);
  const std::string nines(1 << 20, '9');
  const auto refused = [&](const std::string& body) {
    const Reply reply = client.ask(Client::post(kSmall, body));
    EXPECT_EQ(reply.status, 400) << body.substr(0, 200) << " got " << reply.body.substr(0, 200);
    EXPECT_LT(reply.body.size(), 1000u);
    EXPECT_EQ(model_.wrong_with(client.ask(Client::post(kSmall, request())), input_), "");
  };
  for (const std::string& number : {nines, "-" + nines, "1e" + nines, "0." + nines + "e999", std::string("1e400"),
                                    std::string("-1"), std::string("18446744073709551616"), std::string("nan")}) {
    for (const char* place : {"shape", "data"}) {
      json changed = good;
      changed["inputs"][1][place] = json::array({"number"});
      std::string body = changed.dump();
      body.replace(body.find("\"number\""), 8, number);
      refused(body);
    }
  }
  for (size_t i = 0; i < good["inputs"].size(); ++i) {
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1} << 31, int64_t{1} << 62}) {
      json changed = good;
      changed["inputs"][i]["shape"] = {n, n};
      refused(changed.dump());
    }
  }
  EXPECT_LT(peak_bytes() - before, 64 * kMiB + kFreed);
}

// Models are reloaded again and again while clients ask: every answer is that of one model.
class Reloads : public Hostile {
 protected:
  void reload(int times) {
    start();
    EXPECT_EQ(Client(port_).ask(Client::post("/admin/reload", "")).status, 200);
    const int64_t before = peak_bytes();
    std::atomic<bool> stop{false};
    std::atomic<int> answers{0};
    std::vector<std::string> wrong(3);
    std::vector<std::thread> clients;
    for (std::string& what : wrong) {
      clients.emplace_back([&] {
        OwnInput input = input_;
        const std::string body = Client::post(kSmall, json_request(model_.predictor().model(), input));
        for (Client client(port_); !stop && what.empty(); ++answers) what = model_.wrong_with(client.ask(body), input);
      });
    }
    Client admin(port_);
    for (int i = 0; i < times; ++i) {
      if (i == times / 2) model_.exchange();
      ASSERT_EQ(admin.ask(Client::post("/admin/reload", "")).status, 200) << "reload " << i;
    }
    while (answers < 50) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stop = true;
    for (std::thread& client : clients) client.join();
    for (const std::string& what : wrong) EXPECT_EQ(what, "");
    EXPECT_LT(peak_bytes() - before, 64 * kMiB + kFreed);
    end();
  }
};
TEST_F(Reloads, LoseNoAnswer) { reload(30); }

class LongReloads : public Reloads {};
TEST_F(LongReloads, AThousandReloads) { reload(1000); }

}  // namespace
}  // namespace tessera::serve
