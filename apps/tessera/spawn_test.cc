#include "spawn.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

#include "config/test_directory.h"
#include "config/test_refusal.h"
#include "rank_status.h"
#include "shell.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

using test::Ended;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Returns with the status what the launcher and its ranks have written to standard error.
Ended launched(const LaunchOptions& options, const std::vector<std::string>& command) {
  testing::internal::CaptureStderr();
  const int status = launch(options, command);
  return {status, testing::internal::GetCapturedStderr()};
}
Ended launch_shell(const LaunchOptions& options, const std::string& script) {
  return launched(options, {"sh", "-c", script});
}

// Starts a launcher in a process of its own, which writes its standard error to `said`.
pid_t started(const LaunchOptions& options, const std::string& script, const std::string& said = "/dev/null") {
  const pid_t launcher = fork();
  if (launcher != 0) return launcher;
  signal(SIGINT, SIG_DFL);  // independent of how the tests were started
  dup2(open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
  _exit(launch(options, {"sh", "-c", script}));
}

// Waits for a process, and returns its status, or -1 unless it exited by itself.
int status_of(pid_t process) {
  int status = 0;
  EXPECT_EQ(waitpid(process, &status, 0), process);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Launch : public testing::Test {
 protected:
  const test::TestDirectory folder_;
  const std::string path_ = folder_.file("told");  // for the ranks, which may append to the name
};

TEST_F(Launch, SetsTheEnvironmentOfEachRank) {
  const std::string script =
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR "
      "${#TESSERA_JOB_TOKEN} $((MASTER_PORT > 0)) > " +
      path_ + ".$RANK";
  const auto [status, said] = launch_shell({.ranks = 2}, script);
  EXPECT_EQ(status, 0);
  for (int rank = 0; rank < 2; ++rank) {
    std::string line;
    std::getline(std::ifstream(str_cat(path_, '.', rank)), line);
    EXPECT_EQ(line, str_cat(rank, " 2 ", rank, " 2 127.0.0.1 32 1"));
  }
  EXPECT_EQ(said, "");
}

TEST_F(Launch, NamesTheRankThatFailedAndEndsTheOthers) {
  const auto start = std::chrono::steady_clock::now();
  const auto [status, said] = launch_shell({.ranks = 3}, "if [ $RANK = 1 ]; then exit 7; fi; exec sleep 60");
  EXPECT_EQ(status, 7);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_THAT(said, HasSubstr("rank 1 (process "));
  EXPECT_THAT(said, HasSubstr("exited with status 7"));
  EXPECT_THAT(said, HasSubstr("(2 still ran)"));
}

// A rank that lost another one exits with 1. The other one may take long to end, but its status explains more.
TEST_F(Launch, PrefersTheStatusThatExplainsOthers) {
  EXPECT_EQ(launch_shell({.ranks = 3}, "[ $RANK = 1 ] && exit 2; exit 1").status, 2);
  const auto [status, said] = launch_shell({.ranks = 2, .job_restarts = 2, .restart_pause_s = 0.1, .table = true},
                                           "trap '' TERM; [ $RANK = 1 ] || exit 1; sleep 0.5; exit 2");
  EXPECT_EQ(status, 2);
  EXPECT_THAT(said, HasSubstr("exited with status 2, the first to fail"));
  EXPECT_THAT(said, Not(HasSubstr("starting the job again")));
}

TEST_F(Launch, StartsAFailedRankAgainSoOften) {
  // Rank 1 is killed twice and then succeeds; rank 0 waits for that.
  const std::string script = "if [ $RANK = 0 ]; then until [ -e " + path_ +
                             ".done ]; do sleep 0.05; done; exit 0; fi; " + "echo x >> " + path_ + "; [ $(wc -l < " +
                             path_ + ") -lt 3 ] && kill -9 $$; touch " + path_ + ".done";
  const auto [status, said] = launch_shell({.ranks = 2, .restarts = 2}, script);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(said, HasSubstr("was killed by signal 9 (Killed); starting it again in 0.3 s (1 restarts are left)"));
  EXPECT_THAT(said, HasSubstr("starting it again in 0.6 s (0 restarts are left)"));
  const Ended ended = launch_shell({.ranks = 1, .restarts = 1}, "exit 5");
  EXPECT_EQ(ended.status, 5) << "the last failure is the job's";
  EXPECT_THAT(ended.output, HasSubstr("exited with status 5"));
}

// Rank 0 counts the starts. In the first two, rank 2 is killed while the others wait.
TEST_F(Launch, StartsTheJobAgainWithTheRanksThatAreLeft) {
  const std::string script = "[ $RANK = 0 ] && echo $WORLD_SIZE $MASTER_PORT >> " + path_ +
                             "; if [ $RANK = 2 ]; then until grep -q \"^$WORLD_SIZE \" " + path_ +
                             "; do sleep 0.02; done; kill -9 $$; fi; [ $WORLD_SIZE -gt 2 ] && exec sleep 60; exit 0";
  const auto [status, said] =
      launch_shell({.ranks = 4, .job_restarts = 3, .restart_pause_s = 0.1, .least_ranks = 2}, script);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(said, HasSubstr("starting the job again with 3 ranks in 0.1 s (2 restarts of it are left)"));
  EXPECT_THAT(said, HasSubstr("starting the job again with 2 ranks in 0.2 s (1 restarts of it are left)"));
  std::ifstream in(path_);
  std::vector<std::string> worlds;
  for (std::string world, port; in >> world >> port;) worlds.push_back(world);
  EXPECT_THAT(worlds, ElementsAre("4", "3", "2"));
}

// A rank that exits by itself is restarted with the others; only a rank that was killed is left out.
TEST_F(Launch, StartsAJobAgainWithAllRanksThatWereNotKilled) {
  for (const auto& [end, ranks] : {std::pair{"exit 1", 3}, {"exit 137", 2}}) {
    const std::string script = str_cat("[ $RANK = 1 ] && ", end, "; exec sleep 60");
    const auto [status, said] = launch_shell({.ranks = 3, .job_restarts = 1, .least_ranks = 1}, script);
    EXPECT_NE(status, 0);
    EXPECT_THAT(said, HasSubstr(str_cat("starting the job again with ", ranks, " ranks"))) << end;
  }
}

TEST_F(Launch, ASignalEndsAPauseBetweenStarts) {
  const pid_t launcher = started({.ranks = 1, .job_restarts = 9}, "exit 1", path_);
  std::string said;
  for (int i = 0; i < 1000 && said.find("in 1 s (8 restarts") == std::string::npos; ++i) {
    usleep(10000);
    std::ifstream in(path_);
    said.assign(std::istreambuf_iterator<char>(in), {});
  }
  kill(launcher, SIGTERM);
  EXPECT_EQ(status_of(launcher), 128 + SIGTERM) << said;
}

TEST_F(Launch, StartsAJobAgainOnlyWhereThatMayHelp) {
  for (const auto& [status, starts] : {std::pair{1, 2}, {2, 1}, {75, 1}, {127, 1}}) {
    const std::string path = str_cat(path_, status);
    EXPECT_EQ(launch_shell({.job_restarts = 1}, str_cat("echo x >> ", path, "; exit ", status)).status, status);
    std::ifstream in(path);
    EXPECT_EQ(std::count(std::istreambuf_iterator<char>(in), {}, 'x'), starts) << status;
  }
}

TEST_F(Launch, EndsWithATable) {
  const auto [status, said] = launch_shell({.ranks = 2, .table = true}, "[ $RANK = 1 ] && exit 7; exec sleep 60");
  EXPECT_EQ(status, 7);
  EXPECT_THAT(said, HasSubstr("  rank  step      saved     end\n"
                              "  0     -         -         was killed by signal 15 (Terminated)\n"
                              "  1     -         -         exited with status 7, the first to fail\n"));
  const Ended ended = launched({.ranks = 2, .table = true}, {"true"});
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.output, "");
}

TEST(StatusBoard, IsReadByTheLauncherOfAProcessThatIsKilled) {
  const StatusBoard board(2);
  const pid_t child = fork();
  if (child == 0) {
    board.hand_on();
    const OwnStatus own(1), nobodys(2);
    own.tell_step(41);
    own.tell_saved(40);
    nobodys.tell_step(7);
    kill(getpid(), SIGKILL);
  }
  EXPECT_EQ(status_of(child), -1);
  EXPECT_EQ(board.rank(1)->step, 41);
  EXPECT_EQ(board.rank(1)->saved, 40);
  EXPECT_EQ(board.rank(0)->step, -1);
}

TEST(StatusBoard, ASentenceOfAllRanksIsWrittenOnce) {
  testing::internal::CaptureStderr();
  const StatusBoard board(3);
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    board.hand_on();
    say_once("wrong on all\n");
    say_once("wrong on rank " + std::to_string(rank) + "\n");
    _exit(0);
  }
  for (const pid_t child : children) ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const std::string said = testing::internal::GetCapturedStderr();
  const auto count = [&](const std::string& line) {
    int n = 0;
    for (size_t at = said.find(line); at != std::string::npos; at = said.find(line, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("wrong on all\n"), 1) << said;
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(count("wrong on rank " + std::to_string(rank) + "\n"), 1) << said;
}

TEST_F(Launch, ReportsASignalAndKillsWhoIgnoresSigterm) {
  const auto [status, said] =
      launch_shell({.ranks = 2, .grace_s = 0.2},
                   "if [ $RANK = 0 ]; then kill -9 $$; fi; trap '' TERM; while true; do sleep 0.05; done");
  EXPECT_EQ(status, 128 + SIGKILL);
  EXPECT_THAT(said, HasSubstr("rank 0"));
  EXPECT_THAT(said, HasSubstr("was killed by signal 9"));
}

TEST_F(Launch, ACommandThatDoesNotExist) {
  for (const char* program : {"/nowhere/to/be/found", "tessera-has-no-such-program"}) {
    const auto [status, said] = launched({.ranks = 3}, {program});
    EXPECT_EQ(status, 127);
    EXPECT_EQ(said, str_cat("cannot run ", program, ": No such file or directory\n"));
  }
}

// Nobody reads the launcher's standard error, nor its guard's.
TEST_F(Launch, NobodyReadsWhatItSays) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int before = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  close(ends[0]);
  close(ends[1]);
  const std::string script = "if [ -e " + path_ + " ]; then for p in $(cat /proc/$PPID/task/*/children); do " +
                             "[ $p = $$ ] || kill -9 $p; done; exit 0; fi; touch " + path_ + "; exit 3";
  const int status = launch({.ranks = 1, .restarts = 1}, {"sh", "-c", script});
  dup2(before, STDERR_FILENO);
  close(before);
  EXPECT_EQ(status, 0);
  std::cerr.clear();
  EXPECT_EQ(launch_shell({}, "kill -13 $$").status, 128 + SIGPIPE) << "ranks have the signal as it was";
}

// The process whose number a rank's script wrote into a file.
pid_t process_in(const std::string& path) {
  pid_t pid = 0;
  for (int i = 0; i < 1000 && !(std::ifstream(path) >> pid); ++i) usleep(10000);
  return pid;
}

bool ends(pid_t pid) {
  for (int i = 0; i < 500; ++i) {
    std::string state, unused;
    std::ifstream(str_cat("/proc/", pid, "/stat")) >> unused >> unused >> state;
    if (state.empty() || state == "Z") return true;
    usleep(10000);
  }
  return false;
}

TEST_F(Launch, EndsWhatRanksHaveStarted) {
  // Rank 0's worker is a child of a shell and ignores SIGTERM.
  const std::string script = "if [ $RANK = 1 ]; then while [ ! -s " + path_ +
                             " ]; do sleep 0.01; done; exit 7; fi; sh -c 'trap \"\" TERM; echo $$ > " + path_ +
                             "; while true; do sleep 0.05; done'; echo done";
  EXPECT_EQ(launch_shell({.ranks = 2, .grace_s = 0.3}, script).status, 7);
  const pid_t worker = process_in(path_);
  ASSERT_GT(worker, 0);
  EXPECT_TRUE(ends(worker)) << "process " << worker << " outlived the job";
}

// Rank 1 is one that was restarted.
TEST_F(Launch, AKilledLauncherLeavesNothingBehind) {
  const std::string script = "if [ $RANK = 1 ] && ! [ -e " + path_ + ".again ]; then touch " + path_ +
                             ".again; exit 1; fi; sh -c 'echo $$ > " + path_ + ".$RANK; sleep 100; true'; echo done";
  const pid_t launcher = started({.ranks = 2, .restarts = 1}, script);
  const pid_t workers[] = {process_in(path_ + ".0"), process_in(path_ + ".1")};
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_GT(workers[rank], 0);
    EXPECT_TRUE(ends(workers[rank])) << "process " << workers[rank] << " outlived the launcher";
  }
}

