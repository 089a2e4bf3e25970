// Checks every operation for several world sizes, data sizes and types.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

#include "ranks.h"

namespace tessera::test {
namespace {

constexpr int64_t kSizes[] = {0, 1, 2, 3, 17, 1000, 4096, 10000};

// Small whole numbers: sums are exact in every type.
template <class T>
T value(int rank, int64_t i) {
  return static_cast<T>((int64_t{31} * rank + i * 7) % 23 - 5);
}

template <class T>
std::vector<T> values(int rank, int64_t n) {
  std::vector<T> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] = value<T>(rank, i);
  return out;
}

template <class T>
T reduced(int world, int64_t i, int32_t op) {
  T result = value<T>(0, i);
  for (int r = 1; r < world; ++r) {
    const T v = value<T>(r, i);
    result = op == TSR_REDUCE_SUM   ? static_cast<T>(result + v)
             : op == TSR_REDUCE_MAX ? std::max(result, v)
                                    : std::min(result, v);
  }
  return result;
}

// Rank r's count of n things: uneven, some are 0.
std::vector<int64_t> uneven(int world, int64_t n) {
  std::vector<int64_t> counts(static_cast<size_t>(world));
  for (int r = 0; r < world; ++r) counts[static_cast<size_t>(r)] = r % 3 == 1 ? 0 : n * (r + 1) / world;
  return counts;
}

template <class T>
void check_all_to_all(Group& group, int64_t n) {
  const int world = group.world_size(), me = group.rank();
  // Rank a sends (a + 2 b) % 4 * n / 3 elements to rank b.
  const auto count = [&](int a, int b) { return (a + 2 * b) % 4 * n / 3; };
  std::vector<int64_t> send_counts, recv_counts;
  std::vector<T> send, want;
  for (int r = 0; r < world; ++r) {
    send_counts.push_back(count(me, r));
    recv_counts.push_back(count(r, me));
    for (int64_t i = 0; i < send_counts.back(); ++i) send.push_back(value<T>(me, i + r));
    for (int64_t i = 0; i < recv_counts.back(); ++i) want.push_back(value<T>(r, i + me));
  }
  std::vector<T> recv(want.size(), T{99});
  group.finish(group.all_to_all_v(View<T>(send), send_counts, View<T>(recv), recv_counts, call("ids")));
  EXPECT_EQ(recv, want) << "all_to_all_v of " << n << " at rank " << me << " of " << world;
}

template <class T>
void check_reductions(Group& group, int64_t n) {
  const int world = group.world_size(), me = group.rank();
  for (int32_t op : {TSR_REDUCE_SUM, TSR_REDUCE_MAX, TSR_REDUCE_MIN}) {
    std::vector<T> inout = values<T>(me, n);
    group.finish(group.all_reduce(View<T>(inout), op, call("loss")));
    std::vector<T> want(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) want[static_cast<size_t>(i)] = reduced<T>(world, i, op);
    EXPECT_EQ(inout, want) << "all_reduce " << op << " of " << n << " at rank " << me << " of " << world;

    const std::vector<int64_t> counts = uneven(world, n);
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const int64_t before = std::accumulate(counts.begin(), counts.begin() + me, int64_t{0});
    std::vector<T> send = values<T>(me, total), recv(static_cast<size_t>(counts[static_cast<size_t>(me)]), T{99});
    group.finish(group.reduce_scatter_v(View<T>(send), counts, View<T>(recv), op, call()));
    EXPECT_EQ(send, values<T>(me, total));
    for (size_t i = 0; i < recv.size(); ++i) {
      ASSERT_EQ(recv[i], reduced<T>(world, before + static_cast<int64_t>(i), op)) << "reduce_scatter_v at " << i;
    }
  }
}

template <class T>
void check_gather_and_broadcast(Group& group, int64_t n) {
  const int world = group.world_size(), me = group.rank();
  const std::vector<int64_t> counts = uneven(world, n);
  std::vector<T> send = values<T>(me, counts[static_cast<size_t>(me)]), want;
  for (int r = 0; r < world; ++r) {
    const std::vector<T> piece = values<T>(r, counts[static_cast<size_t>(r)]);
    want.insert(want.end(), piece.begin(), piece.end());
  }
  std::vector<T> recv(want.size(), T{99});
  group.finish(group.all_gather_v(View<T>(send), View<T>(recv), counts, call()));
  EXPECT_EQ(recv, want) << "all_gather_v of " << n << " at rank " << me << " of " << world;

  for (int root = 0; root < world; ++root) {
    std::vector<T> inout = values<T>(me, n);
    group.finish(group.broadcast(View<T>(inout), root, call()));
    EXPECT_EQ(inout, values<T>(root, n)) << "broadcast of " << n << " at rank " << me << " of " << world;
  }
  group.finish(group.barrier(call("step")));
}

template <class T>
void check_everything(Group& group, int64_t n) {
  check_all_to_all<T>(group, n);
  check_reductions<T>(group, n);
  check_gather_and_broadcast<T>(group, n);
}

class World : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, World, testing::Values(1, 2, 3, 4, 5));

