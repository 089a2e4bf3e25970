#include "plugin/trial.h"

#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <filesystem>
#include <set>

#include "config/json.h"
#include "tessera/error.h"

namespace tessera::plugin {
namespace {

using Clock = std::chrono::steady_clock;

// The child's end of the pipe, for a handler that gets no argument. It is set in child processes only.
int answer_to = -1;

// Ends the child. Handlers at exit belong to the parent's libraries and do not run.
[[noreturn]] void answer(const TrialEnd& end) {
  const std::string text = to_json(end).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(answer_to, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) ::_exit(1);
    done += static_cast<size_t>(n);
  }
  ::_exit(0);
}

// An exception of a static initializer ends here, because the C library declares that dlopen does not throw.
[[noreturn]] void answer_what_was_thrown() {
  TrialEnd end{.reason = "called std::terminate when it was opened"};
  if (std::current_exception() != nullptr) {
    end.reason = "threw an exception when it was opened";
    try {
      std::rethrow_exception(std::current_exception());
    } catch (const std::exception& e) {
      end.reason += str_cat(": ", e.what());
    } catch (...) {  // an exception of another type has no text
    }
  }
  answer(end);
}

int running_threads() {
  std::error_code error;
  int count = 0;
  for (std::filesystem::directory_iterator at("/proc/self/task", error), end; !error && at != end; at.increment(error))
    ++count;
  return count;
}

std::set<std::string> loaded_files() {
  std::set<std::string> out;
  const auto add = [](dl_phdr_info* info, size_t, void* to) {
    if (info->dlpi_name[0] == '/') static_cast<std::set<std::string>*>(to)->insert(info->dlpi_name);
    return 0;
  };
  ::dl_iterate_phdr(add, &out);
  return out;
}

// Runs in the child and ends it.
[[noreturn]] void try_here(const std::function<TrialEnd()>& body, int to) {
  answer_to = to;
  ::setpgid(0, 0);
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a job that is stopped leaves no file that never opens behind
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTERM, SIGINT}) ::signal(signal, SIG_DFL);
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, fd);
  std::set_terminate(answer_what_was_thrown);
  // The newest handler runs first, so exit() does not run those of the parent.
  (void)::on_exit([](int status, void*) { ::_exit(status); }, nullptr);
  const int threads = running_threads();
  const std::set<std::string> before = loaded_files();
  TrialEnd end = body();
  end.threads = std::max(0, running_threads() - threads);
  for (const std::string& file : loaded_files()) {
    if (before.count(file) == 0) end.libraries.push_back(file);
  }
  answer(end);
}

// Everything that the child writes until it closes its end; false: the time was over.
bool read_all(int from, Clock::time_point until, std::string* text) {
  std::array<char, 4096> piece{};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd ready{from, POLLIN, 0};
    const int found = ::poll(&ready, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (found == 0) return false;
    if (found < 0 && errno == EINTR) continue;
    const ssize_t n = ::read(from, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    text->append(piece.data(), static_cast<size_t>(n));
  }
}

config::JsonSource a_childs_answer() { return {"the answer of a child process", Code::kInternal, size_t{1} << 20}; }

}  // namespace

TrialEnd tried_in_a_child(const std::function<TrialEnd()>& body, int longest_s) {
  TrialEnd end;
  std::array<int, 2> ends{};
  const pid_t child = ::pipe2(ends.data(), O_CLOEXEC) == 0 ? ::fork() : -2;
  if (child == 0) {
    ::close(ends[0]);
    try_here(body, ends[1]);
  }
  end.lasting = child > 0;
  if (child != -2) ::close(ends[1]);
  std::string text;
  const bool in_time = child < 0 || read_all(ends[0], Clock::now() + std::chrono::seconds(longest_s), &text);
  if (child != -2) ::close(ends[0]);
  if (child < 0) return end;
  ::kill(-child, SIGKILL);  // also ends what the child has started
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text.empty()) {
    try {
      return trial_end(config::parse_json(text, a_childs_answer()));
    } catch (const Error&) {
      end.reason = "wrote to files that are not its own when it was opened";
    }
  } else if (!in_time) {
    end.reason = str_cat("was not opened after ", longest_s, " s");
  } else if (WIFSIGNALED(status)) {
    end.reason = str_cat("crashed when it was opened (SIG", ::sigabbrev_np(WTERMSIG(status)), ")");
    end.lasting = WTERMSIG(status) != SIGKILL;  // the system kills what takes too much memory
  } else {
    end.reason = str_cat("ended the process with status ", WEXITSTATUS(status), " when it was opened");
  }
  return end;
}

nlohmann::ordered_json to_json(const TrialEnd& end) {
  return {{"reason", end.reason},
          {"harmless", end.harmless},
          {"lasting", end.lasting},
          {"threads", end.threads},
          {"libraries", end.libraries}};
}

TrialEnd trial_end(const nlohmann::ordered_json& json) {
  const config::JsonObject o(json, a_childs_answer());
  return {o.get<std::string>("reason"), o.get<bool>("harmless"), o.get<bool>("lasting"),
          o.within<int>("threads", 0, 1 << 30), o.get<std::vector<std::string>>("libraries")};
}

}  // namespace tessera::plugin