TEST_F(Launch, HandsSignalsOnToGroups) {
  const pid_t launcher = started({}, "sh -c 'echo $$ > " + path_ + "; sleep 100; true'; true");
  const pid_t worker = process_in(path_);
  kill(launcher, SIGTERM);
  EXPECT_EQ(status_of(launcher), 128 + SIGTERM);
  EXPECT_TRUE(ends(worker));
}

// Starts a launcher, whose ranks write their process ids to `path`.RANK, and sends it `signals`.
// The signals must differ: of two equal pending ones, only one is delivered.
int status_after(const std::vector<int>& signals, const std::string& path, const std::string& script, double grace_s) {
  const pid_t launcher = started({.ranks = 2, .grace_s = grace_s}, script);
  for (const char* rank : {".0", ".1"}) EXPECT_GT(process_in(path + rank), 0);
  for (const int signal : signals) kill(launcher, signal);
  return status_of(launcher);
}

// The ranks need longer than the grace period, and their status says how they ended.
TEST_F(Launch, GivesRanksTheirTimeAfterASignal) {
  EXPECT_EQ(status_after(
                {SIGTERM}, path_,
                "trap 'sleep 2.5; exit 75' TERM; echo $$ > " + path_ + ".$RANK; while true; do sleep 0.05; done", 1.5),
            75);
}

