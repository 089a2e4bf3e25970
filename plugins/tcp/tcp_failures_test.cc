// Nothing hangs, and every rank learns who was at fault and during which operation.
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>

#include "testing.h"

namespace tessera::tcp {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

void pause(int ms) { std::this_thread::sleep_for(milliseconds(ms)); }

TEST(LateRank, IsNamedOnEveryRankWithTheOperation) {
  TestHost host;
  const Where where{.world_size = 4};
  const auto outcomes = in_threads(where, [&](int rank) {
    const auto group = connect(host, where, rank);
    finish(group->barrier(call()));
    if (rank == 3) pause(1500);
    std::vector<float> data(1000);
    finish(group->all_reduce(View<float>(data), TSR_REDUCE_SUM, call("loss", 0.5)));
    finish(group->barrier(call("next")));  // the late rank has all it needs, and learns of it now
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, TSR_DEADLINE_EXCEEDED);
    EXPECT_EQ(outcome.text, "tcp: rank 3 was late: all_reduce \"loss\" did not finish within 0.5 s");
  }
}

TEST(LateRank, InALargeReductionOnlyTheCulpritIsNamed) {
  TestHost host;
  const Where where{.world_size = 3};
  const auto outcomes = in_threads(where, [&](int rank) {
    const auto group = connect(host, where, rank);
    if (rank == 1) pause(1500);
    std::vector<float> data(2000000);
    finish(group->all_reduce(View<float>(data), TSR_REDUCE_SUM, call("grads", 0.5)));
  });
  for (const Outcome& outcome : outcomes) EXPECT_THAT(outcome.text, HasSubstr("rank 1 was late: all_reduce \"grads\""));
}

TEST(LateRank, DataThatArrivedInTimeIsNotLateBecauseTheWaitWas) {
  with_groups(2, [&](sdk::Group& group) {
    std::vector<float> data(100);
    View<float> view(data);
    sdk::Work* work = group.all_reduce(view, TSR_REDUCE_SUM, call("x", 0.3));
    pause(group.rank() == 0 ? 600 : 0);
    finish(work);
    finish(group.barrier(call()));
  });
}

TEST(LateRank, EveryLaterOperationFailsWithTheFirstError) {
  TestHost host;
  const Where where{.world_size = 2};
  in_threads(where, [&](int rank) {
    const auto group = connect(host, where, rank);
    if (rank == 1) return pause(1000);
    for (int i = 0; i < 3; ++i) {
      try {
        finish(group->barrier(call("first", i == 0 ? 0.2 : 5)));
        ADD_FAILURE() << "a barrier without rank 1";
      } catch (const sdk::Failure& failure) {
        EXPECT_STREQ(failure.what(), "tcp: rank 1 was late: barrier \"first\" did not finish within 0.2 s");
      }
    }
  });
}

// --- ranks as processes ----------------------------------------------------------------------------------------------

// Forks `world` ranks that run `body` and returns what each reported: the text of its failure, or "fine". A rank that
// is killed reports nothing. No thread may be running here.
std::map<int, std::string> in_processes(int world, double timeout_s, const std::function<void(sdk::Group&)>& body) {
  const Where where{.world_size = world, .timeout_s = timeout_s};
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      std::string text = "fine";
      try {
        TestHost host;
        body(*connect(host, where, rank));
      } catch (const std::exception& e) {
        text = e.what();
      }
      text = std::to_string(rank) + " " + text + "\n";
      _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    children.push_back(pid);
  }
  close(ends[1]);
  std::map<int, std::string> said;
  FILE* lines = fdopen(ends[0], "r");
  char line[1024];
  while (fgets(line, sizeof(line), lines)) {
    const std::string text(line, std::strlen(line) - 1);
    said[std::stoi(text)] = text.substr(text.find(' ') + 1);
  }
  fclose(lines);
  for (pid_t child : children) waitpid(child, nullptr, 0);
  return said;
}

