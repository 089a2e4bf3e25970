#include "distributed/hosts.h"

#include <gmock/gmock.h>

#include <vector>

#include "config/test_refusal.h"
#include "tessera/error.h"

namespace tessera {
namespace {

using testing::HasSubstr;

int by_launcher(const std::vector<HostClaim>& claims) { return ranks_per_host(std::span<const HostClaim>(claims)); }
int by_transport(const std::vector<int32_t>& hosts) { return ranks_per_host(std::span<const int32_t>(hosts)); }
int of_some(const std::vector<int32_t>& hosts) { return ranks_per_host_or_one(hosts); }

template <class F>
std::string refusal(F&& f) {
  return test::refusal(
      Code::kInvalidArgument, [&] { f(); }, "nothing was refused");
}

TEST(Hosts, FromTheLauncher) {
  EXPECT_EQ(by_launcher({{0, 2}, {1, 2}, {0, 2}, {1, 2}}), 2);
  EXPECT_EQ(by_launcher({{0, 1}, {0, 1}, {0, 1}}), 1);
  EXPECT_EQ(by_launcher({{0, 3}, {1, 3}, {2, 3}}), 3);
  EXPECT_EQ(by_launcher({{0, 0}, {0, 0}}), 0) << "it told nobody";
}

TEST(Hosts, WhatALauncherMayNotSay) {
  EXPECT_THAT(refusal([] {
                by_launcher({{0, 2}, {1, 2}, {0, 1}});
              }),
              HasSubstr("rank 0 is on a host with 2 ranks, rank 2 on one with 1: every host needs the same number"));
  EXPECT_THAT(refusal([] { by_launcher({{0, 2}, {1, 2}, {0, 2}}); }), HasSubstr("3 ranks cannot be 2 per host"));
  EXPECT_THAT(refusal([] {
                by_launcher({{0, 2}, {0, 2}, {1, 2}, {1, 2}});
              }),
              HasSubstr("rank 1 is local rank 0 of its host, but with 2 ranks per host it must be 1: number the "
                        "ranks host by host"));
  EXPECT_THAT(refusal([] { by_launcher({{0, 2}, {0, 0}}); }), HasSubstr("ranks 0 and 1 disagree"));
  EXPECT_THAT(refusal([] { by_launcher({{0, 0}, {0, 0}, {0, 1}}); }), HasSubstr("ranks 0 and 2 disagree"));
}

TEST(Hosts, FromTheTransport) {
  EXPECT_EQ(by_transport({0}), 1);
  EXPECT_EQ(by_transport({0, 0, 0}), 3);
  EXPECT_EQ(by_transport({0, 0, 1, 1}), 2);
  EXPECT_EQ(by_transport({0, 1, 2, 3}), 1);
  EXPECT_EQ(by_transport({7, 7, 3, 3}), 2) << "numbers need not be in order";
}

TEST(Hosts, RanksThatAreNotNumberedHostByHost) {
  for (const std::vector<int32_t>& hosts :
       std::vector<std::vector<int32_t>>{{0, 1, 0, 1}, {0, 1, 1}, {0, 1, 1, 0}, {0, 0, 1, 2}}) {
    const std::string text = refusal([&] { by_transport(hosts); });
    EXPECT_THAT(text, HasSubstr("on an unexpected host"));
    EXPECT_THAT(text, HasSubstr("numbered host by host"));
    EXPECT_EQ(of_some(hosts), 1);
  }
  EXPECT_THAT(refusal([] { by_transport({0, 0, 1}); }), HasSubstr("rank 2"));
  EXPECT_THAT(refusal([] { by_transport({0, 1, 0, 1}); }), HasSubstr("rank 2"));
}

TEST(Hosts, OfAPartOfTheRanks) {
  EXPECT_EQ(of_some({0, 0, 1, 1}), 2);
  EXPECT_EQ(of_some({0, 1}), 1);
  EXPECT_EQ(of_some({0, 0, 1}), 1);
}

}  // namespace
}  // namespace tessera
