#include "spawn.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

#include "config/test_refusal.h"
#include "rank_status.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Runs sh -c `script` as `ranks` ranks; their standard error goes to *said.
int launch_shell(int ranks, const std::string& script, std::string* said, double grace_s = 5) {
  testing::internal::CaptureStderr();
  const int status = launch({.ranks = ranks, .grace_s = grace_s}, {"sh", "-c", script});
  *said = testing::internal::GetCapturedStderr();
  return status;
}

std::string scratch_file(const std::string& name) { return testing::TempDir() + name + std::to_string(getpid()); }

TEST(Launch, SetsTheEnvironmentOfEachRank) {
  const std::string path = scratch_file("environment");
  std::string said;
  EXPECT_EQ(launch_shell(2,
                         "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR ${#TESSERA_JOB_TOKEN} "
                         "$((MASTER_PORT > 0)) > " +
                             path + ".$RANK",
                         &said),
            0);
  for (int rank = 0; rank < 2; ++rank) {
    std::string line;
    std::getline(std::ifstream(path + "." + std::to_string(rank)), line);
    EXPECT_EQ(line, str_cat(rank, " 2 ", rank, " 2 127.0.0.1 32 1"));
    std::remove((path + "." + std::to_string(rank)).c_str());
  }
  EXPECT_EQ(said, "");
}

TEST(Launch, NamesTheRankThatFailedAndEndsTheOthers) {
  std::string said;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(launch_shell(3, "if [ $RANK = 1 ]; then exit 7; fi; exec sleep 60", &said), 7);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_THAT(said, HasSubstr("rank 1 (process "));
  EXPECT_THAT(said, HasSubstr("exited with status 7"));
  EXPECT_THAT(said, HasSubstr("(2 still ran)"));
}

// A rank that lost another one exits with 1. The other one may take long to end, but its status explains more.
TEST(Launch, PrefersTheStatusThatExplainsOthers) {
  std::string said;
  EXPECT_EQ(launch_shell(3, "[ $RANK = 1 ] && exit 2; exit 1", &said), 2);
  const std::string script = "trap '' TERM; [ $RANK = 1 ] || exit 1; sleep 0.5; exit 2";
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch({.ranks = 2, .job_restarts = 2, .restart_pause_s = 0.1, .table = true}, {"sh", "-c", script}), 2);
  said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("exited with status 2, the first to fail"));
  EXPECT_THAT(said, Not(HasSubstr("starting the job again")));
}

TEST(Launch, StartsAFailedRankAgainSoOften) {
  const std::string path = scratch_file("starts");
  testing::internal::CaptureStderr();
  // Rank 1 is killed twice and then succeeds; rank 0 waits for that.
  const std::string script = "if [ $RANK = 0 ]; then until [ -e " + path +
                             ".done ]; do sleep 0.05; done; exit 0; fi; " + "echo x >> " + path + "; [ $(wc -l < " +
                             path + ") -lt 3 ] && kill -9 $$; touch " + path + ".done";
  EXPECT_EQ(launch({.ranks = 2, .restarts = 2}, {"sh", "-c", script}), 0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("was killed by signal 9 (Killed); starting it again in 0.3 s (1 restarts are left)"));
  EXPECT_THAT(said, HasSubstr("starting it again in 0.6 s (0 restarts are left)"));
  std::remove(path.c_str());
  std::remove((path + ".done").c_str());
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch({.ranks = 1, .restarts = 1}, {"sh", "-c", "exit 5"}), 5) << "the last failure is the job's";
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("exited with status 5"));
}

// Rank 0 counts the starts. In the first two, rank 2 is killed while the others wait.
TEST(Launch, StartsTheJobAgainWithTheRanksThatAreLeft) {
  const std::string path = scratch_file("jobs");
  const std::string script = "[ $RANK = 0 ] && echo $WORLD_SIZE $MASTER_PORT >> " + path +
                             "; if [ $RANK = 2 ]; then until grep -q \"^$WORLD_SIZE \" " + path +
                             "; do sleep 0.02; done; kill -9 $$; fi; [ $WORLD_SIZE -gt 2 ] && exec sleep 60; exit 0";
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch({.ranks = 4, .job_restarts = 3, .restart_pause_s = 0.1, .least_ranks = 2}, {"sh", "-c", script}), 0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("starting the job again with 3 ranks in 0.1 s (2 restarts of it are left)"));
  EXPECT_THAT(said, HasSubstr("starting the job again with 2 ranks in 0.2 s (1 restarts of it are left)"));
  std::ifstream in(path);
  std::vector<std::string> worlds;
  for (std::string world, port; in >> world >> port;) worlds.push_back(world);
  EXPECT_THAT(worlds, ElementsAre("4", "3", "2"));
  std::remove(path.c_str());
}

