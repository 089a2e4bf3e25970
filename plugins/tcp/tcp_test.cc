// Tests the transport through its C functions. tests/collective tests the duties of every transport, including this
// one.
#include "tessera/sdk/wrapped.h"
#include "testing.h"

namespace tessera::tcp {
namespace {

// Calls the C functions like the core does.
TEST(Table, ConnectsAndExchanges) {
  TestHost host;
  const Where where{.world_size = 2};
  const tsr_collective& api = sdk::Collective::table<Tcp>;
  EXPECT_EQ(api.flags, 0u);
  const auto outcomes = in_threads(where, [&](int rank) {
    sdk::Options options("{}");
    Tcp tcp(sdk::Setup{host.host(), options, nullptr});
    const tsr_rendezvous rendezvous = rendezvous_of(rank, 2, where.port, "localhost", "t", 20);
    sdk::Call c;
    tsr_group* group = nullptr;
    c.check(api.connect(&tcp, &rendezvous, &group, c.err()));
    EXPECT_EQ(api.rank(group), rank);
    std::vector<float> data{1, 2, 3};
    const View<float> view(data);
    const tsr_collective_call how = call();
    tsr_work* work = nullptr;
    c.check(api.all_reduce(group, &static_cast<const DLTensor&>(view), TSR_REDUCE_SUM, &how, &work, c.err()));
    c.check(api.wait(work, c.err()));
    EXPECT_THAT(data, testing::ElementsAre(2, 4, 6));
    api.close(group);
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.code, TSR_OK) << outcome.text;
}

// Runs barriers in which each of the two ranks is sometimes late.
void wait_for_each(sdk::Group& group, int rank) {
  for (int i = 0; i < 10; ++i) {
    if (i % 2 == rank) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    finish(group.barrier(call("step")));
  }
}

// The times are right in a group and in groups split off it, where ranks have other numbers.
TEST(Table, TellsForWhomItHasWaited) {
  TestHost host;
  const Where where{.world_size = 2};
  const auto outcomes = in_threads(where, [&](int rank) {
    sdk::Options options("{}");
    Tcp tcp(sdk::Setup{host.host(), options, nullptr});
    EXPECT_EQ(tcp.extension("tessera.collective.waits/draft-0"), nullptr);
    const auto* waits = static_cast<const tsr_collective_waits*>(tcp.extension(TSR_COLLECTIVE_WAITS));
    ASSERT_NE(waits, nullptr);
    const std::unique_ptr<sdk::Group> group = connect(host, where, rank);
    const auto waited = [&](const sdk::Group& of) {
      std::vector<double> seconds(2, -1);
      sdk::Call c;
      c.check(waits->waited(reinterpret_cast<const tsr_group*>(&of), seconds.data(), c.err()));
      return seconds;
    };
    const auto me = static_cast<size_t>(rank), other = 1 - me;
    wait_for_each(*group, rank);
    const std::vector<double> before = waited(*group);
    EXPECT_EQ(before[me], 0);
    EXPECT_GT(before[other], 0);
    const std::unique_ptr<sdk::Group> child = group->split(0, -rank, call("split"));
    wait_for_each(*child, rank);
    const std::vector<double> after = waited(*group);
    EXPECT_GT(after[other], before[other]);
    EXPECT_THAT(waited(*child), testing::ElementsAre(after[1], after[0]));
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.code, TSR_OK) << outcome.text;
}

struct ThroughGroup final : sdk::WrappedGroup {
  using WrappedGroup::WrappedGroup;
  std::unique_ptr<sdk::Group> wrap(sdk::InnerGroup inner) const override {
    return std::make_unique<ThroughGroup>(std::move(inner));
  }
};
struct Through final : sdk::WrappedCollective {
  explicit Through(const sdk::Setup& setup) : WrappedCollective(setup, "through") {}
  std::unique_ptr<sdk::Group> wrap(sdk::InnerGroup inner) const override {
    return std::make_unique<ThroughGroup>(std::move(inner));
  }
};

TEST(Table, WhatWrapsItTellsForWhomItHasWaited) {
  TestHost host;
  const Where where{.world_size = 2};
  const tsr_component component = sdk::component<Tcp>({.id = "tcp", .version = "1.0.0", .about = "tcp"});
  const auto outcomes = in_threads(where, [&](int rank) {
    sdk::Options options("{}");
    Tcp tcp(sdk::Setup{host.host(), options, nullptr});
    const tsr_instance part{&component, &tcp};
    Through through(sdk::Setup{host.host(), options, &part});
    ASSERT_NE(through.extension(TSR_COLLECTIVE_WAITS), nullptr);
    const std::unique_ptr<sdk::Group> group = through.connect(rendezvous_of(rank, 2, where.port, "localhost", "t", 20));
    wait_for_each(*group, rank);
    std::vector<double> seconds(2, -1);
    EXPECT_TRUE(group->waited_s(seconds));
    EXPECT_EQ(seconds[static_cast<size_t>(rank)], 0);
    EXPECT_GT(seconds[static_cast<size_t>(1 - rank)], 0);
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.code, TSR_OK) << outcome.text;
}

}  // namespace
}  // namespace tessera::tcp
