// Tests lookups of host names, the limit on open files, and proofs that are valid for only one address.
#include <sys/resource.h>

#include <future>

#include "resolve.h"
#include "testing.h"

namespace tessera::tcp {
namespace {

using std::chrono::steady_clock;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

asio::ip::address ip(const char* text) { return asio::ip::make_address(text); }
steady_clock::time_point in(double seconds) {
  return steady_clock::now() +
         std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(seconds));
}

template <class F>
Outcome outcome(F&& f) {
  try {
    f();
  } catch (const sdk::Failure& failure) {
    return {failure.code(), failure.what()};
  }
  return {};
}

TEST(Resolve, NumbersAreNotLookedUp) {
  const auto never = [](const std::string&) -> Lookup { throw std::runtime_error("looked up"); };
  EXPECT_THAT(resolve("10.0.0.7", in(1), never), ElementsAre(ip("10.0.0.7")));
  EXPECT_THAT(resolve("fd00::7", in(1), never), ElementsAre(ip("fd00::7")));
}

TEST(Resolve, AddressesThatOthersReachComeFirst) {
  const auto lookup = [](const std::string&) {
    return Lookup{{ip("::1"), ip("127.0.1.1"), ip("fd00::7"), ip("10.0.0.7")}, ""};
  };
  EXPECT_THAT(resolve("node", in(5), lookup), ElementsAre(ip("10.0.0.7"), ip("fd00::7"), ip("127.0.1.1"), ip("::1")));
}

TEST(Resolve, ASilentNameServerDoesNotHoldTheRankUp) {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  const auto over = std::make_shared<std::promise<void>>();  // the thread may outlive this function
  std::future<void> ended = over->get_future();
  const Outcome late = outcome([&] {
    resolve("node", in(0.1), [released, over](const std::string&) {
      released.wait();
      over->set_value();
      return Lookup{};
    });
  });
  EXPECT_EQ(late.code, TSR_DEADLINE_EXCEEDED);
  EXPECT_THAT(late.text, HasSubstr("no name server has said in time what MASTER_ADDR \"node\" is"));
  release.set_value();
  EXPECT_EQ(ended.wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST(Resolve, ANameThatNobodyKnows) {
  const Outcome unknown = outcome([] {
    resolve("node", in(5), [](const std::string&) { return Lookup{{}, "Host not found"}; });
  });
  EXPECT_EQ(unknown.code, TSR_UNAVAILABLE);
  EXPECT_THAT(unknown.text, HasSubstr("cannot resolve MASTER_ADDR \"node\": Host not found"));
}

TEST(Resolve, TheSystemKnowsThisMachine) {
  for (const asio::ip::address& address : resolve("localhost", in(20))) EXPECT_TRUE(address.is_loopback()) << address;
}

TEST(LoopbackHint, IsGivenForNamesOnly) {
  EXPECT_THAT(loopback_hint("node1", {ip("127.0.1.1"), 29500}),
              AllOf(HasSubstr("MASTER_ADDR \"node1\" is 127.0.1.1"), HasSubstr("no other machine reaches")));
  EXPECT_EQ(loopback_hint("localhost", {ip("127.0.0.1"), 29500}), "");
  EXPECT_EQ(loopback_hint("127.0.0.1", {ip("127.0.0.1"), 29500}), "");
  EXPECT_EQ(loopback_hint("node1", {ip("10.0.0.1"), 29500}), "");
}

TEST(Rendezvous, AnAddressThatIsNone) {
  TestHost host;
  sdk::Options options("{}");
  Tcp tcp(sdk::Setup{host.host(), options, nullptr});
  const tsr_rendezvous where = rendezvous_of(0, 2, 29500, "0.0.0.0", "a token", 1);
  EXPECT_THAT(outcome([&] { tcp.connect(where); }).text,
              HasSubstr("MASTER_ADDR \"0.0.0.0\" is not a machine's address"));
}

TEST(Descriptors, TheSoftLimitIsRaisedAndTheHardOneNamed) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  ensure_descriptors(100);  // fits, so nothing changes
  rlimit after{};
  getrlimit(RLIMIT_NOFILE, &after);
  EXPECT_EQ(after.rlim_cur, 200u);
  ensure_descriptors(300);
  getrlimit(RLIMIT_NOFILE, &after);
  EXPECT_GT(after.rlim_cur, 300u);
  EXPECT_EQ(after.rlim_max, before.rlim_max);
  if (before.rlim_max != RLIM_INFINITY) {
    const Outcome refused = outcome([&] { ensure_descriptors(static_cast<int64_t>(before.rlim_max)); });
    EXPECT_EQ(refused.code, TSR_RESOURCE_EXHAUSTED);
    EXPECT_THAT(refused.text, AllOf(HasSubstr("three to each other rank"), HasSubstr("ulimit -Hn")));
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(Proof, FitsOneRoleOnePlaceAndOneChallenge) {
  const Hello hello;
  const Address here = to_address({ip("10.0.0.1"), 29500});
  const Nonce challenge{1, 2, 3};
  const Mac right = proof("token", Role::kCaller, hello, here, challenge);
  EXPECT_TRUE(equal(right, proof("token", Role::kCaller, hello, here, challenge)));
  EXPECT_FALSE(equal(right, proof("another", Role::kCaller, hello, here, challenge)));
  EXPECT_FALSE(equal(right, proof("token", Role::kCalled, hello, here, challenge)));
  EXPECT_FALSE(equal(right, proof("token", Role::kCaller, hello, to_address({ip("10.0.0.2"), 29500}), challenge)));
  EXPECT_FALSE(equal(right, proof("token", Role::kCaller, hello, to_address({ip("10.0.0.1"), 29501}), challenge)));
  EXPECT_FALSE(equal(right, proof("token", Role::kCaller, hello, here, Nonce{1, 2, 4})));
  Hello other = hello;
  other.rank = 1;
  EXPECT_FALSE(equal(right, proof("token", Role::kCaller, other, here, challenge)));
}

TEST(Address, OfIpv4InIpv6IsThatOfIpv4) {
  const Address plain = to_address({ip("10.0.0.1"), 1}), mapped = to_address({ip("::ffff:10.0.0.1"), 1});
  EXPECT_EQ(std::memcmp(&plain, &mapped, sizeof(plain)), 0);
}

}  // namespace
}  // namespace tessera::tcp
