// The processes of a job on this host. Each is started, signalled and waited for together with the processes it starts.
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
double seconds_until(Deadline deadline);  // 0 or more
std::string system_error();               // text for errno
// Describes a wait status: "exited with status 3", "was killed by signal 9 (Killed)".
std::string describe_end(int status);

// A process that runs next to a launcher and kills the ranks' process groups if the launcher is killed. The kernel
// would then end the ranks themselves, but not the processes they have started.
class Guard {
 public:
  Guard();
  ~Guard();  // guarding ends here
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  // Sets the group of a rank, replacing its previous one.
  void add(int rank, pid_t group) const;

 private:
  [[noreturn]] static void watch(int fd);

  int fd_ = -1;
  pid_t pid_ = -1;
};

// Indexed by rank. Each process dies with this one, and those still running when this object is destroyed are killed.
class Processes {
 public:
  enum Groups {
    kWithParent,  // ranks are in this process's group, and therefore in the terminal's foreground if it is
    kOwnGroups    // each rank and all that it starts are in a group of their own, and signals go to the group
  };
  Processes(int ranks, Groups groups);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  bool fork_rank(int rank);  // returns true in the child; a rank that has ended may be started again
  void kill_all(int signal) const;
  // The rank's wait status, if it has ended and has not been reported before.
  std::optional<int> reap(int rank);
  int running() const;  // number of ranks running
  // True if ranks, or processes they have started, still run.
  bool anything_running();
  pid_t pid(int rank) const { return ranks_[static_cast<size_t>(rank)].running; }

 private:
  struct Rank {
    pid_t running = 0;  // pid of the rank; 0 once it has ended
    pid_t target = 0;   // argument for kill() and waitpid(): the pid, or minus the group; 0 once it is empty
    std::optional<int> unreported;
  };
  void look(Rank& rank);

  std::vector<Rank> ranks_;
  Groups groups_;
  int reaper_before_ = 0;
};

}  // namespace tessera::cli
