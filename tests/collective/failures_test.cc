// Nothing hangs, and every rank learns which rank was at fault and during which operation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "ranks.h"

namespace tessera::test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

void pause(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Every text begins with the transport's id, without that of a wrapped one.
std::string said(const std::string& text) { return job().speaker() + ": " + text; }

TEST(LateRank, IsNamedOnEveryRankWithTheOperation) {
  const auto outcomes = outcomes_of(4, [](Group& group) {
    group.finish(group.barrier(call()));
    if (group.rank() == 3) pause(1500);
    std::vector<float> data(1000);
    group.finish(group.all_reduce(View<float>(data), TSR_REDUCE_SUM, call("loss", 0.5)));
    group.finish(group.barrier(call("next")));  // the late rank may have all it needs, and learns of the failure here
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, TSR_DEADLINE_EXCEEDED);
    EXPECT_EQ(outcome.text, said("rank 3 was late: all_reduce \"loss\" did not finish within 0.5 s"));
    EXPECT_EQ(outcome.rank, 3);
  }
}

TEST(LateRank, SeveralAreAllNamed) {
  const auto outcomes = outcomes_of(4, [](Group& group) {
    group.finish(group.barrier(call()));
    if (group.rank() % 2 == 1) pause(1500);
    group.finish(group.barrier(call("step", 0.5)));
    group.finish(group.barrier(call("next")));
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.text, said("ranks 1, 3 were late: barrier \"step\" did not finish within 0.5 s"));
  }
}

TEST(LateRank, InALargeReductionOnlyTheCulpritIsNamed) {
  const auto outcomes = outcomes_of(3, [](Group& group) {
    if (group.rank() == 1) pause(1500);
    std::vector<float> data(2000000);
    group.finish(group.all_reduce(View<float>(data), TSR_REDUCE_SUM, call("grads", 0.5)));
  });
  for (const Outcome& outcome : outcomes) EXPECT_THAT(outcome.text, HasSubstr("rank 1 was late: all_reduce \"grads\""));
}

TEST(LateRank, DataThatArrivedInTimeIsNotLateBecauseTheWaitWas) {
  with_groups(2, [](Group& group) {
    std::vector<float> data(100);
    const View<float> view(data);
    const Pending work = group.all_reduce(view, TSR_REDUCE_SUM, call("x", 1));
    pause(group.rank() == 0 ? 1500 : 0);
    group.finish(work);
    group.finish(group.barrier(call()));
  });
}

TEST(LateRank, EveryLaterOperationFailsWithTheFirstError) {
  outcomes_of(2, [](Group& group) {
    if (group.rank() == 1) return pause(1000);
    for (int i = 0; i < 3; ++i) {
      try {
        group.finish(group.barrier(call("first", i == 0 ? 0.2 : 5)));
        ADD_FAILURE() << "a barrier without rank 1";
      } catch (const sdk::Failure& failure) {
        EXPECT_EQ(failure.what(), said("rank 1 was late: barrier \"first\" did not finish within 0.2 s"));
      }
    }
  });
}

// Operations started after the one that failed also end, with the same error.
TEST(LateRank, OperationsInFlightAllEnd) {
  outcomes_of(2, [](Group& group) {
    if (group.rank() == 1) return pause(1000);
    std::vector<float> a(10), b(100000), c(10);
    const View<float> view_a(a), view_b(b), view_c(c);
    const Pending works[] = {group.all_reduce(view_a, TSR_REDUCE_SUM, call("a", 0.3)),
                             group.all_reduce(view_b, TSR_REDUCE_SUM, call("b", 5)),
                             group.broadcast(view_c, 1, call("c", 5))};
    for (const Pending work : works) {
      try {
        group.finish(work);
        ADD_FAILURE() << "an operation without rank 1";
      } catch (const sdk::Failure& failure) {
        EXPECT_EQ(failure.what(), said("rank 1 was late: all_reduce \"a\" did not finish within 0.3 s"));
      }
    }
  });
}

// A rank that is told of a failure may free the buffers, or reuse them.
TEST(LateRank, AfterTheFailureNothingTouchesTheBuffers) {
  constexpr int64_t kHalf = 50000;
  const std::vector<int64_t> halves{kHalf, kHalf};
  const std::function<Pending(Group&, View<float>&, View<float>&)> starts[] = {
      [&](Group& group, View<float>& send, View<float>& recv) {
        return group.all_to_all_v(send, halves, recv, halves, call("rows", 0.2));
      },
      [](Group& group, View<float>&, View<float>& inout) {
        return group.all_reduce(inout, TSR_REDUCE_SUM, call("grads", 0.2));
      },
      [](Group& group, View<float>&, View<float>& inout) { return group.broadcast(inout, 1, call("plan", 0.2)); },
  };
  for (const auto& start : starts) {
    with_groups(2, [&](Group& group) {
      if (group.rank() == 1) return pause(800);
      std::vector<float> send(2 * kHalf, 1.0f), recv(2 * kHalf, 1.0f);
      View<float> view_send(send), view_recv(recv);
      EXPECT_THROW(group.finish(start(group, view_send, view_recv)), sdk::Failure);
      std::fill(recv.begin(), recv.end(), 0.0f);
      pause(200);
      EXPECT_EQ(std::count(recv.begin(), recv.end(), 0.0f), 2 * kHalf);
    });
  }
}

// A rank whose program failed unwinds and closes its group. The others are told at once, not at their deadline.
TEST(LeavingRank, IsNamedByThoseWhoStillNeedIt) {
  const auto outcomes = outcomes_of(3, [](Group& group) {
    group.finish(group.barrier(call()));
    if (group.rank() == 1) sdk::fail(TSR_NOT_FOUND, "no such file");
    group.finish(group.barrier(call("step")));
  });
  EXPECT_EQ(outcomes[1].text, "no such file");
  for (const int rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].code, TSR_ABORTED);
    EXPECT_EQ(outcomes[rank].text, said("rank 1 closed its group before barrier \"step\" was done"));
  }
}