TEST_P(World, EveryOperationOnEverySizeAndType) {
  with_groups(GetParam(), [&](Group& group) {
    EXPECT_EQ(group.world_size(), GetParam());
    for (int64_t n : kSizes) {
      check_everything<float>(group, n);
      check_everything<double>(group, n);
      check_everything<int32_t>(group, n);
      check_everything<int64_t>(group, n);
      check_all_to_all<uint8_t>(group, n);
      check_gather_and_broadcast<uint16_t>(group, n);
    }
  });
}

// Several chunks of a reduction, and several slices of a message. Each rank reduces more than a megabyte.
TEST(Large, EveryOperation) {
  for (int world : {2, 3}) {
    with_groups(world, [&](Group& group) { check_everything<float>(group, 1000003); });
  }
}

// Rank 1 gets 8.8 MB from itself.
TEST(Large, OwnPiece) {
  with_groups(2, [&](Group& group) { check_all_to_all<float>(group, 2200001); });
}

// A hash of the memory's content (FNV-1a).
uint64_t fingerprint(const std::vector<float>& data) {
  uint64_t h = 0xcbf29ce484222325u;
  const auto* bytes = reinterpret_cast<const unsigned char*>(data.data());
  for (size_t i = 0; i < data.size() * sizeof(float); ++i) h = (h ^ bytes[i]) * 0x100000001b3u;
  return h;
}

TEST(Reduction, SameBitsOnAllRanksAndInEveryRun) {
  for (const size_t n : {size_t{100}, size_t{1000}, size_t{300001}}) {
    std::vector<std::string> prints;
    for (int run = 0; run < 3; ++run) {
      const auto outcomes = texts_of(4, [&](Group& group) {
        std::mt19937 random(static_cast<unsigned>(group.rank()));
        std::vector<float> data(n);
        for (float& x : data) x = std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 40) - 50);
        group.finish(group.all_reduce(View<float>(data), TSR_REDUCE_SUM, call()));
        return std::to_string(fingerprint(data));
      });
      for (const Outcome& outcome : outcomes) prints.push_back(outcome.text);
    }
    ASSERT_EQ(prints.size(), 12u);
    for (const std::string& print : prints) EXPECT_EQ(print, prints[0]) << n << " floats";
  }
}

