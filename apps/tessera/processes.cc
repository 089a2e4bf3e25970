#include "processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tessera/error.h"

namespace tessera::cli {
namespace {

// Called first in a child: the child dies with its parent, even if the parent is already gone.
void die_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
}

// A message from the launcher to its guard.
struct GroupOfRank {
  int32_t rank;  // -1: the job ended well
  pid_t group;
};
constexpr size_t kMostRanks = 1024;  // bound on the ranks that a launcher starts

}  // namespace

Deadline after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}
double seconds_until(Deadline deadline) {
  return std::max(0.0, std::chrono::duration<double>(deadline - Clock::now()).count());
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) {
    return str_cat("was killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  }
  return str_cat("exited with status ", WEXITSTATUS(status));
}

std::string system_error() { return std::strerror(errno); }

// --- Guard -----------------------------------------------------------------------------------------------------------

Guard::Guard() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail(Code::kResourceExhausted, "cannot start ranks: ", system_error());
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[1]);
    watch(ends[0]);
  }
  close(ends[0]);
  fd_ = ends[1];
  if (pid_ < 0) {
    close(fd_);
    fail(Code::kResourceExhausted, "cannot start ranks: fork: ", system_error());
  }
}

Guard::~Guard() {
  add(-1, 0);
  close(fd_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::add(int rank, pid_t group) const {
  const GroupOfRank told{rank, group};
  while (write(fd_, &told, sizeof(told)) < 0 && errno == EINTR) {
  }
}

// Reads groups until the job has ended well, or until the launcher is gone.
void Guard::watch(int fd) {
  setsid();  // leaves the terminal and its signals
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(stream);
  std::array<pid_t, kMostRanks> groups{};
  GroupOfRank told{};
  ssize_t n = 0;
  while ((n = read(fd, &told, sizeof(told))) > 0 || (n < 0 && errno == EINTR)) {
    if (n < 0) continue;
    if (told.rank < 0) _exit(0);
    if (static_cast<size_t>(told.rank) < groups.size()) groups[static_cast<size_t>(told.rank)] = told.group;
  }
  for (const pid_t group : groups) {
    if (group > 0) kill(-group, SIGKILL);
  }
  _exit(1);
}

// --- Processes -------------------------------------------------------------------------------------------------------

Processes::Processes(int ranks, Groups groups) : ranks_(static_cast<size_t>(ranks)), groups_(groups) {
  // Processes of the groups that lose their parent become children of this process. It therefore knows when a group is
  // empty, and until then the group's number is not reused.
  if (groups_ == kOwnGroups) {
    prctl(PR_GET_CHILD_SUBREAPER, &reaper_before_);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
}

Processes::~Processes() {
  kill_all(SIGKILL);
  const Deadline deadline = after(5);
  while (anything_running() && Clock::now() < deadline) usleep(1000);
  if (groups_ == kOwnGroups) prctl(PR_SET_CHILD_SUBREAPER, reaper_before_);
}

bool Processes::fork_rank(int rank) {
  // Kills what an earlier process of this rank has left running.
  if (const pid_t left = ranks_[static_cast<size_t>(rank)].target; left != 0) kill(left, SIGKILL);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) fail(Code::kResourceExhausted, "cannot start rank ", rank, ": fork: ", system_error());
  if (pid == 0) {
    if (groups_ == kOwnGroups) setpgid(0, 0);
    die_with(parent);
    return true;
  }
  if (groups_ == kOwnGroups) setpgid(pid, pid);  // on both sides, because either may run first
  ranks_[static_cast<size_t>(rank)] = {pid, groups_ == kOwnGroups ? -pid : pid, std::nullopt};
  return false;
}

void Processes::kill_all(int signal) const {
  for (const Rank& rank : ranks_) {
    if (rank.target != 0) kill(rank.target, signal);
  }
}

std::optional<int> Processes::reap(int rank) {
  look(ranks_[static_cast<size_t>(rank)]);
  return std::exchange(ranks_[static_cast<size_t>(rank)].unreported, std::nullopt);
}

int Processes::running() const {
  return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.running != 0; }));
}

bool Processes::anything_running() {
  for (Rank& rank : ranks_) look(rank);
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.target != 0; });
}

// Records whether the rank has ended.
void Processes::look(Rank& rank) {
  while (rank.target != 0) {
    int status = 0;
    const pid_t ended = waitpid(rank.target, &status, WNOHANG);
    if (ended == 0) return;
    if (ended < 0) {
      if (errno == EINTR) continue;
      rank.target = 0;
    } else if (ended == rank.running) {
      rank.running = 0;
      rank.unreported = status;
    }
  }
}

}  // namespace tessera::cli
