// Two hosts on one machine: network namespaces joined by one link, and jobs whose ranks run there.
//
// The namespaces have no names. Each lives in a process that this test starts and that ends with it, even if the test
// is
// killed. The kernel removes namespaces and link with their last process, so nothing must be cleaned up or can collide.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test {

// A process that holds a network namespace.
class Namespace {
 public:
  Namespace() {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char byte = unshare(CLONE_NEWNET) == 0 ? '1' : '0';
      if (write(ready[1], &byte, 1) != 1) _exit(1);
      while (true) pause();
    }
    char byte = '0';
    close(ready[1]);
    works_ = pid_ > 0 && read(ready[0], &byte, 1) == 1 && byte == '1';
    close(ready[0]);
  }
  ~Namespace() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Namespace(const Namespace&) = delete;
  Namespace& operator=(const Namespace&) = delete;

  bool works() const { return works_; }
  pid_t pid() const { return pid_; }
  // Called in the child of a fork, which stays in the namespace.
  void enter() const {
    const int fd = open(str_cat("/proc/", pid_, "/ns/net").c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) _exit(126);
    close(fd);
  }

 private:
  pid_t pid_ = 0;
  bool works_ = false;
};

// Hosts 0 and 1. The address of a host is on its loopback device, so that its ranks reach each other without the link.
class TwoHosts {
 public:
  // `rate` limits the link in each direction, in tc's notation: "20mbit"; empty: unlimited.
  explicit TwoHosts(const std::string& rate = "") {
    if (!hosts_[0].works() || !hosts_[1].works()) {
      problem_ = "unshare(CLONE_NEWNET) is refused";
      return;
    }
    run(0, str_cat("ip link add link0 type veth peer name link0 netns ", hosts_[1].pid()));
    for (const int host : {0, 1}) {
      run(host, str_cat("ip link set lo up && ip addr add ", address(host), "/32 dev lo && ip addr add 10.77.0.",
                        host + 1, "/30 dev link0 && ip link set link0 up"));
      if (!rate.empty()) run(host, str_cat("tc qdisc add dev link0 root tbf rate ", rate, " burst 32kb latency 400ms"));
    }
    for (const int host : {0, 1}) {
      run(host, str_cat("ip route add ", address(1 - host), " via 10.77.0.", 2 - host, " src ", address(host)));
    }
  }

  // The reason why there are no two hosts here; empty if there are.
  const std::string& problem() const { return problem_; }
  static std::string address(int host) { return str_cat("10.77.1.", host + 1); }
  const Namespace& operator[](int host) const { return hosts_[static_cast<size_t>(host)]; }
  void cut() { run(0, "ip link set link0 down"); }

 private:
  void run(int host, const std::string& command) {
    if (!problem_.empty()) return;
    const Finished done = run_program({"/bin/sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; " + command}, 20,
                                      [&] { hosts_[static_cast<size_t>(host)].enter(); });
    if (done.status != 0) problem_ = command + ": " + done.output;
  }

  std::array<Namespace, 2> hosts_;
  std::string problem_;
};

// Two ranks on each host, started as by torchrun.
struct HostsJob {
  std::vector<std::string> args;                // of tessera, on all ranks
  std::vector<std::vector<std::string>> extra;  // further arguments per rank; may be shorter
  std::vector<int> absent;                      // ranks that are not started
  bool says_hosts = true;                       // false: without LOCAL_RANK and LOCAL_WORLD_SIZE
};

class HostsRun {
 public:
  static constexpr int kRanks = 4, kPerHost = 2;

  HostsRun(const TwoHosts& hosts, const HostsJob& job) : ranks_(kRanks) {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (std::find(job.absent.begin(), job.absent.end(), rank) != job.absent.end()) continue;
      std::vector<std::string> command = {tessera_path()};
      command.insert(command.end(), job.args.begin(), job.args.end());
      const size_t r = static_cast<size_t>(rank);
      if (r < job.extra.size()) command.insert(command.end(), job.extra[r].begin(), job.extra[r].end());
      ranks_[r] = std::make_unique<Program>(command, [&] {
        hosts[rank / kPerHost].enter();
        set("RANK", str_cat(rank));
        set("WORLD_SIZE", str_cat(kRanks));
        set("MASTER_ADDR", TwoHosts::address(0));
        set("MASTER_PORT", "29500");
        set("TESSERA_JOB_TOKEN", "two hosts");
        if (!job.says_hosts) return;
        set("LOCAL_RANK", str_cat(rank % kPerHost));
        set("LOCAL_WORLD_SIZE", str_cat(kPerHost));
      });
    }
  }

  Program& rank(int r) { return *ranks_[static_cast<size_t>(r)]; }
  // The results per rank; ranks that were not started have status -1.
  std::vector<Finished> wait(double timeout_s) {
    std::vector<Finished> done(kRanks);
    for (size_t r = 0; r < kRanks; ++r) {
      if (!ranks_[r]) continue;
      done[r].status = ranks_[r]->wait(timeout_s);
      done[r].output = ranks_[r]->output();
    }
    return done;
  }

 private:
  static void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

  std::vector<std::unique_ptr<Program>> ranks_;
};

// Skips the test if there are no network namespaces. ctest recognises a skipped test by this text.
#define SKIP_WITHOUT(hosts) \
  if (!(hosts).problem().empty()) GTEST_SKIP() << "no network namespaces here: " << (hosts).problem()

}  // namespace tessera::test