// A rank that exits by itself is restarted with the others; only a rank that was killed is left out.
TEST(Launch, StartsAJobAgainWithAllRanksThatWereNotKilled) {
  for (const auto& [end, ranks] : {std::pair{"exit 1", 3}, {"exit 137", 2}}) {
    const std::string script = str_cat("[ $RANK = 1 ] && ", end, "; exec sleep 60");
    testing::internal::CaptureStderr();
    EXPECT_NE(launch({.ranks = 3, .job_restarts = 1, .least_ranks = 1}, {"sh", "-c", script}), 0);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr(str_cat("starting the job again with ", ranks, " ranks")))
        << end;
  }
}

TEST(Launch, ASignalEndsAPauseBetweenStarts) {
  const std::string path = scratch_file("pause");
  const pid_t launcher = fork();
  if (launcher == 0) {
    dup2(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    _exit(launch({.ranks = 1, .job_restarts = 9}, {"sh", "-c", "exit 1"}));
  }
  std::string said;
  for (int i = 0; i < 1000 && said.find("in 1 s (8 restarts") == std::string::npos; ++i) {
    usleep(10000);
    std::ifstream in(path);
    said.assign(std::istreambuf_iterator<char>(in), {});
  }
  kill(launcher, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  ASSERT_TRUE(WIFEXITED(status)) << said;
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM) << said;
  std::remove(path.c_str());
}

TEST(Launch, StartsAJobAgainOnlyWhereThatMayHelp) {
  const std::string path = scratch_file("tries");
  for (const auto& [status, starts] : {std::pair{1, 2}, {2, 1}, {75, 1}, {127, 1}}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(launch({.ranks = 1, .job_restarts = 1}, {"sh", "-c", str_cat("echo x >> ", path, "; exit ", status)}),
              status);
    testing::internal::GetCapturedStderr();
    std::ifstream in(path);
    EXPECT_EQ(std::count(std::istreambuf_iterator<char>(in), {}, 'x'), starts) << status;
    std::remove(path.c_str());
  }
}

TEST(Launch, EndsWithATable) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch({.ranks = 2, .table = true}, {"sh", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 60"}), 7);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("  rank  step      saved     end\n"
                              "  0     -         -         was killed by signal 15 (Terminated)\n"
                              "  1     -         -         exited with status 7, the first to fail\n"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch({.ranks = 2, .table = true}, {"true"}), 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
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
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
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

TEST(Launch, ReportsASignalAndKillsWhoIgnoresSigterm) {
  std::string said;
  EXPECT_EQ(launch_shell(2, "if [ $RANK = 0 ]; then kill -9 $$; fi; trap '' TERM; while true; do sleep 0.05; done",
                         &said, 0.2),
            128 + SIGKILL);
  EXPECT_THAT(said, HasSubstr("rank 0"));
  EXPECT_THAT(said, HasSubstr("was killed by signal 9"));
}

TEST(Launch, ACommandThatDoesNotExist) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch({.ranks = 3}, {"/nowhere/to/be/found"}), 127);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "cannot run /nowhere/to/be/found: No such file or directory\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch({.ranks = 2}, {"tessera-has-no-such-program"}), 127);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "cannot run tessera-has-no-such-program: No such file or directory\n");
}

// Nobody reads the launcher's standard error, nor its guard's.
TEST(Launch, NobodyReadsWhatItSays) {
  const std::string path = scratch_file("once");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int before = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  close(ends[0]);
  close(ends[1]);
  const std::string script = "if [ -e " + path + " ]; then for p in $(cat /proc/$PPID/task/*/children); do " +
                             "[ $p = $$ ] || kill -9 $p; done; exit 0; fi; touch " + path + "; exit 3";
  const int status = launch({.ranks = 1, .restarts = 1}, {"sh", "-c", script});
  dup2(before, STDERR_FILENO);
  close(before);
  EXPECT_EQ(status, 0);
  std::cerr.clear();
  std::remove(path.c_str());
  std::string said;
  EXPECT_EQ(launch_shell(1, "kill -13 $$", &said), 128 + SIGPIPE) << "ranks have the signal as it was";
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

TEST(Launch, EndsWhatRanksHaveStarted) {
  const std::string path = scratch_file("worker");
  std::string said;
  // Rank 0's worker is a child of a shell and ignores SIGTERM.
  EXPECT_EQ(launch_shell(2,
                         "if [ $RANK = 1 ]; then while [ ! -s " + path +
                             " ]; do sleep 0.01; done; exit 7; fi; "
                             "sh -c 'trap \"\" TERM; echo $$ > " +
                             path + "; while true; do sleep 0.05; done'; echo done",
                         &said, 0.3),
            7);
  const pid_t worker = process_in(path);
  ASSERT_GT(worker, 0);
  EXPECT_TRUE(ends(worker)) << "process " << worker << " outlived the job";
  std::remove(path.c_str());
}

// Rank 1 is one that was restarted.
TEST(Launch, AKilledLauncherLeavesNothingBehind) {
  const std::string path = scratch_file("orphan");
  const pid_t launcher = fork();
  if (launcher == 0) {
    const int quiet = open("/dev/null", O_WRONLY);
    dup2(quiet, STDERR_FILENO);
    const std::string script = "if [ $RANK = 1 ] && ! [ -e " + path + ".again ]; then touch " + path +
                               ".again; exit 1; fi; sh -c 'echo $$ > " + path + ".$RANK; sleep 100; true'; echo done";
    launch({.ranks = 2, .restarts = 1}, {"sh", "-c", script});
    _exit(0);
  }
  const pid_t workers[] = {process_in(path + ".0"), process_in(path + ".1")};
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_GT(workers[rank], 0);
    EXPECT_TRUE(ends(workers[rank])) << "process " << workers[rank] << " outlived the launcher";
    std::remove((path + "." + std::to_string(rank)).c_str());
  }
  std::remove((path + ".again").c_str());
}

TEST(Launch, HandsSignalsOnToGroups) {
  const std::string path = scratch_file("signalled");
  const pid_t launcher = fork();
  if (launcher == 0) {
    const int quiet = open("/dev/null", O_WRONLY);
    dup2(quiet, STDERR_FILENO);
    _exit(launch({.ranks = 1}, {"sh", "-c", "sh -c 'echo $$ > " + path + "; sleep 100; true'; true"}));
  }
  const pid_t worker = process_in(path);
  kill(launcher, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  EXPECT_TRUE(ends(worker));
  std::remove(path.c_str());
}

// Runs a launcher in a process of its own, whose ranks write their process ids to `path`.RANK, and sends it `signals`.
// The signals must differ: of two equal pending ones, only one is delivered.
int status_after(const std::vector<int>& signals, const std::string& path, const std::string& script, double grace_s) {
  const pid_t launcher = fork();
  if (launcher == 0) {
    signal(SIGINT, SIG_DFL);  // independent of how the tests were started
    const int quiet = open("/dev/null", O_WRONLY);
    dup2(quiet, STDERR_FILENO);
    _exit(launch({.ranks = 2, .grace_s = grace_s}, {"sh", "-c", script}));
  }
  for (const char* rank : {".0", ".1"}) EXPECT_GT(process_in(path + rank), 0);
  for (const int signal : signals) kill(launcher, signal);
  int status = 0;
  EXPECT_EQ(waitpid(launcher, &status, 0), launcher);
  for (const char* rank : {".0", ".1"}) std::remove((path + rank).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The ranks need longer than the grace period, and their status says how they ended.
TEST(Launch, GivesRanksTheirTimeAfterASignal) {
  const std::string path = scratch_file("slow");
  EXPECT_EQ(status_after(
                {SIGTERM}, path,
                "trap 'sleep 2.5; exit 75' TERM; echo $$ > " + path + ".$RANK; while true; do sleep 0.05; done", 1.5),
            75);
}

// A terminal that closes ends the job, although a rank might treat SIGHUP as a request to reread its files.
TEST(Launch, HandsTheTerminalsEndOnAsSigterm) {
  const std::string path = scratch_file("terminal");
  EXPECT_EQ(status_after(
                {SIGHUP}, path,
                "trap '' HUP; trap 'exit 75' TERM; echo $$ > " + path + ".$RANK; while true; do sleep 0.05; done", 5),
            75);
}

TEST(Launch, EndsThemWithinTheGraceOfASecondSignal) {
  const std::string path = scratch_file("stubborn");
  const std::string script = "trap '' TERM INT; echo $$ > " + path + ".$RANK; while true; do sleep 0.05; done";
  EXPECT_THAT(status_after({SIGTERM, SIGINT}, path, script, 0.1), AnyOf(128 + SIGTERM, 128 + SIGINT));
}

TEST(Launch, EndsTheOthersOnceOneHasEndedOnASignal) {
  const std::string path = scratch_file("mixed");
  EXPECT_EQ(status_after({SIGTERM}, path,
                         "if [ $RANK = 0 ]; then trap 'exit 75' TERM; else trap '' TERM; fi; echo $$ > " + path +
                             ".$RANK; while true; do sleep 0.05; done",
                         0.3),
            128 + SIGTERM);
}

// Tests signals that are ignored at the start, as under nohup and in a shell's background.
TEST(Launch, DoesNotHearWhatItWasStartedToIgnore) {
  const std::string path = scratch_file("deaf");
  const auto before = signal(SIGHUP, SIG_IGN);
  const std::string script = "echo $$ > " + path + ".$RANK; kill -HUP $PPID; sleep 0.2; exit 0";
  EXPECT_EQ(status_after({SIGHUP}, path, script, 5), 0);
  signal(SIGHUP, before);
}

TEST(Launch, ForgetsTheLauncherAboveIt) {
  setenv("PMIX_RANK", "0", 1);
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  std::string said;
  EXPECT_EQ(launch_shell(1, "test -z \"$PMIX_RANK$OMPI_COMM_WORLD_RANK\"", &said), 0);
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
  const std::string path = scratch_file("writer");
  try {
    run_in_ranks(2, 2, 30, [&](const RankEnvironment& where) -> std::string {
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
    });
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "rank 0 was killed by signal 9 (Killed)");
  }
  std::remove(path.c_str());
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
