// Tests strangers that connect to the rendezvous, and ranks that never arrive.
#include <poll.h>

#include <atomic>
#include <chrono>

#include "door.h"
#include "rendezvous.h"
#include "testing.h"

namespace tessera::tcp {
namespace {

using testing::HasSubstr;
using testing::Not;

Fd call_port(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int attempt = 0; attempt < 500; ++attempt) {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return Fd();
}

void say(const Fd& fd, const std::string& text) {
  EXPECT_GT(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
}

std::string hello_text() {
  Hello hello{.rank = 1, .world_size = 2};
  return {reinterpret_cast<const char*>(&hello), sizeof(hello)};
}

// Lets two ranks meet while `stranger` connects to rank 0's port. Returns the log.
std::string meet_beside(const std::function<void(uint16_t port)>& stranger) {
  TestHost host;
  Where where{.world_size = 2};
  std::thread other([&] { stranger(where.port); });
  const auto outcomes = in_threads(where, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    finish(connect(host, where, rank)->barrier(call()));
  });
  other.join();
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.code, TSR_OK) << outcome.text;
  return host.log();
}

TEST(Stranger, WithGarbageIsLoggedAndDropped) {
  EXPECT_THAT(meet_beside([](uint16_t port) { say(call_port(port), std::string(5000, 'x')); }),
              HasSubstr("it does not speak this protocol"));
}

TEST(Stranger, WhoSpeaksHttp) {
  EXPECT_THAT(meet_beside([](uint16_t port) {
                say(call_port(port),
                    "GET / HTTP/1.1\r\nUser-Agent: a browser with a long name/1.0\r\nHost: "
                    "a.long.name.example.org:80\r\n\r\n......");
              }),
              HasSubstr("it does not speak this protocol"));
}

TEST(Stranger, WhoOnlyKnocks) {
  EXPECT_THAT(meet_beside([](uint16_t port) {
                for (int i = 0; i < 20; ++i) call_port(port);
              }),
              HasSubstr("it left before it proved itself"));
}

TEST(Stranger, WhoSaysNothingHoldsNobodyUp) {
  std::vector<Fd> silent;
  const auto start = std::chrono::steady_clock::now();
  meet_beside([&](uint16_t port) {
    for (int i = 0; i < 50; ++i) silent.push_back(call_port(port));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

// Sends more strangers than a door examines at once, for longer than the ranks wait.
TEST(Stranger, ACrowdThatSaysNothingIsShownOut) {
  TestHost host;
  const Where where{.world_size = 2, .timeout_s = 4};
  std::vector<Fd> crowd;
  const auto outcomes = in_threads(where, [&](int rank) {
    if (rank == 1) {
      for (int i = 0; i < 300; ++i) crowd.push_back(call_port(where.port));
    }
    finish(connect(host, where, rank)->barrier(call()));
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.code, TSR_OK) << outcome.text;
  EXPECT_THAT(host.log(), HasSubstr("did not prove itself in time, or before others came"));
}

TEST(Stranger, WithoutTheTokenGetsNoProofOfIt) {
  std::string answer(200, '\0');
  ssize_t got = 0;
  const std::string log = meet_beside([&](uint16_t port) {
    const Fd fd = call_port(port);
    say(fd, hello_text());
    char nonce[16];
    EXPECT_EQ(recv(fd.get(), nonce, sizeof(nonce), MSG_WAITALL), 16);
    say(fd, std::string(32, 'm'));
    got = recv(fd.get(), answer.data(), answer.size(), MSG_WAITALL);
  });
  ASSERT_EQ(got, 32);  // a refusal in place of a proof, the same for all callers
  EXPECT_EQ(answer.substr(0, 32), std::string(32, '\0'));
  EXPECT_THAT(log, HasSubstr("it has another token"));
}

TEST(Token, AWrongOneIsRefusedOnBothSides) {
  TestHost host;
  const Where right{.world_size = 2, .timeout_s = 1};
  Where wrong = right;
  wrong.token = "another";
  const auto outcomes = in_threads(right, [&](int rank) { connect(host, rank == 0 ? right : wrong, rank); });
  EXPECT_EQ(outcomes[1].code, TSR_PERMISSION_DENIED);
  EXPECT_THAT(outcomes[1].text, HasSubstr("rank 0 refused rank 1: is TESSERA_JOB_TOKEN the same on both?"));
  EXPECT_EQ(outcomes[0].code, TSR_DEADLINE_EXCEEDED);
  EXPECT_THAT(outcomes[0].text, HasSubstr("rank 1 of 2 never arrived within 1 s"));
  EXPECT_THAT(host.log(), HasSubstr("it has another token"));
}

// Answers like rank 0, but closes the connection before it has checked the caller's token.
void die_in_handshakes(uint16_t port, const std::atomic<bool>& done) {
  const Fd listener(socket(AF_INET, SOCK_STREAM, 0));
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_port = htons(port);
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&here), sizeof(here)), 0);
  ASSERT_EQ(listen(listener.get(), 16), 0);
  while (!done) {
    pollfd caller{listener.get(), POLLIN, 0};
    if (poll(&caller, 1, 20) != 1) continue;
    const Fd fd(accept(listener.get(), nullptr, nullptr));
    std::string said(sizeof(Hello), '\0'), proof(32, '\0');
    recv(fd.get(), said.data(), said.size(), MSG_WAITALL);
    say(fd, std::string(16, 'n'));
    recv(fd.get(), proof.data(), proof.size(), MSG_WAITALL);
  }
}

TEST(Token, IsNotBlamedForARankThatDies) {
  TestHost host;
  const Where where{.world_size = 2, .timeout_s = 1};
  std::atomic<bool> done{false};
  std::thread rank_0([&] { die_in_handshakes(where.port, done); });
  const auto outcomes = in_threads(where, [&](int rank) {
    if (rank == 1) connect(host, where, rank);
  });
  done = true;
  rank_0.join();
  EXPECT_EQ(outcomes[1].code, TSR_DEADLINE_EXCEEDED) << outcomes[1].text;
  EXPECT_THAT(outcomes[1].text, Not(HasSubstr("TOKEN")));
}

TEST(Token, IsNotNeededOnLoopback) {
  TestHost host;
  const Where where{.world_size = 2, .token = ""};
  for (const Outcome& outcome : in_threads(where, [&](int rank) { connect(host, where, rank); })) {
    EXPECT_EQ(outcome.code, TSR_OK) << outcome.text;
  }
}

TEST(Token, IsNeededElsewhere) {
  TestHost host;
  sdk::Options options("{}");
  Tcp tcp(sdk::Setup{host.host(), options, nullptr});
  for (int rank : {0, 1}) {
    const tsr_rendezvous where = rendezvous_of(rank, 2, 29500, "192.0.2.1", "", 1);
    try {
      tcp.connect(where);
      ADD_FAILURE();
    } catch (const sdk::Failure& failure) {
      EXPECT_EQ(failure.code(), TSR_PERMISSION_DENIED);
      EXPECT_THAT(failure.what(), HasSubstr("set the same TESSERA_JOB_TOKEN on every rank"));
    }
  }
}

TEST(MissingRank, IsNamedOnEveryRank) {
  TestHost host;
  const Where where{.world_size = 4, .timeout_s = 1};
  const auto outcomes = in_threads(where, [&](int rank) {
    if (rank != 2) connect(host, where, rank);
  });
  for (int rank : {0, 1, 3}) {
    EXPECT_THAT(outcomes[rank].text, HasSubstr("tcp: rank 2 of 4 never arrived within 1 s")) << rank;
  }
  EXPECT_EQ(outcomes[0].code, TSR_DEADLINE_EXCEEDED);
}

// Rank 1 gives up first, then rank 3, then rank 0. Both learn that rank 1 has left, but it is not the cause.
TEST(MissingRank, IsNamedThoughAnotherRankHasGivenUp) {
  TestHost host;
  const Where where{.world_size = 4};
  const auto outcomes = in_threads(where, [&](int rank) {
    Where own = where;
    own.timeout_s = rank == 1 ? 0.5 : rank == 3 ? 1.5 : 2.5;
    if (rank != 2) connect(host, own, rank);
  });
  EXPECT_THAT(host.log(), HasSubstr("rank 1 arrived and left again"));
  for (int rank : {0, 1, 3}) EXPECT_THAT(outcomes[rank].text, HasSubstr("tcp: rank 2 of 4 never arrived")) << rank;
}

TEST(MissingRank, RankZero) {
  TestHost host;
  const Where where{.world_size = 3, .timeout_s = 0.5};
  const auto outcomes = in_threads(where, [&](int rank) {
    if (rank != 0) connect(host, where, rank);
  });
  for (int rank : {1, 2}) {
    EXPECT_EQ(outcomes[rank].code, TSR_DEADLINE_EXCEEDED);
    EXPECT_THAT(outcomes[rank].text, HasSubstr("tcp: rank 0 of 3 never arrived within 0.5 s at 127.0.0.1:"));
  }
}

TEST(Rendezvous, WorldSizesThatDiffer) {
  TestHost host;
  const Where two{.world_size = 2, .timeout_s = 5};
  Where three = two;
  three.world_size = 3;
  const auto outcomes = in_threads(two, [&](int rank) { connect(host, rank == 0 ? two : three, rank); });
  for (const Outcome& outcome : outcomes) {
    EXPECT_THAT(outcome.text, HasSubstr("rank 1 says WORLD_SIZE is 3, rank 0 says 2"));
  }
}

constexpr int32_t kManyRanks = 4096;

// Connects a guest, which rank 0 admits.
Fd arrive(uint16_t port, int32_t rank, int receive_buffer) {
  asio::io_context io;
  TcpSocket socket(io, asio::ip::tcp::v4());
  socket.set_option(asio::socket_base::receive_buffer_size(receive_buffer));
  socket.connect({asio::ip::address_v4::loopback(), port});
  Hello hello{.rank = rank, .world_size = kManyRanks};
  std::exception_ptr error;
  asio::co_spawn(io, knock(socket, "a token", hello, to_address(socket.remote_endpoint())),
                 [&](const std::exception_ptr& e) { error = e; });
  io.run();
  if (error) std::rethrow_exception(error);
  socket.native_non_blocking(false);
  return Fd(socket.release());
}

// A list of thousands of missing ranks takes 20 KB. One guest does not read while hundreds of ranks arrive; its
// messages would exceed the connection's buffers. They are nevertheless whole, and the last one says why the ranks
// never met.
TEST(Rendezvous, AGuestThatDoesNotListenIsToldInWholeSentences) {
  struct Head {
    uint32_t magic, kind, bytes, reserved;
  };
  TestHost host;
  const uint16_t port = free_port();
  std::jthread rank_0([&] {
    RendezvousOptions options{.host = host.host(),
                              .rank = 0,
                              .world_size = kManyRanks,
                              .master_addr = "127.0.0.1",
                              .master_port = port,
                              .token = "a token",
                              .timeout_s = 5,
                              .deadline = Clock::now() + std::chrono::seconds(5),
                              .listen = [](const Address&) { return uint16_t{1}; }};
    EXPECT_THROW(meet(options), sdk::Failure);
  });
  ASSERT_TRUE(call_port(port));
  const Fd deaf = arrive(port, 1, 4096);
  // On a slow machine fewer ranks arrive before this deadline.
  const auto enough = Clock::now() + std::chrono::seconds(2);
  for (int32_t rank = 2; rank < 500 && Clock::now() < enough; ++rank) arrive(port, rank, 1 << 20);
  std::string last;
  uint32_t kind = 0;
  for (Head head; recv(deaf.get(), &head, sizeof(head), MSG_WAITALL) == sizeof(head);) {
    ASSERT_EQ(head.magic, 0x4e525354u);
    kind = head.kind;
    last.resize(head.bytes);
    ASSERT_EQ(recv(deaf.get(), last.data(), last.size(), MSG_WAITALL), static_cast<ssize_t>(last.size()));
  }
  rank_0.join();
  EXPECT_EQ(kind, 3u);
  EXPECT_THAT(last, HasSubstr("never arrived within 5 s"));
}

TEST(Rendezvous, TwoProcessesThatClaimOneRank) {
  TestHost host;
  const Where where{.world_size = 3, .timeout_s = 1};
  const auto outcomes = in_threads(where, [&](int thread) { connect(host, where, thread == 0 ? 0 : 1); });
  const bool first =
      outcomes[1].text.find("another process has already arrived as rank 1 already") != std::string::npos;
  const bool second =
      outcomes[2].text.find("another process has already arrived as rank 1 already") != std::string::npos;
  EXPECT_NE(first, second) << outcomes[1].text << "\n" << outcomes[2].text;
  EXPECT_THAT(outcomes[0].text, HasSubstr("rank 2 of 3 never arrived"));
}

TEST(Rendezvous, APortThatIsTaken) {
  TestHost host;
  const Where where{.world_size = 2, .timeout_s = 5};
  const Fd taken = bound_socket(where.port, true);
  ASSERT_TRUE(taken);
  try {
    connect(host, where, 0);
    FAIL();
  } catch (const sdk::Failure& failure) {
    EXPECT_EQ(failure.code(), TSR_UNAVAILABLE);
    EXPECT_THAT(failure.what(), HasSubstr("choose another MASTER_PORT"));
  }
}

TEST(Rendezvous, ArgumentsThatCannotBe) {
  TestHost host;
  sdk::Options options("{}");
  Tcp tcp(sdk::Setup{host.host(), options, nullptr});
  const tsr_rendezvous good = rendezvous_of(0, 2, 29500, "127.0.0.1", "", 1);
  const auto refused = [&](auto change) {
    tsr_rendezvous where = good;
    change(where);
    EXPECT_THROW(tcp.connect(where), sdk::Failure);
  };
  refused([](tsr_rendezvous& w) { w.rank = 2; });
  refused([](tsr_rendezvous& w) { w.rank = -1; });
  refused([](tsr_rendezvous& w) { w.world_size = 0; });
  refused([](tsr_rendezvous& w) { w.master_port = 0; });
  refused([](tsr_rendezvous& w) { w.master_port = 70000; });
  refused([](tsr_rendezvous& w) { w.master_addr = nullptr; });
  refused([](tsr_rendezvous& w) { w.timeout_s = 0; });
}

}  // namespace
}  // namespace tessera::tcp
