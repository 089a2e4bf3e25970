// The processes of a job on this host: started, signalled and waited for together with what they start themselves.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
Deadline after(double seconds);
double seconds_until(Deadline deadline);  // at least 0
std::string system_error();               // of errno
// Of a wait status: "exited with status 3", "was killed by signal 9 (Killed)".
std::string describe_end(int status);

// Lives beside a launcher and kills the ranks' process groups when the launcher is killed: the kernel would end the
// ranks themselves then, but not what they have started.
class Guard {
 public:
  Guard();
  ~Guard();  // from now on nothing is guarded
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  // The group of a rank, instead of the one that it had before.
  void add(int rank, pid_t group) const;

 private:
  [[noreturn]] static void watch(int fd);

  int fd_ = -1;
  pid_t pid_ = -1;
};

// By rank. Each dies with this process, and what still runs when this goes is killed.
class Processes {
 public:
  enum Groups {
    kWithParent,  // ranks are in this process's group, and so in the terminal's foreground where it is
    kOwnGroups    // each rank is in a group of its own with all that it starts, and signals go to the group
  };
  Processes(int ranks, Groups groups);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  bool fork_rank(int rank);  // true in the child; a rank that has ended may be started again
  void kill_all(int signal) const;
  // The rank's wait status, if it has ended and was not reported before.
  std::optional<int> reap(int rank);
  int running() const;  // ranks
  // Whether ranks, or what they have started, still run.
  bool anything_running();
  pid_t pid(int rank) const { return ranks_[static_cast<size_t>(rank)].running; }

 private:
  struct Rank {
    pid_t running = 0;  // the rank's process; 0 once it has ended
    pid_t target = 0;   // for kill() and waitpid(): the process, or minus the group; 0 once there is nobody
    std::optional<int> unreported;
  };
  void look(Rank& rank);

  std::vector<Rank> ranks_;
  Groups groups_;
  int reaper_before_ = 0;
};

}  // namespace tessera::cli