// A terminal that closes ends the job, although a rank might treat SIGHUP as a request to reread its files.
TEST_F(Launch, HandsTheTerminalsEndOnAsSigterm) {
  EXPECT_EQ(status_after(
                {SIGHUP}, path_,
                "trap '' HUP; trap 'exit 75' TERM; echo $$ > " + path_ + ".$RANK; while true; do sleep 0.05; done", 5),
            75);
}

TEST_F(Launch, EndsThemWithinTheGraceOfASecondSignal) {
  const std::string script = "trap '' TERM INT; echo $$ > " + path_ + ".$RANK; while true; do sleep 0.05; done";
  EXPECT_THAT(status_after({SIGTERM, SIGINT}, path_, script, 0.1), AnyOf(128 + SIGTERM, 128 + SIGINT));
}

TEST_F(Launch, EndsTheOthersOnceOneHasEndedOnASignal) {
  EXPECT_EQ(status_after({SIGTERM}, path_,
                         "if [ $RANK = 0 ]; then trap 'exit 75' TERM; else trap '' TERM; fi; echo $$ > " + path_ +
                             ".$RANK; while true; do sleep 0.05; done",
                         0.3),
            128 + SIGTERM);
}

// Tests signals that are ignored at the start, as under nohup and in a shell's background.
TEST_F(Launch, DoesNotHearWhatItWasStartedToIgnore) {
  const auto before = signal(SIGHUP, SIG_IGN);
  const std::string script = "echo $$ > " + path_ + ".$RANK; kill -HUP $PPID; sleep 0.2; exit 0";
  EXPECT_EQ(status_after({SIGHUP}, path_, script, 5), 0);
  signal(SIGHUP, before);
}