TEST(DeadRank, IsNamedOnEveryRankWithTheOperation) {
  const auto said = in_processes(4, 20, [](sdk::Group& group) {
    std::vector<int32_t> ids(4000), got(4000);
    const std::vector<int64_t> counts(4, 1000);
    for (int step = 0; step < 1000; ++step) {
      if (group.rank() == 2 && step == 5) kill(getpid(), SIGKILL);
      finish(group.all_to_all_v(View<int32_t>(ids), counts, View<int32_t>(got), counts, call("ids")));
    }
  });
  ASSERT_EQ(said.size(), 3u);
  for (const auto& [rank, text] : said) {
    EXPECT_THAT(text, HasSubstr("tcp: rank 2 died during all_to_all_v \"ids\" (")) << "at rank " << rank;
  }
}

TEST(DeadRank, InTheMiddleOfALargeMessage) {
  const auto said = in_processes(3, 20, [](sdk::Group& group) {
    std::vector<float> data(20000000);
    View<float> view(data);
    sdk::Work* work = group.all_reduce(view, TSR_REDUCE_SUM, call("grads"));
    if (group.rank() == 0) kill(getpid(), SIGKILL);
    finish(work);
  });
  ASSERT_EQ(said.size(), 2u);
  for (const auto& [rank, text] : said) {
    EXPECT_THAT(text, HasSubstr("tcp: rank 0 died during all_reduce \"grads\" (")) << "at rank " << rank;
  }
}

// A rank whose program failed unwinds and closes its group: the others are told at once, not after their deadline.
TEST(LeavingRank, IsNamedByThoseWhoStillNeedIt) {
  TestHost host;
  const Where where{.world_size = 3};
  const auto outcomes = in_threads(where, [&](int rank) {
    const auto group = connect(host, where, rank);
    finish(group->barrier(call()));
    if (rank == 1) sdk::fail(TSR_NOT_FOUND, "no such file");
    finish(group->barrier(call("step")));
  });
  EXPECT_EQ(outcomes[1].text, "no such file");
  for (int rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].code, TSR_ABORTED);
    EXPECT_EQ(outcomes[rank].text, "tcp: rank 1 closed its group before barrier \"step\" was done");
  }
}

TEST(LeavingRank, WhoIsDoneMayLeaveBeforeTheOthers) {
  TestHost host;
  const Where where{.world_size = 3};
  for (int run = 0; run < 20; ++run) {
    const auto outcomes = in_threads(where, [&](int rank) {
      const auto group = connect(host, where, rank);
      std::vector<float> data(100000, 1.0f);
      View<float> view(data);
      sdk::Work* sum = group->all_reduce(view, TSR_REDUCE_SUM, call());
      if (rank == run % 3) pause(20);
      finish(sum);
      EXPECT_EQ(data[99999], 3.0f);
      finish(group->broadcast(view, 0, call()));
    });
    for (const Outcome& outcome : outcomes) ASSERT_EQ(outcome.code, TSR_OK) << outcome.text;
  }
}

TEST(Abort, FromAnotherThreadUnblocksAllRanksWithTheReason) {
  TestHost host;
  const Where where{.world_size = 3};
  const auto outcomes = in_threads(where, [&](int rank) {
    const auto group = connect(host, where, rank);
    if (rank == 2) {  // computes, and is asked to stop
      pause(200);
      std::thread([&] { group->abort("the user pressed Ctrl-C"); }).join();
    } else if (rank == 1) {  // waits, and another thread of it aborts too
      std::thread other([&] {
        pause(400);
        group->abort("too late to count");
      });
      try {
        finish(group->barrier(call("step")));
      } catch (...) {
        other.join();
        throw;
      }
      other.join();
    }
    finish(group->barrier(call("step")));
  });
  EXPECT_EQ(outcomes[2].code, TSR_CANCELLED);
  EXPECT_EQ(outcomes[2].text, "tcp: aborted by this rank: the user pressed Ctrl-C");
  for (int rank : {0, 1}) {
    EXPECT_EQ(outcomes[rank].code, TSR_ABORTED);
    EXPECT_EQ(outcomes[rank].text, "tcp: rank 2 aborted: the user pressed Ctrl-C");
  }
}

