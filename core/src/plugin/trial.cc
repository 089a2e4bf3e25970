#include "plugin/trial.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "tessera/error.h"

namespace tessera::plugin {
namespace {

constexpr int kLongestMs = 60'000;  // a plugin with large libraries on a busy machine takes seconds

// Runs in the child and ends it. Handlers at exit belong to the parent's libraries and do not run.
[[noreturn]] void answer(const std::function<TrialEnd()>& body, int to) {
  ::setpgid(0, 0);
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTERM, SIGINT}) ::signal(signal, SIG_DFL);
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, fd);
  const TrialEnd end = body();
  const std::string text = (end.harmless ? '1' : '0') + end.reason;
  const bool written = ::write(to, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::_exit(written ? 0 : 1);
}

// Everything that the child writes until it closes its end; false: the time was over.
bool read_all(int from, std::string* text) {
  std::array<char, 4096> piece{};
  for (;;) {
    pollfd ready{from, POLLIN, 0};
    const int found = ::poll(&ready, 1, kLongestMs);
    if (found == 0) return false;
    if (found < 0 && errno == EINTR) continue;
    const ssize_t n = ::read(from, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    text->append(piece.data(), static_cast<size_t>(n));
  }
}

}  // namespace

TrialEnd tried_in_a_child(const std::function<TrialEnd()>& body) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    answer(body, ends[1]);
  }
  ::close(ends[1]);
  std::string text;
  const bool in_time = child < 0 || read_all(ends[0], &text);
  ::close(ends[0]);
  if (child < 0) return {};
  ::kill(-child, SIGKILL);  // also ends what the child has started
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text.empty()) return {text.substr(1), text[0] == '1'};
  if (!in_time) return {str_cat("was not opened after ", kLongestMs / 1000, " s"), false};
  if (WIFSIGNALED(status))
    return {str_cat("crashed when it was opened (SIG", ::sigabbrev_np(WTERMSIG(status)), ")"), false};
  return {str_cat("ended the process with status ", WEXITSTATUS(status), " when it was opened"), false};
}

}  // namespace tessera::plugin
