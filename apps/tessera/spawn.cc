#include "spawn.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <set>
#include <sstream>

#include "processes.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

// "exited with status 3", "was killed by signal 9 (Killed)"
std::string describe(int status) {
  if (WIFSIGNALED(status)) {
    return cat("was killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  }
  return cat("exited with status ", WEXITSTATUS(status));
}

int exit_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

void set_environment(const LaunchOptions& options, int rank, int port, const std::string& token) {
  RankEnvironment::clear_environment();
  const std::string world = std::to_string(options.ranks), index = std::to_string(rank);
  setenv("RANK", index.c_str(), 1);
  setenv("WORLD_SIZE", world.c_str(), 1);
  setenv("LOCAL_RANK", index.c_str(), 1);
  setenv("LOCAL_WORLD_SIZE", world.c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  setenv("TESSERA_JOB_TOKEN", token.c_str(), 1);
}

// Ranks are in the terminal's background, where reading from it would stop them.
void leave_terminal() {
  if (isatty(STDIN_FILENO) == 0) return;
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
}

// Whether execvp() would find it: looked at once, so that not every rank says the same.
bool is_there(const std::string& program) {
  if (program.find('/') != std::string::npos) return access(program.c_str(), F_OK) == 0;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access(cat(folder.empty() ? "." : folder, "/", program).c_str(), X_OK) == 0) return true;
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

// Whether whoever started this program wants it to go on: nohup, and a shell for "command &".
bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Signals that the launcher waits for, blocked while this lives, and so told even where they are ignored: those are
// left out. SIGPIPE is ignored: nobody has to read what it says.
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
    signal(SIGCHLD, SIG_DFL);  // where it was inherited as ignored, nobody could be waited for
  }
  ~SignalMask() { restore(); }
  void restore() const {
    signal(SIGPIPE, pipe_before_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  // A signal that came within `seconds`; 0: none.
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

// What the launcher knows while it waits: the first failure, and whether the job is ending.
struct Ending {
  std::optional<int> status;     // to return, because of a failure
  int signal = 0;                // that the launcher was sent first
  std::set<int> ended;           // wait statuses of the ranks that have ended since
  std::optional<Deadline> kill;  // when SIGKILL follows
  int restarts = 0;              // that are left

  bool begun() const { return status || signal; }
  // Of a job that a signal has ended: what its ranks made of it, where they agree, or else 128 + N.
  int result() const {
    if (status || !signal) return status.value_or(0);
    const bool agreed = ended.size() == 1 && WIFEXITED(*ended.begin()) && WEXITSTATUS(*ended.begin()) != 0;
    return agreed ? WEXITSTATUS(*ended.begin()) : 128 + signal;
  }
};

// A rank that dies as soon as it starts shall not use up all restarts in an instant.
constexpr useconds_t kBeforeRestart = 300000;

void restart(int rank, pid_t pid, int how, const LaunchOptions& options, const StartRank& start, Ending& ending) {
  --ending.restarts;
  std::cerr << options.name << ": rank " << rank << " (process " << pid << ") " << describe(how)
            << "; starting it again (" << ending.restarts << " restarts are left)" << std::endl;
  usleep(kBeforeRestart);
  start(rank);
}

// A rank that failed, and how.
struct Failure {
  int rank = -1;
  pid_t pid = 0;
  int how = 0;
};

// Reaps what has ended. Of several failures found at once, one by a signal is the likelier cause of the others.
void reap_all(Processes& processes, const LaunchOptions& options, const StartRank& start, Ending& ending,
              Failure& failure) {
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t pid = processes.pid(rank);
    const std::optional<int> status = processes.reap(rank);
    if (!status) continue;
    if (ending.signal) {
      ending.ended.insert(*status);
      if (!ending.kill) ending.kill = after(options.grace_s);
      continue;
    }
    if (*status == 0) continue;
    if (ending.restarts > 0 && !ending.status) {
      restart(rank, pid, *status, options, start, ending);
      continue;
    }
    if (failure.rank >= 0 && !(WIFSIGNALED(*status) && !WIFSIGNALED(failure.how))) continue;
    failure = {rank, pid, *status};
  }
}

// A killed process closes its connections a moment before it can be reaped: others may notice and end before that.
constexpr useconds_t kUntilCause = 50000;

void look_for_failures(Processes& processes, const LaunchOptions& options, const StartRank& start, Ending& ending) {
  Failure failure;
  reap_all(processes, options, start, ending, failure);
  if (failure.rank < 0 || ending.status) return;
  if (!WIFSIGNALED(failure.how) && processes.running() > 0) {
    usleep(kUntilCause);
    reap_all(processes, options, start, ending, failure);
  }
  ending.status = exit_status(failure.how);
  ending.kill = after(options.grace_s);
  std::cerr << options.name << ": rank " << failure.rank << " (process " << failure.pid << ") "
            << describe(failure.how);
  if (processes.running() > 0) std::cerr << "; ending the other ranks (" << processes.running() << " still ran)";
  std::cerr << std::endl;
  processes.kill_all(SIGTERM);
}

// A signal for the launcher is one for the ranks, which do not get those of the terminal themselves. They may take
// their time to end in good order, until one of them has ended or a second signal comes; whoever sent it has a limit,
// too.
void hand_on(int signal, const LaunchOptions& options, Processes& processes, Ending& ending) {
  if (signal == SIGTSTP) {
    processes.kill_all(SIGSTOP);
    raise(SIGSTOP);
    return processes.kill_all(SIGCONT);
  }
  processes.kill_all(signal == SIGHUP ? SIGTERM : signal);  // ranks may have another use for SIGHUP
  if (ending.begun()) {
    if (!ending.kill) ending.kill = after(options.grace_s);
    return;
  }
  ending.signal = signal;
  std::cerr << options.name << ": handed signal " << signal << " (" << strsignal(signal)
            << ") on to all ranks, and waits for them; a second one ends them within " << options.grace_s << " s"
            << std::endl;
}

int wait_for_all(Processes& processes, const LaunchOptions& options, const SignalMask& mask, const StartRank& start) {
  Ending ending;
  ending.restarts = options.restarts;
  while (true) {
    look_for_failures(processes, options, start, ending);
    // What ranks of a job that went well have left behind is theirs.
    if (processes.running() == 0 && (!ending.begun() || !processes.anything_running())) return ending.result();
    if (ending.kill && Clock::now() >= *ending.kill) {
      processes.kill_all(SIGKILL);
      ending.kill = after(3600);
    }
    const int signal = mask.wait(ending.kill ? std::min(1.0, seconds_until(*ending.kill)) : 1.0);
    if (signal != 0 && signal != SIGCHLD) hand_on(signal, options, processes, ending);
  }
}

// --- forked functions ------------------------------------------------------------------------------------------------

void write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

// What a forked rank writes into its pipe: its error's code (0: none), the length of the text, the text: its result or
// the error's message.
struct Outcome {
  int32_t code = static_cast<int32_t>(Code::kOk);
  uint64_t size = 0;
};

std::string outcome_of(const std::function<std::string(const RankEnvironment&)>& body, const RankEnvironment& where) {
  Outcome outcome;
  std::string text;
  try {
    text = body(where);
  } catch (const Error& e) {
    outcome.code = static_cast<int32_t>(e.code());
    text = e.what();
  } catch (const std::exception& e) {
    outcome.code = static_cast<int32_t>(Code::kUnknown);
    text = e.what();
  }
  outcome.size = text.size();
  return std::string(reinterpret_cast<const char*>(&outcome), sizeof(outcome)) + text;
}

[[noreturn]] void be_rank(int fd, const std::function<std::string(const RankEnvironment&)>& body,
                          const RankEnvironment& where) {
  RankEnvironment::clear_environment();
  write_all(fd, outcome_of(body, where));
  std::cout.flush();
  fflush(nullptr);
  _exit(0);
}

struct Pipe {
  int fd = -1;
  std::string text;
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() { finish(); }
  void finish() {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  // Nothing where the rank ended before all of it was written.
  std::optional<Outcome> outcome() const {
    Outcome o;
    if (text.size() < sizeof(o)) return std::nullopt;
    std::memcpy(&o, text.data(), sizeof(o));
    return text.size() == sizeof(o) + o.size ? std::optional(o) : std::nullopt;
  }
  std::string body() const { return text.substr(sizeof(Outcome)); }
};

// Collects what forked ranks say until all have ended, or a deadline.
class Collector {
 public:
  Collector(int world, double timeout_s)
      : world_(world), processes_(world, Processes::kWithParent), pipes_(world), timeout_s_(timeout_s) {}

  void start(const std::function<std::string(const RankEnvironment&)>& body, RankEnvironment where, int local_world) {
    std::cout.flush();
    std::cerr.flush();
    fflush(nullptr);  // otherwise each fork would print what is buffered here
    for (int rank = 0; rank < world_; ++rank) {
      int ends[2];
      if (pipe2(ends, O_CLOEXEC) != 0) fail(Code::kResourceExhausted, "cannot start rank ", rank, ": ", system_error());
      pipes_[rank].fd = ends[0];
      where.rank = rank;
      where.local_rank = rank % local_world;
      if (processes_.fork_rank(rank)) be_rank(ends[1], body, where);
      close(ends[1]);
    }
  }

  std::vector<std::string> finish() {
    Deadline deadline = after(timeout_s_);
    bool late = false;
    for (int open = world_; open > 0;) {
      if (Clock::now() >= deadline) {
        late = failed_.empty();
        break;
      }
      const size_t failures = failed_.size();
      open -= read_some(deadline);
      // The others of a failed job find out by themselves: what they say may name the cause.
      if (failures == 0 && !failed_.empty()) deadline = std::min(deadline, after(3));
    }
    if (!failed_.empty()) throw_failure();
    if (late) throw_late();
    std::vector<std::string> results;
    for (Pipe& pipe : pipes_) results.push_back(pipe.body());
    return results;
  }

 private:
  // Returns how many pipes ended.
  int read_some(Deadline deadline) {
    std::vector<pollfd> polled;
    std::vector<int> ranks;
    for (int rank = 0; rank < world_; ++rank) {
      if (pipes_[rank].fd < 0) continue;
      polled.push_back({pipes_[rank].fd, POLLIN, 0});
      ranks.push_back(rank);
    }
    poll(polled.data(), polled.size(), static_cast<int>(std::min(1000.0, seconds_until(deadline) * 1000 + 1)));
    int ended = 0;
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      char buffer[65536];
      const ssize_t n = read(polled[i].fd, buffer, sizeof(buffer));
      if (n > 0) pipes_[ranks[i]].text.append(buffer, static_cast<size_t>(n));
      if (n > 0 || (n < 0 && errno == EINTR)) continue;
      pipes_[ranks[i]].finish();
      const std::optional<Outcome> outcome = pipes_[ranks[i]].outcome();
      if (!outcome || outcome->code != static_cast<int32_t>(Code::kOk)) failed_.push_back(ranks[i]);
      ++ended;
    }
    return ended;
  }

  // The error of one failed rank, and how much it explains: the less, the more.
  std::pair<int, Error> failure(int rank) {
    const std::optional<Outcome> outcome = pipes_[rank].outcome();
    if (!outcome) {
      std::optional<int> status;
      const Deadline deadline = after(2);
      while (!(status = processes_.reap(rank)) && Clock::now() < deadline) usleep(1000);
      return {0, Error(Code::kInternal, cat("rank ", rank, " ", status ? describe(*status) : "closed its pipe"))};
    }
    const Code code = static_cast<Code>(outcome->code);
    const int weight = code == Code::kAborted ? 3 : code == Code::kDeadlineExceeded ? 2 : 1;
    return {weight, Error(code, cat("rank ", rank, ": ", pipes_[rank].body()))};
  }

  [[noreturn]] void throw_failure() {
    std::optional<std::pair<int, Error>> worst;
    for (int rank : failed_) {
      auto candidate = failure(rank);
      if (!worst || candidate.first < worst->first) worst.emplace(std::move(candidate));
    }
    throw Error(worst->second);
  }

  [[noreturn]] void throw_late() {
    std::string names;
    for (int rank = 0; rank < world_; ++rank) {
      if (pipes_[rank].fd >= 0) names += cat(names.empty() ? "" : ", ", rank);
    }
    fail(Code::kDeadlineExceeded, "not done after ", timeout_s_, " s: rank ", names);
  }

  int world_;
  Processes processes_;
  std::vector<Pipe> pipes_;
  double timeout_s_;
  std::vector<int> failed_;  // in the order in which they ended
};

}  // namespace

int launch(const LaunchOptions& options, const std::vector<std::string>& command) {
  TESSERA_CHECK(options.ranks >= 1 && !command.empty());
  if (!is_there(command[0])) {
    std::cerr << cat("cannot run ", command[0], ": No such file or directory\n") << std::flush;
    return 127;
  }
  const int port = options.master_port != 0 ? options.master_port : free_port();
  const std::string token = random_token();
  std::cout.flush();
  const SignalMask mask;
  const Guard guard;
  Processes processes(options.ranks, Processes::kOwnGroups);
  const StartRank start = [&](int rank) {
    if (processes.fork_rank(rank)) {
      mask.restore();
      leave_terminal();
      set_environment(options, rank, port, token);
      execute(command);
    }
    guard.add(rank, processes.pid(rank));
  };
  for (int rank = 0; rank < options.ranks; ++rank) start(rank);
  return wait_for_all(processes, options, mask, start);
}

int run_ranks(int n, const std::vector<std::string>& args) {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0 || length == PATH_MAX) fail(Code::kUnavailable, "cannot find this program: ", system_error());
  std::vector<std::string> command{std::string(path, static_cast<size_t>(length))};
  command.insert(command.end(), args.begin(), args.end());
  return launch({.ranks = n, .name = args.empty() ? "tessera" : "tessera " + args[0]}, command);
}

std::vector<std::string> run_in_ranks(int world, int local_world, double timeout_s,
                                      const std::function<std::string(const RankEnvironment&)>& body) {
  TESSERA_CHECK(world >= 1 && local_world >= 1 && world % local_world == 0);
  RankEnvironment where;
  where.world_size = world;
  where.local_world_size = local_world;
  where.master_port = free_port();
  where.token = random_token();
  where.source = "fork";
  Collector collector(world, timeout_s);
  collector.start(body, where, local_world);
  return collector.finish();
}

int free_port() {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    uint32_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) break;
    const int port = 20000 + static_cast<int>(random % 12000);  // Linux hands out ports from 32768 on
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) break;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool free = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    if (free) return port;
  }
  fail(Code::kResourceExhausted, "found no free TCP port on loopback between 20000 and 31999");
}

std::string random_token() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
    fail(Code::kUnavailable, "no random bytes: ", system_error());
  std::string text;
  for (unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace tessera::cli