TEST(LeavingRank, WhoIsDoneMayLeaveBeforeTheOthers) {
  for (int run = 0; run < 10; ++run) {
    with_groups(3, [&](Group& group) {
      std::vector<float> data(100000, 1.0f);
      const View<float> view(data);
      const Pending sum = group.all_reduce(view, TSR_REDUCE_SUM, call());
      if (group.rank() == run % 3) pause(20);
      group.finish(sum);
      EXPECT_EQ(data[99999], 3.0f);
      group.finish(group.broadcast(view, 0, call()));
    });
  }
}

TEST(Abort, FromAnotherThreadUnblocksAllRanksWithTheReason) {
  const auto outcomes = outcomes_of(3, [](Group& group) {
    if (group.rank() == 2) {  // computes, and is told to stop
      pause(200);
      std::thread([&] { group.abort("the user pressed Ctrl-C"); }).join();
    } else if (group.rank() == 1) {  // waits, and then another of its threads also aborts
      try {
        group.finish(group.barrier(call("step")));
      } catch (const sdk::Failure&) {
        std::thread([&] { group.abort("too late to count"); }).join();
      }
    }
    group.finish(group.barrier(call("step")));
  });
  EXPECT_EQ(outcomes[2].code, TSR_CANCELLED);
  EXPECT_EQ(outcomes[2].text, said("aborted by this rank: the user pressed Ctrl-C"));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(outcomes[rank].code, TSR_ABORTED);
    EXPECT_EQ(outcomes[rank].text, said("rank 2 aborted: the user pressed Ctrl-C"));
  }
}

TEST(Abort, UnblocksAWaiterOfTheSameProcess) {
  const auto outcomes = outcomes_of(2, [](Group& group) {
    if (group.rank() == 1) return pause(600);
    std::thread other([&] {
      pause(200);
      group.abort("enough");
    });
    try {
      group.finish(group.barrier(call("step")));
    } catch (...) {
      other.join();
      throw;
    }
    other.join();
  });
  EXPECT_EQ(outcomes[0].text, said("aborted by this rank: enough"));
}

TEST(Mismatch, OfOperationsNamesBoth) {
  const auto outcomes = outcomes_of(2, [](Group& group) {
    std::vector<float> data(1024);
    if (group.rank() == 0) group.finish(group.barrier(call("epoch")));
    if (group.rank() == 1) group.finish(group.all_reduce(View<float>(data), TSR_REDUCE_SUM, call("loss")));
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, TSR_INVALID_ARGUMENT);
    EXPECT_THAT(outcome.text, HasSubstr("rank 1 called all_reduce \"loss\" (sum of float32, 4096 bytes)"));
    EXPECT_THAT(outcome.text, HasSubstr("rank 0 called barrier \"epoch\""));
  }
}

TEST(Mismatch, OfSizesTypesAndReductions) {
  const std::function<void(Group&)> bodies[] = {
      [](Group& group) {
        std::vector<float> data(group.rank() == 0 ? 10 : 20);
        group.finish(group.all_reduce(View<float>(data), TSR_REDUCE_SUM, call()));
      },
      [](Group& group) {  // one is in a message with the header, the other in several messages
        std::vector<float> data(group.rank() == 0 ? 10 : 200000);
        group.finish(group.all_reduce(View<float>(data), TSR_REDUCE_SUM, call()));
      },
      [](Group& group) {
        std::vector<float> floats(10);
        std::vector<int32_t> integers(10);
        group.finish(group.rank() == 0 ? group.all_reduce(View<float>(floats), TSR_REDUCE_SUM, call())
                                       : group.all_reduce(View<int32_t>(integers), TSR_REDUCE_SUM, call()));
      },
      [](Group& group) {
        std::vector<float> data(10);
        const int32_t op = group.rank() == 0 ? TSR_REDUCE_SUM : TSR_REDUCE_MAX;
        group.finish(group.all_reduce(View<float>(data), op, call()));
      },
      [](Group& group) {
        std::vector<float> send(4), recv(4);
        const std::vector<int64_t> even{2, 2}, uneven{1, 3};
        const auto& counts = group.rank() == 0 ? even : uneven;
        group.finish(group.all_to_all_v(View<float>(send), counts, View<float>(recv), counts, call()));
      },
      [](Group& group) {  // large: the other's data does not fit into the receive buffer
        std::vector<float> send(400000), recv(400000);
        const std::vector<int64_t> even{200000, 200000}, uneven{100000, 300000};
        const auto& counts = group.rank() == 0 ? even : uneven;
        group.finish(group.all_to_all_v(View<float>(send), counts, View<float>(recv), counts, call()));
      },
  };
  for (const auto& body : bodies) {
    for (const Outcome& outcome : outcomes_of(2, body)) {
      EXPECT_EQ(outcome.code, TSR_INVALID_ARGUMENT);
      EXPECT_THAT(outcome.text, HasSubstr(said("ranks disagree: rank ")));
    }
  }
}

