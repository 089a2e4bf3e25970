// Starting ranks on this host: as programs (`tessera launch`, `--nproc N`) or as forked functions that hand a text
// back. Either way the ranks die with the process that started them.
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
  int master_port = 0;  // 0: a free one
  // Of a job on several nodes: where their launchers meet. Every node has `ranks`, and the others' launchers know.
  std::optional<RendezvousOptions> rendezvous;
  // Until SIGKILL: from the SIGTERM for the others when a rank has failed; of a job that is sent a signal, from when
  // the first rank has ended, or from a second signal.
  double grace_s = 5;
  int restarts = 0;      // how often a rank that fails is started again instead, all ranks together
  int job_restarts = 0;  // how often the whole job is, once a rank has failed and the others have ended
  // Before the first restart; each later one waits twice as long, up to 30 times this. Unset: 0.3 for a rank, 1 for a
  // whole job.
  std::optional<double> restart_pause_s;
  int least_ranks = 0;  // then with a rank less for each that was killed, and no fewer on all nodes; 0: with as many
  bool table = false;   // how each rank ended, on standard error, of a job that did not end well
  std::string name = "tessera launch";  // before messages on standard error
};

// Starts `ranks` copies of command[0] (found along PATH) with torchrun's variables and a TESSERA_JOB_TOKEN, and waits
// for all. When one fails, and no restarts are left, says which and why on standard error, ends the others and returns
// its status (128 + N for signal N), or starts the job again; not with status 2, 126 or 127, which say that the command
// is wrong. SIGINT and SIGTERM are handed on, SIGHUP as SIGTERM; the ranks then take the time
// that they need to end, and if they agree on a status other than 0, that is returned, else 128 + N. To be called from
// a thread that lives until it returns.
int launch(const LaunchOptions& options, const std::vector<std::string>& command);

// The same with this very program and `args` (what follows its name): for commands with --nproc. Such a command is a
// rank itself when RankEnvironment::from_environment().source is not "single", and must not start ranks again.
int run_ranks(int n, const std::vector<std::string>& args);

// Runs `body` in `world` forked processes, consecutive runs of `local_world` ranks playing hosts, and returns what each
// rank's call returned, in rank order. The environment handed to `body` has a free port and a fresh token.
//
// A fork has only the thread that calls: `body` makes its own Runtime, and uses no threads that were started before.
// Throws Error with "rank N: " and the message of the rank that failed first (one that only reports another's failure,
// kAborted, counts last); kDeadlineExceeded when not all ranks are done after timeout_s. No process is left behind.
std::vector<std::string> run_in_ranks(int world, int local_world, double timeout_s,
                                      const std::function<std::string(const RankEnvironment&)>& body);

// A TCP port of loopback that nothing listens on now, outside the range from which the system hands out ports.
int free_port();
// 32 hexadecimal digits from the system's random source.
std::string random_token();

}  // namespace tessera::cli
