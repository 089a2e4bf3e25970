#include "plugin_watch.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iostream>
#include <map>
#include <string_view>

#include "plugin/environment.h"
#include "tessera/calls.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{500};
constexpr std::chrono::seconds kPatience{5};

// A call that was seen while it ran.
struct Seen {
  Clock::time_point since;
  Clock::duration report = kPatience;  // time after which it is reported next
};

std::map<uint64_t, Seen> look(const std::map<uint64_t, Seen>& before) {
  std::map<uint64_t, Seen> now;
  const Clock::time_point time = Clock::now();
  for (const plugin::RunningCall& call : plugin::running_calls()) {
    if (call.waits) continue;
    const auto known = before.find(call.number);
    Seen& seen = now.emplace(call.number, known == before.end() ? Seen{time} : known->second).first->second;
    if (time - seen.since < seen.report) continue;
    seen.report = 2 * seen.report;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time - seen.since).count();
    // Written at once, because ranks share standard error.
    std::cerr << str_cat("tessera: warning: process ", getpid(), " has waited ", seconds,
                         " s for a plugin: ", call.text, '\n');
  }
  return now;
}

constexpr std::array kCrashes = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

// The previous action of each of these signals.
std::array<struct sigaction, kCrashes.size()>& before() {
  static constinit std::array<struct sigaction, kCrashes.size()> actions{};
  return actions;
}

// A text for one write(), composed without allocating memory.
class CrashLine {
 public:
  void add(std::string_view text) {
    const size_t length = std::min(text.size(), text_.size() - size_);
    std::memcpy(text_.data() + size_, text.data(), length);
    size_ += length;
  }
  void add(int number) {
    std::array<char, 12> digits{};
    size_t at = digits.size();
    do digits[--at] = static_cast<char>('0' + number % 10);
    while ((number /= 10) != 0);
    add({digits.data() + at, digits.size() - at});
  }
  void write() const { (void)!::write(STDERR_FILENO, text_.data(), size_); }

 private:
  std::array<char, 512> text_{};
  size_t size_ = 0;
};

// Async-signal-safe.
void on_crash(int signal, siginfo_t* info, void*) {
  std::array<char, 320> call{};
  if (const size_t length = plugin::describe_call_here(call.data(), call.size()); length > 0) {
    CrashLine line;
    line.add("tessera: process ");
    line.add(getpid());
    line.add(" crashed (SIG");
    line.add(sigabbrev_np(signal));
    line.add(") in a plugin: ");
    line.add({call.data(), length});
    line.add("\n");
    line.write();
  }
  for (size_t i = 0; i < kCrashes.size(); ++i) {
    if (kCrashes[i] == signal) sigaction(signal, &before()[i], nullptr);
  }
  if (info->si_code <= 0) raise(signal);  // the signal was sent; a fault recurs by itself
}

// A handler cannot run on a stack that has overflowed.
void give_main_thread_a_spare_stack() {
  static constinit std::array<char, 65536> memory{};
  stack_t spare{};
  if (sigaltstack(nullptr, &spare) != 0 || (spare.ss_flags & SS_DISABLE) == 0) return;  // it already has one
  spare.ss_sp = memory.data();
  spare.ss_size = memory.size();
  spare.ss_flags = 0;
  sigaltstack(&spare, nullptr);
}

}  // namespace

PluginWatch::PluginWatch() : thread_([this] { run(); }) {}

PluginWatch::~PluginWatch() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void PluginWatch::run() {
  std::map<uint64_t, Seen> seen;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kBetweenLooks, [&] { return end_; })) seen = look(seen);
}

void report_crashes() {
  if (!plugin::read_environment().crash_report) return;
  give_main_thread_a_spare_stack();
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kCrashes.size(); ++i) sigaction(kCrashes[i], &action, &before()[i]);
}

}  // namespace tessera::cli