TEST(Mismatch, OfOperationsNamesBoth) {
  TestHost host;
  const Where where{.world_size = 2};
  const auto outcomes = in_threads(where, [&](int rank) {
    const auto group = connect(host, where, rank);
    std::vector<float> data(1024);
    if (rank == 0) finish(group->barrier(call("epoch")));
    if (rank == 1) finish(group->all_reduce(View<float>(data), TSR_REDUCE_SUM, call("loss")));
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, TSR_INVALID_ARGUMENT);
    EXPECT_THAT(outcome.text, HasSubstr("rank 1 called all_reduce \"loss\" (sum of float32, 4096 bytes)"));
    EXPECT_THAT(outcome.text, HasSubstr("rank 0 called barrier \"epoch\""));
  }
}

TEST(Mismatch, OfSizesTypesAndReductions) {
  TestHost host;
  const std::function<void(sdk::Group&)> bodies[] = {
      [](sdk::Group& group) {
        std::vector<float> data(group.rank() == 0 ? 10 : 20);
        finish(group.all_reduce(View<float>(data), TSR_REDUCE_SUM, call()));
      },
      [](sdk::Group& group) {
        std::vector<float> floats(10);
        std::vector<int32_t> integers(10);
        const int rank = group.rank();
        finish(rank == 0 ? group.all_reduce(View<float>(floats), TSR_REDUCE_SUM, call())
                         : group.all_reduce(View<int32_t>(integers), TSR_REDUCE_SUM, call()));
      },
      [](sdk::Group& group) {
        std::vector<float> data(10);
        finish(group.all_reduce(View<float>(data), group.rank() == 0 ? TSR_REDUCE_SUM : TSR_REDUCE_MAX, call()));
      },
      [](sdk::Group& group) {
        std::vector<float> send(4), recv(4);
        const std::vector<int64_t> even{2, 2}, uneven{1, 3};
        finish(group.all_to_all_v(View<float>(send), group.rank() == 0 ? even : uneven, View<float>(recv),
                                  group.rank() == 0 ? even : uneven, call()));
      },
  };
  for (const auto& body : bodies) {
    const Where where{.world_size = 2};
    for (const Outcome& outcome : in_threads(where, [&](int rank) { body(*connect(host, where, rank)); })) {
      EXPECT_EQ(outcome.code, TSR_INVALID_ARGUMENT);
      EXPECT_THAT(outcome.text, HasSubstr("tcp: ranks disagree: rank "));
    }
  }
}

TEST(Refusal, OfOneRanksArgumentsReachesAll) {
  TestHost host;
  const Where where{.world_size = 2};
  const auto outcomes = in_threads(where, [&](int rank) {
    const auto group = connect(host, where, rank);
    std::vector<float> send(4), recv(4);
    const std::vector<int64_t> good{2, 2}, bad{2, 3};
    finish(group->all_to_all_v(View<float>(send), rank == 0 ? bad : good, View<float>(recv), good, call("ids")));
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, TSR_INVALID_ARGUMENT);
    EXPECT_EQ(outcome.text,
              "tcp: the send counts sum up to 5, but the send buffer has 4 elements (rank 0, all_to_all_v \"ids\")");
  }
}

TEST(Refusal, OfATypeThatCannotBeReduced) {
  with_groups(1, [&](sdk::Group& group) {
    std::vector<uint8_t> bytes(4);
    EXPECT_THROW(group.all_reduce(View<uint8_t>(bytes), TSR_REDUCE_SUM, call()), sdk::Failure);
  });
}

TEST(Split, AFailureInOneGroupLeavesTheOthersAlone) {
  with_groups(4, [&](sdk::Group& group) {
    const auto child = group.split(group.rank() / 2);
    if (group.rank() == 0) child->abort("only this half");
    if (group.rank() < 2) {
      EXPECT_THROW(finish(child->barrier(call())), sdk::Failure);
    } else {
      finish(child->barrier(call()));
    }
    finish(group.barrier(call()));
  });
}

}  // namespace
}  // namespace tessera::tcp