TEST(Asynchronous, ManyOperationsInFlightInAnyOrderOfWaiting) {
  with_groups(3, [&](Group& group) {
    constexpr int kCount = 150;  // more than a transport keeps in flight
    std::vector<std::vector<int32_t>> buffers(kCount);
    std::vector<std::unique_ptr<View<int32_t>>> views;
    std::vector<Pending> works;
    for (int i = 0; i < kCount; ++i) {
      buffers[i] = values<int32_t>(group.rank(), int64_t{200} * i);
      views.push_back(std::make_unique<View<int32_t>>(buffers[i]));
      works.push_back(i % 3 == 0 ? group.broadcast(*views[i], i % 2, call())
                                 : group.all_reduce(*views[i], TSR_REDUCE_SUM, call()));
    }
    for (int i = kCount - 1; i >= 0; --i) group.finish(works[i]);
    for (int i = 0; i < kCount; ++i) {
      std::vector<int32_t> want(buffers[i].size());
      for (size_t k = 0; k < want.size(); ++k) {
        const int64_t at = static_cast<int64_t>(k);
        want[k] = i % 3 == 0 ? value<int32_t>(i % 2, at) : reduced<int32_t>(3, at, TSR_REDUCE_SUM);
      }
      ASSERT_EQ(buffers[i], want) << i;
    }
  });
}

// Operations that were started progress while the caller does something else, as far as the transport's buffers allow.
TEST(Asynchronous, SmallOperationsNeedNoWaitOnTheOtherSide) {
  with_groups(2, [&](Group& group) {
    std::vector<int32_t> a = values<int32_t>(group.rank(), 100), b = a;
    View<int32_t> view_a(a), view_b(b);
    Pending first = group.all_reduce(view_a, TSR_REDUCE_SUM, call());
    Pending second = group.all_reduce(view_b, TSR_REDUCE_MAX, call());
    if (group.rank() == 0) {
      group.finish(second);
      group.finish(first);
    } else {
      group.finish(first);
      group.finish(second);
    }
    EXPECT_EQ(a[3], reduced<int32_t>(2, 3, TSR_REDUCE_SUM));
    EXPECT_EQ(b[3], reduced<int32_t>(2, 3, TSR_REDUCE_MAX));
  });
}

TEST(Split, GroupsByColorInRankOrderAndOfThemselvesAgain) {
  with_groups(5, [&](Group& group) {
    const int me = group.rank();
    const auto child = group.split(me == 4 ? -1 : me % 2);
    ASSERT_EQ(child == nullptr, me == 4);
    const auto again = group.split(0);  // all ranks
    ASSERT_EQ(again->world_size(), 5);
    check_everything<float>(*again, 100);
    if (!child) return;
    EXPECT_EQ(child->world_size(), 2);
    EXPECT_EQ(child->rank(), me / 2);
    check_everything<float>(*child, 1000);
    const auto alone = child->split(child->rank());
    EXPECT_EQ(alone->world_size(), 1);
    check_everything<int64_t>(*alone, 10);
  });
}

// The same operations of the same sizes, in groups of one parent that share members: only the group tells their
// messages apart. Ranks start them in different orders.
TEST(Split, MessagesOfGroupsAtTheSameTimeDoNotMix) {
  with_groups(4, [&](Group& group) {
    const int me = group.rank();
    std::vector<std::unique_ptr<Group>> groups;
    for (const int color : {0, me / 2, 0, me % 2, me % 3 == 0 ? 0 : 1}) groups.push_back(group.split(color));
    const size_t count = groups.size();
    for (const int64_t n : {int64_t{3}, int64_t{2000}, int64_t{50000}}) {
      for (size_t round = 0; round < 6; ++round) {
        std::vector<std::vector<int32_t>> data;
        for (size_t g = 0; g < count; ++g)
          data.push_back(std::vector<int32_t>(static_cast<size_t>(n), static_cast<int32_t>(1 + 10 * g + 1000 * round)));
        std::vector<Pending> pending(count);
        for (size_t k = 0; k < count; ++k) {
          const size_t g = me % 2 == 0 ? (k + round) % count : (2 * count - 1 - k + round) % count;
          pending[g] = groups[g]->all_reduce(View<int32_t>(data[g]), TSR_REDUCE_SUM, call());
        }
        for (size_t g = 0; g < count; ++g) {
          groups[g]->finish(pending[g]);
          const auto want = static_cast<int32_t>(1 + 10 * g + 1000 * round) * groups[g]->world_size();
          ASSERT_TRUE(std::all_of(data[g].begin(), data[g].end(), [&](int32_t x) { return x == want; }))
              << "group " << g << ", " << n << " elements, round " << round;
        }
      }
    }
  });
}

