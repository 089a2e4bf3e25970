// Tests groups that are too large for direct exchanges: addresses come down a tree, and operations take rounds.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <numeric>

#include "testing.h"

namespace tessera::tcp {
namespace {

using testing::HasSubstr;

constexpr int kWorld = 20;
static_assert(kWorld > kToldByRank0);

// Rank r has r % 3 elements, so that some have none.
void gather(sdk::Group& group) {
  std::vector<int64_t> counts;
  std::vector<int32_t> expected;
  for (int r = 0; r < group.world_size(); ++r) {
    counts.push_back(r % 3);
    for (int i = 0; i < r % 3; ++i) expected.push_back(100 * r + i);
  }
  std::vector<int32_t> own, all(expected.size());
  for (int i = 0; i < group.rank() % 3; ++i) own.push_back(100 * group.rank() + i);
  finish(group.all_gather_v(View<int32_t>(own), View<int32_t>(all), counts, call("some")));
  EXPECT_EQ(all, expected) << group.rank();
}

void broadcast(sdk::Group& group, int root, size_t count) {
  std::vector<int32_t> data(count, -1), expected(count);
  std::iota(expected.begin(), expected.end(), root);
  if (group.rank() == root) data = expected;
  finish(group.broadcast(View<int32_t>(data), root, call("values")));
  EXPECT_EQ(data, expected) << group.rank();
}

// All sums are exact, so their order does not matter here.
void reduce(sdk::Group& group, size_t count) {
  std::vector<float> data(count, static_cast<float>(group.rank()));
  finish(group.all_reduce(View<float>(data), TSR_REDUCE_SUM, call("sum")));
  const auto world = static_cast<float>(group.world_size());
  EXPECT_EQ(data, std::vector<float>(count, world * (world - 1) / 2));
}

// A few ranks have something for a few others.
void exchange_some(sdk::Group& group) {
  const int world = group.world_size(), me = group.rank();
  const auto count = [](int from, int to) { return int64_t{(from + 2 * to) % 7 == 0}; };
  std::vector<int64_t> out, in;
  std::vector<int32_t> sent, expected;
  for (int r = 0; r < world; ++r) {
    out.push_back(count(me, r));
    in.push_back(count(r, me));
    if (out.back() > 0) sent.push_back(1000 * me + r);
    if (in.back() > 0) expected.push_back(1000 * r + me);
  }
  std::vector<int32_t> got(expected.size());
  finish(group.all_to_all_v(View<int32_t>(sent), out, View<int32_t>(got), in, call("some")));
  EXPECT_EQ(got, expected) << me;
}

void use(sdk::Group& group) {
  for (int step = 0; step < 3; ++step) {
    finish(group.barrier(call("step")));
    gather(group);
    broadcast(group, (7 * step + 3) % group.world_size(), step == 2 ? 300000 : 5);
    reduce(group, step == 2 ? 30000 : 100);
    exchange_some(group);
  }
}

TEST(ManyRanks, ExchangeInRounds) { with_groups(kWorld, use); }
TEST(ManyRanks, ExchangeInRoundsOverSockets) { with_groups(kWorld, use, R"({"shm": false})"); }

// A header of 64 bytes and 4 bytes of data go only to ranks that get data.
TEST(ManyRanks, SendNothingToThoseForWhomTheyHaveNothing) {
  with_groups(kWorld, [](sdk::Group& group) {
    const uint64_t before = group.bytes_sent();
    exchange_some(group);
    uint64_t called = 0;
    for (int r = 0; r < kWorld; ++r) called += r != group.rank() && (group.rank() + 2 * r) % 7 == 0;
    EXPECT_GT(called, 0u);
    EXPECT_EQ(group.bytes_sent() - before, 68 * called);
    const uint64_t then = group.bytes_sent();
    finish(group.barrier(call("step")));
    EXPECT_EQ(group.bytes_sent() - then, 64u * 5);  // a header in each of 5 rounds
  });
}

TEST(ManyRanks, AreSplit) {
  with_groups(kWorld, [](sdk::Group& group) {
    const std::unique_ptr<sdk::Group> part = group.split(group.rank() % 19 == 0, -group.rank(), call("split"));
    use(*part);
  });
}

TEST(ManyRanks, AreToldOfAFailureByEachOther) {
  TestHost host;
  const Where where{.world_size = kWorld};
  const auto outcomes = in_threads(where, [&](int rank) {
    const auto group = connect(host, where, rank);
    finish(group->barrier(call("all are here")));
    if (rank == 7) group->abort("enough");
    finish(group->barrier(call("step")));
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(outcomes[rank].code, rank == 7 ? TSR_CANCELLED : TSR_ABORTED);
    if (rank != 7) {
      EXPECT_EQ(outcomes[rank].text, "tcp: rank 7 aborted: enough") << rank;
    }
  }
}

// One rank waits for another one, which waits for the late one.
TEST(ManyRanks, NameTheLateOne) {
  TestHost host;
  const Where where{.world_size = kWorld};
  const auto outcomes = in_threads(where, [&](int rank) {
    const auto group = connect(host, where, rank);
    finish(group->barrier(call("all are here")));
    if (rank == 11) std::this_thread::sleep_for(std::chrono::milliseconds(3500));
    finish(group->barrier(call("step", 2)));
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_THAT(outcomes[rank].text, HasSubstr("rank 11 was late: barrier \"step\" did not finish")) << rank;
  }
}

// A missing rank also does not teach others. They do not wait for their addresses longer than the timeout.
TEST(ManyRanks, NameTheOneThatNeverArrives) {
  TestHost host;
  const Where where{.world_size = kWorld, .timeout_s = 3};
  const auto outcomes = in_threads(where, [&](int rank) {
    if (rank != 1) connect(host, where, rank);
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank != 1) {
      EXPECT_THAT(outcomes[rank].text, HasSubstr("rank 1 of 20 never arrived within 3 s")) << rank;
    }
  }
}

// Forks ranks that run `body`. Returns how many of them exited with 0.
int fork_ranks(const Where& where, const std::function<void(sdk::Group&)>& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < where.world_size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      int status = 0;
      try {
        TestHost host;
        body(*connect(host, where, rank));
      } catch (const std::exception& e) {
        std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
        status = 1;
      }
      _exit(status != 0 || testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(pid);
  }
  int well = 0;
  for (const pid_t child : children) {
    int status = 1;
    waitpid(child, &status, 0);
    well += status == 0;
  }
  return well;
}

// Each rank notices a dead rank long before the deadline.
TEST(ManyRanks, NameTheDeadOne) {
  const auto start = std::chrono::steady_clock::now();
  const int well = fork_ranks({.world_size = kWorld, .timeout_s = 100}, [](sdk::Group& group) {
    try {
      finish(group.barrier(call("all are here")));  // others may still be in it when one dies
      if (group.rank() == 13) kill(getpid(), SIGKILL);
      for (int i = 0; i < 2; ++i) finish(group.barrier(call("step")));
      ADD_FAILURE();
    } catch (const sdk::Failure& failure) {
      EXPECT_EQ(failure.rank(), 13);
      EXPECT_THAT(failure.what(), HasSubstr("tcp: rank 13 died during barrier"));
    }
  });
  EXPECT_EQ(well, kWorld - 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
}

// A rank that closes after a barrier tells only its near ranks. Others are still in the barrier.
TEST(ManyRanks, CloseAfterABarrier) {
  for (int late = 0; late < 5; ++late) {
    with_groups(kWorld, [&](sdk::Group& group) {
      if (group.rank() == 4 * late) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      finish(group.barrier(call("end")));
    });
  }
}

// If a rank closes while the others go on, all of them know at once that it is at fault.
TEST(ManyRanks, MissTheOneThatClosedAfterABarrier) {
  const auto start = std::chrono::steady_clock::now();
  TestHost host;
  const Where where{.world_size = kWorld, .timeout_s = 100};
  const auto outcomes = in_threads(where, [&](int rank) {
    const auto group = connect(host, where, rank);
    finish(group->barrier(call("all are here")));
    if (rank == 9) return;
    exchange_some(*group);
    for (int i = 0; i < 2; ++i) finish(group->barrier(call("step")));
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank != 9) {
      EXPECT_THAT(outcomes[rank].text, HasSubstr("rank 9 ")) << rank;
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
}

TEST(Long, TwoHundredAndFiftySixRanks) {
  const int well = fork_ranks({.world_size = 256, .timeout_s = 300}, use);
  EXPECT_EQ(well, 256);
}

}  // namespace
}  // namespace tessera::tcp