// Rank 0 calls an operation with wrong arguments, rank 1 with right ones: both are told.
struct WrongCall {
  const char* text;
  std::function<void(Group&, bool wrong)> body;
};

std::vector<WrongCall> wrong_calls() {
  using Numbers = std::vector<int64_t>;
  const auto all_to_all = [](const Numbers& sends, const Numbers& receives) {
    return [sends, receives](Group& group, bool wrong) {
      std::vector<float> send(4), recv(4);
      const Numbers even{2, 2};
      group.finish(group.all_to_all_v(View<float>(send), wrong ? sends : even, View<float>(recv),
                                      wrong ? receives : even, call("ids")));
    };
  };
  return {
      {"the send counts sum up to 5, but the send buffer has 4 elements (rank 0, all_to_all_v \"ids\")",
       all_to_all({2, 3}, {2, 2})},
      {"the receive counts sum up to 3, but the receive buffer has 4 elements (rank 0, all_to_all_v \"ids\")",
       all_to_all({2, 2}, {2, 1})},
      {"the send count for rank 0 is negative (rank 0, all_to_all_v \"ids\")", all_to_all({-1, 5}, {2, 2})},
      {"this rank sends itself 1 elements, but expects 2 (rank 0, all_to_all_v \"ids\")", all_to_all({1, 3}, {2, 2})},
      {"the send and receive buffers have different element types (rank 0, all_gather_v)",
       [](Group& group, bool wrong) {
         std::vector<float> send(2), recv(4);
         std::vector<int32_t> others(4);
         const Numbers even{2, 2};
         if (wrong) return group.finish(group.all_gather_v(View<float>(send), View<int32_t>(others), even, call()));
         group.finish(group.all_gather_v(View<float>(send), View<float>(recv), even, call()));
       }},
      {"this rank's count is 2, but its send buffer has 3 elements (rank 0, all_gather_v)",
       [](Group& group, bool wrong) {
         std::vector<float> send(wrong ? 3 : 2), recv(4);
         group.finish(group.all_gather_v(View<float>(send), View<float>(recv), Numbers{2, 2}, call()));
       }},
      {"this rank's count is 2, but its receive buffer has 1 elements (rank 0, reduce_scatter_v)",
       [](Group& group, bool wrong) {
         std::vector<float> send(4), recv(wrong ? 1 : 2);
         group.finish(
             group.reduce_scatter_v(View<float>(send), Numbers{2, 2}, View<float>(recv), TSR_REDUCE_SUM, call()));
       }},
      {"root 2 is not a rank of a group of 2 (rank 0, broadcast)",
       [](Group& group, bool wrong) {
         std::vector<float> data(4);
         group.finish(group.broadcast(View<float>(data), wrong ? 2 : 0, call()));
       }},
  };
}

TEST(Refusal, OfOneRanksArgumentsReachesAll) {
  for (const WrongCall& wrong : wrong_calls()) {
    const auto outcomes = outcomes_of(2, [&](Group& group) { wrong.body(group, group.rank() == 0); });
    EXPECT_EQ(outcomes[0].code, TSR_INVALID_ARGUMENT) << wrong.text;
    for (const Outcome& outcome : outcomes) {
      EXPECT_NE(outcome.code, TSR_OK) << wrong.text;
      EXPECT_THAT(outcome.text, EndsWith(said(wrong.text)));
    }
  }
}

TEST(Refusal, OfATypeThatCannotBeReduced) {
  with_groups(1, [](Group& group) {
    std::vector<uint8_t> bytes(4);
    EXPECT_THROW(group.all_reduce(View<uint8_t>(bytes), TSR_REDUCE_SUM, call()), sdk::Failure);
  });
}

TEST(Split, AFailureInOneGroupLeavesTheOthersAlone) {
  with_groups(4, [](Group& group) {
    const auto child = group.split(group.rank() / 2);
    if (group.rank() == 0) child->abort("only this half");
    if (group.rank() < 2) {
      EXPECT_THROW(child->finish(child->barrier(call())), sdk::Failure);
    } else {
      child->finish(child->barrier(call()));
    }
    group.finish(group.barrier(call()));
  });
}

}  // namespace
}  // namespace tessera::test