TEST(Split, AGroupOfOne) {
  with_groups(1, [&](Group& group) {
    EXPECT_EQ(group.split(0)->world_size(), 1);
    EXPECT_EQ(group.split(-1), nullptr);
  });
}

// A rank that only sends need not wait for the receivers, but its lead is bounded.
TEST(Asynchronous, ARankThatOnlySendsGoesAhead) {
  with_groups(3, [](Group& group) {
    if (group.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (int i = 0; i < 500; ++i) {
      std::vector<int32_t> data(static_cast<size_t>(i) * 10, group.rank() == 0 ? i : -1);
      group.finish(group.broadcast(View<int32_t>(data), 0, call()));
      ASSERT_TRUE(std::all_of(data.begin(), data.end(), [&](int32_t x) { return x == i; })) << i;
    }
  });
}

// A rank that waits for one group still does its part in the others.
TEST(Asynchronous, GroupsAreWaitedForInAnyOrder) {
  with_groups(2, [](Group& group) {
    const auto other = group.split(0);
    std::vector<float> a = values<float>(group.rank(), 100), b = a;
    const View<float> view_a(a), view_b(b);
    const Pending first = group.all_reduce(view_a, TSR_REDUCE_SUM, call("first"));
    const Pending second = other->all_reduce(view_b, TSR_REDUCE_SUM, call("second"));
    if (group.rank() == 0) {
      group.finish(first);
      other->finish(second);
    } else {
      other->finish(second);
      group.finish(first);
    }
    EXPECT_EQ(a[77], reduced<float>(2, 77, TSR_REDUCE_SUM));
    EXPECT_EQ(b[77], reduced<float>(2, 77, TSR_REDUCE_SUM));
  });
}

// Two threads, each with its own group, like a pipeline.
TEST(Asynchronous, ThreadsWithGroupsOfTheirOwn) {
  with_groups(2, [](Group& group) {
    const auto other = group.split(0);
    const auto exchange = [](Group& g, int seed) {
      for (int64_t n = 0; n < 300; ++n) {
        std::vector<int32_t> data = values<int32_t>(g.rank() + seed, n * 10);
        g.finish(g.all_reduce(View<int32_t>(data), TSR_REDUCE_SUM, call()));
        for (size_t i = 0; i < data.size(); ++i) {
          const int64_t at = static_cast<int64_t>(i);
          ASSERT_EQ(data[i], value<int32_t>(seed, at) + value<int32_t>(seed + 1, at));
        }
      }
    };
    std::thread pipeline([&] { exchange(*other, 5); });
    exchange(group, 0);
    pipeline.join();
  });
}

TEST(BytesSent, CountsWhatWentToOthers) {
  with_groups(2, [&](Group& group) {
    const uint64_t before = group.bytes_sent();
    std::vector<uint8_t> data(1000000);
    group.finish(group.broadcast(View<uint8_t>(data), 0, call()));
    const uint64_t sent = group.bytes_sent() - before;
    if (group.rank() == 0) {
      EXPECT_GE(sent, 1000000u);
      EXPECT_LT(sent, 1010000u);
    } else {
      EXPECT_EQ(sent, 0u);
    }
  });
}

TEST(Hosts, RanksOfOneMachineShareANumber) {
  with_groups(3, [](Group& group) {
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_GE(group.host_of(rank), 0);
      EXPECT_EQ(group.host_of(rank), group.host_of(0));
    }
  });
}

}  // namespace
}  // namespace tessera::test
