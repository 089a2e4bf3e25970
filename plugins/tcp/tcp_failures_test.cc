// Ranks that are killed must be named by all others at once. tests/collective tests other failures, for every
// transport.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include "testing.h"

namespace tessera::tcp {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Forks `world` ranks that run `body`, and returns what each reported: the text of its failure, or "fine". A killed
// rank reports nothing. No other thread may be running when this is called.
std::map<int, std::string> in_processes(int world, double timeout_s, const std::function<void(sdk::Group&)>& body,
                                        const std::string& options = "{}") {
  const Where where{.world_size = world, .timeout_s = timeout_s, .options = options};
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      std::string text = "blames -1: fine";
      try {
        TestHost host;
        body(*connect(host, where, rank));
      } catch (const sdk::Failure& e) {
        text = "blames " + std::to_string(e.rank()) + ": " + e.what();
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

// Shared memory does not show that the other rank is gone, so a rank that polls indefinitely must also check the
// socket.
TEST(DeadRank, IsNoticedByRanksThatNeverSleep) {
  const auto start = std::chrono::steady_clock::now();
  const auto said = in_processes(
      3, 100,
      [](sdk::Group& group) {
        if (group.rank() == 1) kill(getpid(), SIGKILL);
        finish(group.barrier(call("meeting")));
      },
      R"({"spin_us": 1e9})");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));  // long before the deadline
  // A slow rank may still be in the barrier of the connection.
  for (int rank : {0, 2}) EXPECT_THAT(said.at(rank), HasSubstr("blames 1: tcp: rank 1 died during barrier ")) << rank;
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
    EXPECT_THAT(text, HasSubstr("blames 2: tcp: rank 2 died during all_to_all_v \"ids\" (")) << "at rank " << rank;
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
    EXPECT_THAT(text, HasSubstr("blames 0: tcp: rank 0 died during all_reduce \"grads\" (")) << "at rank " << rank;
  }
}

// The bytes that the dead rank lent were still in its memory. (Another rank may still be in the barrier when it dies.)
TEST(DeadRank, WhoseMessagesWereNotFetchedYet) {
  const auto said = in_processes(3, 20, [](sdk::Group& group) {
    std::vector<int32_t> ids(3000000), got(ids.size());
    const std::vector<int64_t> counts(3, 1000000);
    finish(group.barrier(call()));
    View<int32_t> from(ids), to(got);
    if (group.rank() != 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    sdk::Work* work = group.all_to_all_v(from, counts, to, counts, call("rows"));
    if (group.rank() == 1) kill(getpid(), SIGKILL);
    finish(work);
  });
  ASSERT_EQ(said.size(), 2u);
  for (const auto& [rank, text] : said) {
    EXPECT_THAT(text, HasSubstr("blames 1: tcp: rank 1 died during ")) << "at rank " << rank;
  }
}

// Rank 1 cannot finish sending, because rank 2 receives nothing. So rank 1 is also late in the operation that rank 0
// waits for.
TEST(LateRank, IsNamedByThoseWhoWaitForOneThatItHoldsUp) {
  const auto said = in_processes(3, 20, [](sdk::Group& group) {
    std::vector<float> weights(16 << 20);
    if (group.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    finish(group.broadcast(View<float>(weights), 1, call("weights", group.rank() == 1 ? 2.0 : 20)));
    finish(group.barrier(call("step", 1.6)));
  });
  ASSERT_EQ(said.size(), 3u);
  for (const auto& [rank, text] : said) {
    EXPECT_THAT(text, AllOf(HasSubstr("blames 2: tcp: rank 2 was late: "), Not(HasSubstr("rank 1"))))
        << "at rank " << rank;
  }
}

}  // namespace
}  // namespace tessera::tcp
