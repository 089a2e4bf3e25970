// launch(): starts the ranks of a job, handles their ends, and restarts the job if asked to.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "processes.h"
#include "rank_status.h"
#include "spawn.h"
#include "tessera/error.h"
#include "tessera/train_loop.h"

namespace tessera::cli {
namespace {

int exit_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

// One start of a job. Its ranks on this node are counted from 0; name() gives the names used in messages.
struct Job {
  const LaunchOptions& options;
  JobStart start;
  Rendezvous* rendezvous;  // null if the job is only on this node

  int name(int rank) const { return start.first_rank + rank; }
};

void set_environment(const Job& job, int rank) {
  RankEnvironment::clear_environment();
  setenv("RANK", std::to_string(job.name(rank)).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(job.start.world).c_str(), 1);
  setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  setenv("LOCAL_WORLD_SIZE", std::to_string(job.start.ranks).c_str(), 1);
  setenv("MASTER_ADDR", job.start.master_addr.c_str(), 1);
  setenv("MASTER_PORT", std::to_string(job.start.master_port).c_str(), 1);
  setenv("TESSERA_JOB_TOKEN", job.start.token.c_str(), 1);
}

// Ranks are in the terminal's background, where reading from the terminal would stop them.
void leave_terminal() {
  if (isatty(STDIN_FILENO) == 0) return;
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
}

// Writes a line at once, so that no rank's line is mixed into it.
void say(const std::string& line) { std::cerr << line + '\n' << std::flush; }

// True if execvp() would find the program. It is checked once, so that not every rank reports the same error.
bool is_there(const std::string& program) {
  if (program.find('/') != std::string::npos) return access(program.c_str(), F_OK) == 0;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access(str_cat(folder.empty() ? "." : folder, "/", program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

[[noreturn]] void execute(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  std::cerr << "cannot run " << command[0] << ": " << system_error() << std::endl;
  _exit(errno == ENOENT ? 127 : 126);
}

// True if the parent wants this program to survive the signal: nohup, and a shell for "command &".
bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Blocks the signals that the launcher waits for. Blocked signals are reported even if they are ignored, so ignored
// ones are left out. SIGPIPE is ignored, because nobody has to read the output.
class SignalMask {
 public:
  SignalMask() {
    sigemptyset(&waited_);
    sigaddset(&waited_, SIGCHLD);
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) {
      if (!is_ignored(signal)) sigaddset(&waited_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &waited_, &before_);
    pipe_before_ = signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);  // if it were inherited as ignored, waiting for children would fail
  }
  ~SignalMask() { restore(); }
  void restore() const {
    signal(SIGPIPE, pipe_before_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  // A signal that came within `seconds`; 0 if none did.
  int wait(double seconds) const {
    const timespec limit{static_cast<time_t>(seconds), static_cast<long>((seconds - std::floor(seconds)) * 1e9)};
    const int signal = sigtimedwait(&waited_, nullptr, &limit);
    return signal < 0 ? 0 : signal;
  }

 private:
  sigset_t waited_{}, before_{};
  sighandler_t pipe_before_ = SIG_DFL;
};

using StartRank = std::function<void(int rank)>;

// Seconds before restarts. A job that fails as soon as it starts shall not use up its restarts in an instant. Each
// pause is twice the previous one, unless a start got further than all others or ran for a while.
class Pauses {
 public:
  explicit Pauses(double first_s) : first_s_(first_s), next_s_(first_s) {}
  double next(double ran_s, bool got_further = false) {
    if (got_further || ran_s > kWhile) next_s_ = first_s_;
    return std::exchange(next_s_, std::min(kMostTimes * first_s_, 2 * next_s_));
  }

 private:
  static constexpr double kWhile = 120, kMostTimes = 30;
  double first_s_, next_s_;
};

constexpr double kRankPause = 0.3, kJobPause = 1;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The launcher's state while it waits: the first failure, and whether the job is ending.
struct Ending {
  std::optional<int> status;            // status to return after a failure
  int signal = 0;                       // the first signal sent to the launcher
  std::set<int> ended;                  // wait statuses of the ranks that have ended since that signal
  std::optional<Deadline> kill;         // when SIGKILL follows
  int restarts = 0;                     // restarts left
  std::vector<std::optional<int>> how;  // per rank: its wait status, once it has ended
  int first = -1;                       // the rank that failed first
  int killed = 0;                       // ranks killed before the launcher ended any
  int64_t step = 0;                     // highest step that a rank has reported
  Clock::time_point begun_at = Clock::now();

  // A rank waiting to be restarted.
  struct Again {
    Pauses pauses;
    Clock::time_point started = Clock::now();
    std::optional<Deadline> due = std::nullopt;
  };
  std::vector<Again> again;  // by rank

  bool begun() const { return status || signal; }
  // True if some rank waits for its next start.
  bool pausing() const {
    return !begun() && std::any_of(again.begin(), again.end(), [](const Again& a) { return a.due.has_value(); });
  }
  // The result of a job that a signal has ended: the ranks' common status if they agree, otherwise 128 + N.
  int result() const {
    if (status || !signal) return status.value_or(0);
    const bool agreed = ended.size() == 1 && WIFEXITED(*ended.begin()) && WEXITSTATUS(*ended.begin()) != 0;
    return agreed ? WEXITSTATUS(*ended.begin()) : 128 + signal;
  }
};

// True for SIGKILL; a shell reports a command killed by it as a status.
bool was_killed(int how) { return WIFSIGNALED(how) || WEXITSTATUS(how) == 128 + SIGKILL; }

void restart(int rank, pid_t pid, int how, const Job& job, Ending& ending) {
  --ending.restarts;
  Ending::Again& again = ending.again[static_cast<size_t>(rank)];
  const double pause = again.pauses.next(seconds_since(again.started));
  again.due = after(pause);
  say(str_cat(job.options.name, ": rank ", job.name(rank), " (process ", pid, ") ", describe_end(how),
              "; starting it again in ", pause, " s (", ending.restarts, " restarts are left)"));
}

// Restarts the ranks whose pause is over.
void start_again(const StartRank& start, Ending& ending) {
  for (size_t rank = 0; rank < ending.again.size(); ++rank) {
    Ending::Again& again = ending.again[rank];
    if (!again.due || Clock::now() < *again.due || ending.begun()) continue;
    again = {.pauses = again.pauses};
    start(static_cast<int>(rank));
  }
}

// A rank that failed, and its wait status.
struct Failure {
  int rank = -1;
  pid_t pid = 0;
  int how = 0;
};

// How likely a failure is the cause of the others. A signal is most likely; status 1 is least likely, because a rank
// that lost another one exits so.
int likeliness(int how) {
  if (WIFSIGNALED(how)) return 2;
  return WEXITSTATUS(how) == 1 ? 0 : 1;
}

// Reaps the ranks that have ended. If several failures are found, `failure` becomes the likeliest cause, or the first
// of equals.
void reap_all(Processes& processes, const Job& job, Ending& ending, Failure& failure) {
  for (int rank = 0; rank < job.start.ranks; ++rank) {
    const pid_t pid = processes.pid(rank);
    const std::optional<int> status = processes.reap(rank);
    if (!status) continue;
    ending.how[static_cast<size_t>(rank)] = *status;
    if (!ending.status && was_killed(*status)) ++ending.killed;
    if (ending.signal) {
      ending.ended.insert(*status);
      if (!ending.kill) ending.kill = after(job.options.grace_s);
      continue;
    }
    if (*status == 0) continue;
    if (ending.restarts > 0 && !ending.status) {
      restart(rank, pid, *status, job, ending);
      continue;
    }
    if (failure.rank >= 0 && likeliness(*status) <= likeliness(failure.how)) continue;
    failure = {rank, pid, *status};
  }
}

// A process closes its connections a moment before it can be reaped, so others may notice and end before that. Those
// that end because they have lost another one are waited for longer: another one is then about to end.
constexpr useconds_t kUntilCause = 50000;
constexpr int kMostWaits = 20;

void look_for_failures(Processes& processes, const Job& job, Ending& ending) {
  Failure failure;
  reap_all(processes, job, ending, failure);
  if (failure.rank < 0) return;
  if (ending.status) {  // a failure found late may be the cause of the first one
    const bool explains = ending.first >= 0 && WIFEXITED(failure.how) &&
                          likeliness(failure.how) > likeliness(*ending.how[static_cast<size_t>(ending.first)]);
    if (!explains) return;
    ending.status = exit_status(failure.how);
    ending.first = failure.rank;
    return;
  }
  for (int wait = 0; wait < kMostWaits && !WIFSIGNALED(failure.how) && processes.running() > 0; ++wait) {
    usleep(kUntilCause);
    reap_all(processes, job, ending, failure);
    if (likeliness(failure.how) > 0) break;
  }
  ending.status = exit_status(failure.how);
  ending.first = failure.rank;
  ending.kill = after(job.options.grace_s);
  const std::string others =
      processes.running() > 0 ? str_cat("; ending the other ranks (", processes.running(), " still ran)") : "";
  say(str_cat(job.options.name, ": rank ", job.name(failure.rank), " (process ", failure.pid, ") ",
              describe_end(failure.how), others));
  processes.kill_all(SIGTERM);
}

// Forwards the launcher's signal to the ranks, which do not get the terminal's signals themselves. They may take their
// time to end in good order, until one of them has ended or a second signal comes. The sender usually has a time limit
// as well.
void hand_on(int signal, const Job& job, Processes& processes, Ending& ending) {
  if (signal == SIGTSTP) {
    processes.kill_all(SIGSTOP);
    raise(SIGSTOP);
    return processes.kill_all(SIGCONT);
  }
  processes.kill_all(signal == SIGHUP ? SIGTERM : signal);  // SIGHUP may mean something else to the ranks
  if (ending.begun()) {
    if (!ending.kill) ending.kill = after(job.options.grace_s);
    return;
  }
  ending.signal = signal;
  say(str_cat(job.options.name, ": passed signal ", signal, " (", strsignal(signal),
              ") on to all ranks and waits for them; a second signal ends them within ", job.options.grace_s, " s"));
}

// Ranks here cannot go on without those of a node that has left. They notice that themselves, unless they hang.
void look_for_nodes(Processes& processes, const Job& job, Ending& ending) {
  if (job.rendezvous == nullptr) return;
  const std::optional<int> node = job.rendezvous->who_left();
  if (!node || ending.begun() || processes.running() == 0) return;
  ending.status = 1;
  ending.kill = after(job.options.grace_s);
  say(str_cat(job.options.name, ": node ", *node, " has left the job; ending the ranks here"));
  processes.kill_all(SIGTERM);
}

Ending wait_for_all(Processes& processes, const Job& job, const SignalMask& mask, const StartRank& start) {
  Ending ending;
  ending.restarts = job.options.restarts;
  ending.how.resize(static_cast<size_t>(job.start.ranks));
  ending.again.resize(static_cast<size_t>(job.start.ranks),
                      {.pauses = Pauses(job.options.restart_pause_s.value_or(kRankPause))});
  while (true) {
    look_for_failures(processes, job, ending);
    start_again(start, ending);
    look_for_nodes(processes, job, ending);
    // Processes that the ranks of a successful job have left running are not touched.
    if (processes.running() == 0 && !ending.pausing() && (!ending.begun() || !processes.anything_running()))
      return ending;
    if (ending.kill && Clock::now() >= *ending.kill) {
      processes.kill_all(SIGKILL);
      ending.kill = after(3600);
    }
    const double wait_s = ending.pausing() ? 0.05 : 1.0;
    const int signal = mask.wait(ending.kill ? std::min(wait_s, seconds_until(*ending.kill)) : wait_s);
    if (signal != 0 && signal != SIGCHLD) hand_on(signal, job, processes, ending);
  }
}

std::string count_text(int64_t count) { return count < 0 ? "-" : std::to_string(count); }

// For a job that failed or was ended: prints which rank ended how, at which step, and what was saved.
void print_table(const Job& job, const Ending& ending, const StatusBoard& board) {
  std::ostringstream out;
  out << job.options.name << ": how the ranks ended\n  rank  step      saved     end\n";
  const auto column = [&](const std::string& text, size_t width) {
    out << text << std::string(text.size() < width ? width - text.size() : 1, ' ');
  };
  for (int rank = 0; rank < job.start.ranks; ++rank) {
    const RankStatus* const told = board.rank(job.name(rank));
    out << "  ";
    column(std::to_string(job.name(rank)), 6);
    column(count_text(told ? told->step.load() : -1), 10);
    column(count_text(told ? told->saved.load() : -1), 10);
    const std::optional<int>& how = ending.how[static_cast<size_t>(rank)];
    out << (how ? describe_end(*how) : "was left running") << (rank == ending.first ? ", the first to fail" : "")
        << '\n';
  }
  std::cerr << out.str() << std::flush;
}

// Runs the ranks of a job from their start to the end of the last one.
Ending run_job(const Job& job, const std::vector<std::string>& command, const SignalMask& mask, bool table) {
  const Guard guard;
  const StatusBoard board(job.start.world);
  Processes processes(job.start.ranks, Processes::kOwnGroups);
  const StartRank start = [&](int rank) {
    if (processes.fork_rank(rank)) {
      mask.restore();
      signal(SIGXFSZ, SIG_DFL);  // the command, another program, may expect the default
      leave_terminal();
      set_environment(job, rank);
      board.hand_on();
      execute(command);
    }
    guard.add(rank, processes.pid(rank));
  };
  for (int rank = 0; rank < job.start.ranks; ++rank) start(rank);
  Ending ending = wait_for_all(processes, job, mask, start);
  if (table && ending.result() != 0) print_table(job, ending, board);
  for (int rank = 0; rank < job.start.ranks; ++rank) {
    if (const RankStatus* const told = board.rank(job.name(rank)))
      ending.step = std::max(ending.step, told->step.load());
  }
  return ending;
}

// True if another start may succeed: not after a signal that asked the job to end, and not if the command is wrong.
bool may_start_again(const Ending& ending) {
  const int result = ending.result();
  return result != 0 && !ending.signal && result != kStoppedBySignal && result != 2 && result != 126 && result != 127;
}

// Decides where the ranks of a job's next start are: on this node, or on as many nodes as meet.
class Nodes {
 public:
  Nodes(const LaunchOptions& options, const SignalMask& mask) : options_(options), mask_(mask) {
    if (options.rendezvous) rendezvous_.emplace(*options.rendezvous, options.name);
  }

  // Unset if there is no other start; status() is then the job's.
  std::optional<JobStart> next_start(int ranks) {
    if (!rendezvous_) {
      const int port = options_.master_port != 0 ? options_.master_port : free_port();
      return JobStart{.ranks = ranks, .world = ranks, .master_port = port, .token = random_token()};
    }
    const int all = options_.ranks * options_.rendezvous->nodes;
    rendezvous_->come(ranks, options_.ranks, options_.least_ranks > 0 ? options_.least_ranks : all);
    while (true) {
      if (std::optional<JobStart> start = rendezvous_->meet()) return start;
      const std::optional<int> ended = rendezvous_->ended();
      const int signal = ended ? 0 : mask_.wait(0.2);
      if (!ended && (signal == 0 || signal == SIGCHLD || signal == SIGTSTP)) continue;
      status_ = ended ? *ended : 128 + signal;
      return std::nullopt;
    }
  }
  int status() const { return status_; }

  // The number of ranks here in another start. With several nodes, a node that has lost no rank keeps all.
  int ranks_left(int ranks, const Ending& ending) const {
    if (options_.least_ranks == 0) return options_.ranks;
    if (rendezvous_) return std::max(1, ranks - ending.killed);
    return std::max(options_.least_ranks, ranks - ending.killed);
  }
  Rendezvous* rendezvous() { return rendezvous_ ? &*rendezvous_ : nullptr; }
  int leave(int status) {
    if (rendezvous_) rendezvous_->leave(status);
    return status;
  }

 private:
  const LaunchOptions& options_;
  const SignalMask& mask_;
  std::optional<Rendezvous> rendezvous_;
  int status_ = 0;
};

// A signal that asks the job to end, within `seconds`; 0 if none came. Meanwhile this node shows others that it is
// alive.
int wait_for_signal(const SignalMask& mask, Rendezvous* rendezvous, double seconds) {
  for (const Deadline end = after(seconds); Clock::now() < end;) {
    const int signal = mask.wait(std::min(0.2, seconds_until(end)));
    if (rendezvous != nullptr) (void)rendezvous->who_left();
    if (signal != 0 && signal != SIGCHLD && signal != SIGTSTP) return signal;
  }
  return 0;
}

}  // namespace

int launch(const LaunchOptions& options, const std::vector<std::string>& command) {
  TESSERA_CHECK(options.ranks >= 1 && !command.empty());
  if (!is_there(command[0])) {
    std::cerr << str_cat("cannot run ", command[0], ": No such file or directory\n") << std::flush;
    return 127;
  }
  std::cout.flush();
  const SignalMask mask;
  Nodes nodes(options, mask);
  int ranks = options.ranks;
  Pauses pauses(options.restart_pause_s.value_or(kJobPause));
  int64_t reached = 0;
  for (int left = options.job_restarts;; --left) {
    const std::optional<JobStart> start = nodes.next_start(ranks);
    if (!start) return nodes.leave(nodes.status());
    const Ending ending = run_job({options, *start, nodes.rendezvous()}, command, mask, options.table);
    if (left == 0 || !may_start_again(ending)) return nodes.leave(ending.result());
    ranks = nodes.ranks_left(start->ranks, ending);
    const double pause = pauses.next(seconds_since(ending.begun_at), ending.step > reached);
    reached = std::max(reached, ending.step);
    say(str_cat(options.name, ": starting the job again with ", ranks, ranks == 1 ? " rank" : " ranks",
                options.rendezvous ? " here" : "", " in ", pause, " s (", left - 1, " restarts of it are left)"));
    if (const int signal = wait_for_signal(mask, nodes.rendezvous(), pause); signal != 0)
      return nodes.leave(128 + signal);
  }
}

}  // namespace tessera::cli
