// Tests the proxy, and the transport over a network that is slow, narrow, cut or half open.
#include "proxy.h"

#include <atomic>

#include "testing.h"

namespace tessera::tcp {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

// A proxy that runs in a thread of its own.
class RunningProxy {
 public:
  RunningProxy() : thread_([this] { io_.run(); }) {}
  ~RunningProxy() {
    io_.stop();
    thread_.join();
  }
  // May be called from any thread; the change is in effect when it returns.
  void tell(const std::function<void(Proxy&)>& what) {
    asio::post(io_, asio::use_future([&] { what(proxy_); })).get();
  }
  std::string options() const {
    return R"({"shm": false, "proxy": "127.0.0.1:)" + std::to_string(proxy_.endpoint().port()) + "\"}";
  }

 private:
  asio::io_context io_{1};
  Proxy proxy_{io_, {asio::ip::address_v4::loopback(), 0}};
  std::thread thread_;
};

TEST(SlowNetwork, CostsTimeAndNoByte) {
  RunningProxy proxy;
  proxy.tell([](Proxy& p) { p.set({}, {milliseconds(2), 4e6}); });
  const auto start = std::chrono::steady_clock::now();
  with_groups(
      3, [](sdk::Group& group) { exchange(group, 100000); }, proxy.options());
  // 400 KB in each direction of each connection.
  EXPECT_GT(std::chrono::steady_clock::now() - start, milliseconds(75));
}

TEST(SlowNetwork, MayBeSoBetweenTwoRanksAlone) {
  RunningProxy proxy;
  proxy.tell([](Proxy& p) { p.set({0, 2}, {milliseconds(150), 0}); });
  TestHost host;
  const Where where{.world_size = 3, .options = proxy.options()};
  std::atomic<int> pairs = 0;
  in_threads(where, [&](int rank) {
    const auto group = connect(host, where, rank);
    const auto other = group->split(rank == 2 ? 1 : 0, rank, call());  // 0 and 1
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 20 && rank != 2; ++i) finish(other->barrier(call()));
    pairs += rank != 2 && std::chrono::steady_clock::now() - start < milliseconds(20 * 150);
    finish(group->barrier(call()));
  });
  EXPECT_EQ(pairs, 2);
}

// The reports of rank 1 and rank 2 about each other after a fault between them, and the report of rank 0 about both.
std::vector<Outcome> disturbed(const std::function<void(Proxy&)>& what, double timeout_s) {
  RunningProxy proxy;
  TestHost host;
  const Where where{.world_size = 3, .options = proxy.options()};
  return in_threads(where, [&](int rank) {
    const auto group = connect(host, where, rank);
    exchange(*group, 1000);
    if (rank == 0) proxy.tell(what);
    while (true) exchange(*group, 1000, timeout_s);
  });
}

TEST(CutConnection, NamesWhoWasAtItsOtherEnd) {
  const auto outcomes = disturbed([](Proxy& proxy) { proxy.cut({1, 2}); }, 20);
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.code, TSR_ABORTED) << outcome.text;
  EXPECT_THAT(outcomes[0].text, testing::ContainsRegex("rank [12] died during all_to_all_v \"rows\""));
  // Each names the other, unless rank 0 told it first what the other has reported about it.
  EXPECT_THAT(outcomes[1].text, testing::ContainsRegex("rank [12] died during all_to_all_v \"rows\""));
  EXPECT_THAT(outcomes[2].text, testing::ContainsRegex("rank [12] died during all_to_all_v \"rows\""));
}

TEST(HalfOpenConnection, NamesThePeerAtTheDeadline) {
  const auto start = std::chrono::steady_clock::now();
  const auto outcomes = disturbed([](Proxy& proxy) { proxy.hold({1, 2}); }, 1.5);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, TSR_DEADLINE_EXCEEDED) << outcome.text;
    EXPECT_THAT(outcome.text, testing::ContainsRegex("ranks? [12].* late: all_to_all_v \"rows\" did not finish"));
  }
}

// A caller proves itself to the rank that it calls, so a proxy between them makes no difference.
TEST(Proxied, AStrangerIsRefusedAllTheSame) {
  RunningProxy proxy;
  TestHost host;
  const Where right{.world_size = 2, .timeout_s = 2, .options = proxy.options()};
  Where wrong = right;
  wrong.token = "another";
  const auto outcomes = in_threads(right, [&](int rank) { connect(host, rank == 0 ? right : wrong, rank); });
  EXPECT_EQ(outcomes[1].code, TSR_PERMISSION_DENIED) << outcomes[1].text;
}

TEST(Proxied, ItsAddressHasToBeOne) {
  for (const char* text : {"localhost:70", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999"}) {
    try {
      TestHost host;
      sdk::Options options(R"({"proxy": ")" + std::string(text) + "\"}");
      const Tcp tcp(sdk::Setup{host.host(), options, nullptr});
      ADD_FAILURE() << text;
    } catch (const sdk::Failure& failure) {
      EXPECT_THAT(failure.what(), AllOf(HasSubstr("ADDRESS:PORT"), HasSubstr(text)));
    }
  }
}

}  // namespace
}  // namespace tessera::tcp
