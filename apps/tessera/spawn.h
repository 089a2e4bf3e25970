// Starts ranks on this host: as programs (`tessera launch`, `--nproc N`), or as forked functions that return a text.
// Either way the ranks die with the process that started them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous.h"
#include "tessera/process_group.h"

namespace tessera::cli {

struct LaunchOptions {
  int ranks = 1;
  int master_port = 0;  // 0: choose a free port
  // Set for a job on several nodes: how their launchers meet. Every node has `ranks`, and the other nodes' launchers
  // run too.
  std::optional<RendezvousOptions> rendezvous;
  // Seconds until SIGKILL. They count from the SIGTERM sent to the others when a rank has failed. If the job is sent a
  // signal, they count from the end of the first rank, or from a second signal.
  double grace_s = 5;
  int restarts = 0;      // how often a failed rank is restarted by itself; counted over all ranks
  int job_restarts = 0;  // how often the whole job is restarted, once a rank has failed and the others have ended
  // Seconds before the first restart; each later one waits twice as long, up to 30 times this. Unset: 0.3 for a rank,
  // 1 for a whole job.
  std::optional<double> restart_pause_s;
  // a restart has a rank less for each that was killed, but at least this many on all nodes; 0: as many as before
  int least_ranks = 0;
  bool table = false;                   // print how each rank ended on standard error, for a job that did not succeed
  std::string name = "tessera launch";  // prefix of messages on standard error
};

// Starts `ranks` copies of command[0] (found along PATH) with torchrun's variables and a TESSERA_JOB_TOKEN, and waits
// for all of them. If one fails and no restarts are left, reports which and why on standard error, ends the others and
// returns its status (128 + N for signal N). Otherwise restarts the job, except after status 2, 126 or 127, which mean
// that the command is wrong. SIGINT and SIGTERM are forwarded, SIGHUP as SIGTERM. The ranks then take the time they
// need to end. If they agree on a status other than 0, it is returned, otherwise 128 + N. Call this from a thread that
// lives until it returns.
int launch(const LaunchOptions& options, const std::vector<std::string>& command);

// The same with this program and `args` (without the program's name): for commands with --nproc. Such a command is
// itself a rank if RankEnvironment::from_environment().source is not "single", and must then not start ranks again.
int run_ranks(int n, const std::vector<std::string>& args);

// Runs `body` in `world` forked processes; each run of `local_world` consecutive ranks counts as a host. Returns the
// result of each rank's call, in rank order. The environment passed to `body` has a free port and a fresh token.
//
// A fork has only the calling thread: `body` makes its own Runtime and uses no threads that were started before.
// Throws Error with "rank N: " and the message of the rank that failed first; kAborted, which only reports another
// rank's failure, counts last. Throws kDeadlineExceeded if not all ranks are done after timeout_s. No process is left
// behind.
std::vector<std::string> run_in_ranks(int world, int local_world, double timeout_s,
                                      const std::function<std::string(const RankEnvironment&)>& body);

// A free TCP port of the loopback interface, outside the range from which the system assigns ports.
int free_port();
// 32 hexadecimal digits from the system's random source.
std::string random_token();

}  // namespace tessera::cli
