// Tests calls into plugins as other threads, the call itself, and helping threads see them.
#include "tessera/calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <mutex>
#include <set>
#include <thread>

#include "plugin/thread_pool.h"
#include "tessera/abi/sharder.h"

namespace tessera::plugin {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

tsr_component component(const char* id) {
  tsr_component out{};
  out.id = id;
  out.kind = TSR_SHARDER_KIND;
  return out;
}
const tsr_component kHot = component("acme.hot"), kCold = component("acme.cold");

std::string here() {
  std::array<char, 300> text{};
  const size_t length = describe_call_here(text.data(), text.size());
  EXPECT_EQ(length, std::string(text.data()).size());
  return text.data();
}

TEST(Calls, AreNamedWhileTheyRun) {
  EXPECT_EQ(here(), "");
  EXPECT_THAT(running_calls(), IsEmpty());
  {
    const CallScope outer({&kHot, "propose"}, "item");
    EXPECT_EQ(here(), "acme.hot (tessera.sharder/1), propose, \"item\"");
    {
      const CallScope inner({nullptr, "a plugin's file that is being opened"}, "/opt/a.so");
      EXPECT_EQ(here(), "a plugin's file that is being opened, \"/opt/a.so\"");
    }
    EXPECT_EQ(here(), "acme.hot (tessera.sharder/1), propose, \"item\"");
    const CallScope none({});
    EXPECT_EQ(here(), "");
  }
  EXPECT_EQ(here(), "");
}

TEST(Calls, LongTextsAreCutAndDeepOnesCounted) {
  const CallScope first({&kHot, "propose"}, std::string(1000, 'x'));
  EXPECT_EQ(here(), "acme.hot (tessera.sharder/1), propose, \"" + std::string(159, 'x') + "\"");
  std::array<char, 9> small{};
  EXPECT_EQ(describe_call_here(small.data(), small.size()), 8u);
  EXPECT_STREQ(small.data(), "acme.hot");
  const CallScope second({&kHot, "b"}), third({&kHot, "c"}), fourth({&kHot, "d"});
  {
    const CallScope fifth({&kCold, "e"});
    EXPECT_EQ(here(), "acme.hot (tessera.sharder/1), d");
  }
  EXPECT_EQ(here(), "acme.hot (tessera.sharder/1), d");
}

TEST(Calls, AreSeenFromOtherThreadsByNumber) {
  std::latch asked(3), seen(1);
  const auto ask = [&](Asked what) {
    const CallScope call(what);
    asked.count_down();
    seen.wait();
  };
  std::thread hot(ask, Asked{&kHot, "propose"}), cold(ask, Asked{&kCold, "connect", true});
  asked.arrive_and_wait();
  const std::vector<RunningCall> first = running_calls(), second = running_calls();
  seen.count_down();
  hot.join();
  cold.join();
  ASSERT_EQ(first.size(), 2u);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_NE(first[0].number, first[1].number);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(first[i].number, second[i].number);
    EXPECT_EQ(first[i].waits, first[i].text == "acme.cold (tessera.sharder/1), connect") << first[i].text;
  }
  EXPECT_THAT(running_calls(), IsEmpty());
}

TEST(Calls, NumbersAreNotGivenTwice) {
  std::set<uint64_t> numbers;
  for (int thread = 0; thread < 5; ++thread) {  // one after the other, so that each takes over the place of the last
    std::thread([&] {
      const CallScope call({&kHot, "propose"});
      numbers.insert(running_calls()[0].number);
    }).join();
  }
  EXPECT_EQ(numbers.size(), 5u);
}

TEST(Calls, ThreadsOfThePoolAreInTheCallOfTheirCaller) {
  ThreadPool pool(3);
  struct Seen {
    std::mutex mutex;
    std::set<std::string> texts;
    std::latch all{3};
  } seen;
  const CallScope call({&kHot, "forward"});
  pool.run(
      3,
      [](void* ctx, uint64_t) {
        Seen& s = *static_cast<Seen*>(ctx);
        s.all.arrive_and_wait();  // each on its own thread
        const std::lock_guard lock(s.mutex);
        s.texts.insert(here());
      },
      &seen);
  EXPECT_THAT(seen.texts, ElementsAre("acme.hot (tessera.sharder/1), forward"));
}

}  // namespace
}  // namespace tessera::plugin
