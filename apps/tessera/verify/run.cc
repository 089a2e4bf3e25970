#include "verify/run.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>

#include "plugin/process_state.h"
#include "processes.h"
#include "verify/threads.h"

namespace tessera::cli::verify {
namespace {

// The report of a check's process, in memory shared with the process that waits for it.
struct Report {
  static constexpr int kNothing = -1;
  std::atomic<int> outcome{kNothing};  // written last
  char text[1500]{};
  char rule[200]{};
  char doing[300]{};
};

template <size_t N>
void put(char (&to)[N], const std::string& text) {
  std::strncpy(to, text.c_str(), N - 1);
}

// A page of memory that forked processes share.
class SharedReport {
 public:
  SharedReport() {
    void* memory = mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail(Code::kResourceExhausted, "no memory for a check's report: ", system_error());
    report_ = new (memory) Report;
  }
  ~SharedReport() { munmap(report_, sizeof(Report)); }
  SharedReport(const SharedReport&) = delete;
  SharedReport& operator=(const SharedReport&) = delete;
  Report* operator->() const { return report_; }
  Report& operator*() const { return *report_; }

 private:
  Report* report_;
};

void set_up_process() {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) ::signal(signal, SIG_DFL);
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nowhere < 0) return;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, fd);
  close(nowhere);
}

void say(Report& report, Outcome outcome, const std::string& text, const std::string& rule) {
  put(report.text, text);
  put(report.rule, rule);
  report.outcome = static_cast<int>(outcome);
}

void use(const Check& check, const Subject::What& what, Report& report) {
  Subject subject(what, [&](const std::string& text) { put(report.doing, text); });
  check.run(subject);
  if (const std::string misuse = subject.host().misuse(); !misuse.empty()) throw Broken(misuse, "abi/host.h, tsr_host");
}

// Runs in the check's process. An exception of a type that is not ours comes from the plugin.
void perform(const Check& check, const Subject::What& what, Report& report) {
  try {
    const bool uses_objects = check.kind != nullptr && *check.kind != '\0';
    const plugin::ProcessState before;
    const int threads = threads_now();
    use(check, what, report);
    if (const std::string changed = before.restore(); uses_objects && !changed.empty())
      throw Broken("in use, it changed " + changed, "abi/base.h, The process is the host's");
    if (uses_objects) require_no_threads_left(threads);
    say(report, Outcome::kPassed, "", "");
  } catch (const Warning& e) {
    say(report, Outcome::kWarned, e.what(), e.rule().empty() ? check.rule : e.rule());
  } catch (const Broken& e) {
    say(report, Outcome::kFailed, e.what(), e.rule().empty() ? check.rule : e.rule());
  } catch (const Skipped& e) {
    say(report, Outcome::kSkipped, e.what(), "");
  } catch (const std::exception& e) {
    say(report, Outcome::kFailed, str_cat("an exception came out of ", report.doing, ": ", e.what()), check.rule);
  } catch (...) {
    say(report, Outcome::kFailed, str_cat("an exception came out of ", report.doing),
        "docs/ABI.md, No exception crosses");
  }
}

// Returns true if the process ended before the deadline.
bool wait_for(pid_t pid, double seconds, int* status) {
  for (const Deadline deadline = after(seconds); waitpid(pid, status, WNOHANG) == 0; usleep(1000)) {
    if (Clock::now() >= deadline) return false;
  }
  return true;
}

std::string how_it_ended(int status) {
  return WIFSIGNALED(status) ? str_cat("SIG", sigabbrev_np(WTERMSIG(status)))
                             : str_cat("the process ended with status ", WEXITSTATUS(status));
}

}  // namespace

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPassed:
      return "passed";
    case Outcome::kFailed:
      return "FAILED";
    case Outcome::kCrashed:
      return "CRASHED";
    case Outcome::kTimedOut:
      return "TIMED OUT";
    case Outcome::kSkipped:
      return "skipped";
    case Outcome::kWarned:
      return "warning";
  }
  return "?";
}

Result run_check(const Check& check, const Subject::What& what) {
  Result result{check.name,
                what.line.id.empty() ? std::filesystem::path(what.path).filename().string() : what.line.id,
                check.level,
                Outcome::kPassed,
                "",
                "",
                0};
  const SharedReport report;
  put(report->doing, "its start");
  const auto start = Clock::now();
  std::cout.flush();
  const pid_t pid = fork();
  if (pid < 0) fail(Code::kResourceExhausted, "cannot start a process for ", check.name, ": ", system_error());
  if (pid == 0) {
    set_up_process();
    perform(check, what, *report);
    _exit(0);  // skips what the plugin would do at exit, which is not part of this check
  }
  setpgid(pid, pid);  // in both processes, because either may run first
  int status = 0;
  const bool in_time = wait_for(pid, check.seconds, &status);
  kill(-pid, SIGKILL);  // kills ranks and anything else it started
  if (!in_time) waitpid(pid, &status, 0);
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const int said = report->outcome;
  if (said != Report::kNothing) {
    result.outcome = static_cast<Outcome>(said);
    result.text = report->text;
    result.rule = report->rule;
  } else if (!in_time) {
    result.outcome = Outcome::kTimedOut;
    result.text = str_cat(report->doing, " was not done after ", check.seconds, " s");
    result.rule = check.rule;
  } else {
    result.outcome = Outcome::kCrashed;
    result.text = str_cat("it crashed in ", report->doing, " (", how_it_ended(status), ")");
    result.rule = check.rule;
  }
  return result;
}

}  // namespace tessera::cli::verify