TEST_F(Launch, ForgetsTheLauncherAboveIt) {
  setenv("PMIX_RANK", "0", 1);
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  EXPECT_EQ(launch_shell({}, "test -z \"$PMIX_RANK$OMPI_COMM_WORLD_RANK\"").status, 0);
  unsetenv("PMIX_RANK");
  unsetenv("OMPI_COMM_WORLD_RANK");
}

TEST(RunInRanks, ReturnsEachRanksTextInOrder) {
  const auto texts = run_in_ranks(4, 2, 30, [](const RankEnvironment& where) {
    return str_cat(where.rank, "/", where.world_size, " ", where.local_rank, "/", where.local_world_size);
  });
  EXPECT_THAT(texts, ElementsAre("0/4 0/2", "1/4 1/2", "2/4 0/2", "3/4 1/2"));
}

TEST(RunInRanks, ReturnsTextsThatAreLongerThanAPipe) {
  const auto texts = run_in_ranks(2, 2, 30, [](const RankEnvironment&) { return std::string(1 << 20, 'x'); });
  EXPECT_EQ(texts[1].size(), size_t{1} << 20);
}

TEST(RunInRanks, ThrowsTheCauseRatherThanItsConsequences) {
  const auto die = [](const RankEnvironment& where) -> std::string {
    if (where.rank != 2) fail(Code::kAborted, "rank 2 died");
    usleep(100000);
    fail(Code::kOutOfRange, "id 7 is too large");
  };
  EXPECT_EQ(test::refusal(Code::kOutOfRange, [&] { run_in_ranks(3, 3, 30, die); }), "rank 2: id 7 is too large");
}

