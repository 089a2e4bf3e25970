// Helpers for tests of whole programs: start one, wait for it with a deadline, read its output.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "config/test_directory.h"
#include "shell.h"

namespace tessera::test {

// Reads as far as possible, because a process that ends takes its files in /proc away.
inline std::string contents(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

// A program in its own process group, which is killed as a whole in the destructor; the program itself is also killed
// with the test. Both of its output streams go to one file. `in_child` runs before the program, in its process.
class Program {
 public:
  explicit Program(std::vector<std::string> command, const std::function<void()>& in_child = {})
      : command_(std::move(command)) {
    std::vector<char*> argv;
    for (std::string& word : command_) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string log = folder_.file("output");
    pid_ = fork();
    if (pid_ != 0) return;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int in = open("/dev/null", O_RDONLY), out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    // independent of how the tests were started
    for (const int heard : {SIGINT, SIGTERM, SIGHUP}) signal(heard, SIG_DFL);
    if (in_child) in_child();
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~Program() { end(); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  std::string output() const { return contents(folder_.file("output")); }

  // The exit status, or 128 + N for signal N. If the program still runs after timeout_s, -1 and a test failure.
  int wait(double timeout_s) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
    for (int status = 0; pid_ > 0;) {
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = 0;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      }
      if (std::chrono::steady_clock::now() > deadline) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    end();
    ADD_FAILURE() << "still running after " << timeout_s << " s; so far it wrote:\n" << output();
    return -1;
  }

 private:
  void end() {
    if (pid_ <= 0) return;
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  TestDirectory folder_;
  std::vector<std::string> command_;
  pid_t pid_ = 0;
};

// The built command-line program.
inline std::string tessera_path() { return TESSERA_PROGRAM; }

// The processes of a launcher's ranks, in no particular order.
inline std::vector<pid_t> ranks_of(pid_t launcher) {
  const std::string id = std::to_string(launcher);
  std::istringstream children(contents("/proc/" + id + "/task/" + id + "/children"));
  std::vector<pid_t> out;
  for (pid_t child = 0; children >> child;) {
    const std::string proc = "/proc/" + std::to_string(child);
    if (contents(proc + "/cmdline").find("train") != std::string::npos &&
        ('\0' + contents(proc + "/environ")).find(std::string(1, '\0') + "RANK=") != std::string::npos)
      out.push_back(child);
  }
  return out;
}

using Finished = Ended;  // its output has both streams

inline Finished run_program(std::vector<std::string> command, double timeout_s,
                            const std::function<void()>& in_child = {}) {
  Program program(std::move(command), in_child);
  const int status = program.wait(timeout_s);
  return {status, program.output()};
}

// The text in one line, without the marks of comments, because sentences may be wrapped anywhere.
inline std::string one_line(const std::string& text) {
  return std::regex_replace(text, std::regex("\\s*\n(# )?\\s*"), " ");
}

using Arguments = std::vector<std::string>;

inline Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The words of a command, which have no spaces.
inline Arguments words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

inline Finished run_tessera(Arguments args, double timeout_s = 120) {
  args.insert(args.begin(), tessera_path());
  return run_program(std::move(args), timeout_s);
}

// The output of a program that has to succeed; ends the test otherwise.
inline std::string succeed(const Finished& done, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (done.status == 0) return done.output;
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": the program ended with status " +
                           std::to_string(done.status) + " after it wrote:\n" + done.output);
}
inline std::string succeed(const Arguments& args, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return succeed(run_tessera(args), file, line);
}

// Expects a refusal, and returns what the program wrote.
inline std::string refused(const Finished& done) {
  EXPECT_EQ(done.status, 2) << done.output;
  return done.output;
}
// Expects a program to have failed with this status and message.
inline void expect_refused(const Finished& done, const testing::Matcher<std::string>& message, int status = 2,
                           const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const testing::ScopedTrace called(file, line, "called here");
  EXPECT_EQ(done.status, status) << done.output;
  EXPECT_THAT(done.output, message);
}
inline void expect_refused(const Arguments& args, const testing::Matcher<std::string>& message, int status = 2,
                           const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  expect_refused(run_tessera(args), message, status, file, line);
}

}  // namespace tessera::test
