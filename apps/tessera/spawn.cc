#include "spawn.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "processes.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

void write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

// The message that a forked rank writes into its pipe: its error's code (0 if none), the length of the text, and the
// text, which is its result or the error's message.
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
  std::quick_exit(0);  // skips the parent's exit handlers
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
  // Unset if the rank ended before it had written everything.
  std::optional<Outcome> outcome() const {
    Outcome o;
    if (text.size() < sizeof(o)) return std::nullopt;
    std::memcpy(&o, text.data(), sizeof(o));
    return text.size() == sizeof(o) + o.size ? std::optional(o) : std::nullopt;
  }
  std::string body() const { return text.substr(sizeof(Outcome)); }
};

// Collects the outcomes of forked ranks until all have ended, or until a deadline.
class Collector {
 public:
  Collector(int world, double timeout_s)
      : world_(world), processes_(world, Processes::kWithParent), pipes_(world), timeout_s_(timeout_s) {}

  void start(const std::function<std::string(const RankEnvironment&)>& body, RankEnvironment where, int local_world) {
    std::cout.flush();
    std::cerr.flush();
    fflush(nullptr);  // otherwise each fork would print the data buffered here
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
      // The other ranks of a failed job notice by themselves, and their messages may name the cause.
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

  // The error of a failed rank, and a number that is smaller the more the error explains.
  std::pair<int, Error> failure(int rank) {
    const std::optional<Outcome> outcome = pipes_[rank].outcome();
    if (!outcome) {
      std::optional<int> status;
      const Deadline deadline = after(2);
      while (!(status = processes_.reap(rank)) && Clock::now() < deadline) usleep(1000);
      return {0,
              Error(Code::kInternal, str_cat("rank ", rank, " ", status ? describe_end(*status) : "closed its pipe"))};
    }
    const Code code = static_cast<Code>(outcome->code);
    const int weight = code == Code::kAborted ? 3 : code == Code::kDeadlineExceeded ? 2 : 1;
    return {weight, Error(code, str_cat("rank ", rank, ": ", pipes_[rank].body()))};
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
      if (pipes_[rank].fd >= 0) names += str_cat(names.empty() ? "" : ", ", rank);
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
  RankEnvironment where{.world_size = world,
                        .local_world_size = local_world,
                        .master_port = free_port(),
                        .token = random_token(),
                        .source = "fork"};
  Collector collector(world, timeout_s);
  collector.start(body, where, local_world);
  return collector.finish();
}

int free_port() {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    uint32_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) break;
    const int port = 20000 + static_cast<int>(random % 12000);  // Linux assigns ports from 32768 on
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