TEST(RunInRanks, NamesARankThatWasKilled) {
  const auto die = [](const RankEnvironment& where) -> std::string {
    if (where.rank == 1) raise(SIGKILL);
    return "fine";
  };
  EXPECT_THAT(test::refusal([&] { run_in_ranks(2, 2, 30, die); }), HasSubstr("rank 1 was killed by signal 9"));
}

TEST(RunInRanks, NamesARankThatWasKilledWhileItHandedItsTextBack) {
  const test::TestDirectory folder;
  const auto die = [path = folder.file("writer")](const RankEnvironment& where) -> std::string {
    if (where.rank == 0) {
      std::ofstream(path) << getpid() << std::endl;
      return std::string(size_t{64} << 20, 'x');  // a pipe holds 64 KiB, and its reader is stopped below
    }
    const pid_t writer = process_in(path), reader = getppid();
    kill(reader, SIGSTOP);
    usleep(200000);
    kill(writer, SIGKILL);
    usleep(50000);
    kill(reader, SIGCONT);
    return "fine";
  };
  EXPECT_EQ(test::refusal([&] { run_in_ranks(2, 2, 30, die); }), "rank 0 was killed by signal 9 (Killed)");
}

TEST(RunInRanks, HasADeadlineAndLeavesNobodyBehind) {
  const auto hang = [](const RankEnvironment& where) -> std::string {
    if (where.rank == 1) sleep(60);
    return "fine";
  };
  EXPECT_THAT(test::refusal(Code::kDeadlineExceeded, [&] { run_in_ranks(2, 2, 0.2, hang); }), HasSubstr("rank 1"));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no children
}

TEST(Token, IsRandomHex) {
  EXPECT_EQ(random_token().size(), 32u);
  EXPECT_NE(random_token(), random_token());
}

}  // namespace
}  // namespace tessera::cli
