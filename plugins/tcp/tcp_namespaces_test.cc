// Tests hosts that only look alike: ranks with the same address in separate process namespaces, as in containers.
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>

#include "testing.h"

namespace tessera::tcp {
namespace {

// Runs `body` in a process in a new process namespace; returns its result, or -1 if this user may not create one. With
// `own_proc`, /proc shows only that namespace.
int in_namespace(bool own_proc, const std::function<int()>& body) {
  constexpr int kNotAllowed = 77;
  const pid_t outer = fork();
  if (outer == 0) {
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) _exit(kNotAllowed);
    const pid_t inner = fork();
    if (inner == 0) {
      const bool mounted = !own_proc || (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                                         mount("proc", "/proc", "proc", 0, nullptr) == 0);
      _exit(mounted ? body() : kNotAllowed);
    }
    int status = 0;
    waitpid(inner, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  int status = 0;
  waitpid(outer, &status, 0);
  const int result = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  return result == kNotAllowed ? -1 : result;
}

// Returns the number of ranks that this one shares memory with, plus 100 if data is wrong; 99 if it fails.
int run_exchange(const Where& where, int rank) try {
  TestHost host;
  const auto group = connect(host, where, rank);
  std::vector<int32_t> sent(800000, rank + 1), got(sent.size());
  const std::vector<int64_t> counts(2, 400000);
  finish(group->all_to_all_v(View<int32_t>(sent), counts, View<int32_t>(got), counts, call()));
  const bool right = std::count(got.begin(), got.begin() + 400000, 1) == 400000 &&
                     std::count(got.begin() + 400000, got.end(), 2) == 400000;
  return dynamic_cast<const Group&>(*group).shares_memory_with() + (right ? 0 : 100);
} catch (const std::exception& e) {
  std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
  return 99;
}

class Namespaces : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(OwnProc, Namespaces, testing::Bool());

// With a common /proc, memory can be shared. A process id means another process there, so nothing is fetched.
TEST_P(Namespaces, RanksExchangeWithWhatTheyCanProve) {
  const bool own_proc = GetParam();
  if (in_namespace(own_proc, [] { return 0; }) != 0) GTEST_SKIP() << "this user may not make namespaces";
  const Where where{.world_size = 2};
  const pid_t first = fork();
  if (first == 0) _exit(run_exchange(where, 0));
  EXPECT_EQ(in_namespace(own_proc, [&] { return run_exchange(where, 1); }), own_proc ? 0 : 1);
  int status = 0;
  waitpid(first, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), own_proc ? 0 : 1);
}

}  // namespace
}  // namespace tessera::tcp
