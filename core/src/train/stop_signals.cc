#include "tessera/train_loop.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace tessera {
namespace {

std::atomic<int> first_signal = 0;            // globals that the handler can reach
std::atomic<int64_t> first_milliseconds = 0;  // when it came
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

int64_t milliseconds_now() {  // async-signal-safe
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// A signal to all processes of a job also reaches its launcher, which forwards it. So one signal may arrive twice.
constexpr int64_t kHeardTwiceMs = 1000;

// Ends the process itself, because process 1 of a container ignores signals by default.
void handle(int signal) {
  int first = 0;
  if (first_signal.compare_exchange_strong(first, signal)) {
    first_milliseconds = milliseconds_now();
  } else if (signal != first || milliseconds_now() - first_milliseconds > kHeardTwiceMs) {
    _exit(128 + signal);
  }
}

// The handlers from before the current object, or from before the object that received a signal.
struct sigaction terminate_before, interrupt_before, hangup_before;

void put_back() {
  sigaction(SIGTERM, &terminate_before, nullptr);
  sigaction(SIGINT, &interrupt_before, nullptr);
  sigaction(SIGHUP, &hangup_before, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  if (requested()) put_back();  // another object received a signal
  first_signal = 0;
  first_milliseconds = 0;
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  const auto watch = [&](int signal, struct sigaction* before) {
    sigaction(signal, nullptr, before);
    if (before->sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  };
  watch(SIGTERM, &terminate_before);
  watch(SIGINT, &interrupt_before);
  watch(SIGHUP, &hangup_before);
}

StopSignals::~StopSignals() {
  if (!requested()) put_back();
}

void StopSignals::raise_again() {
  if (!requested()) return;
  put_back();
  raise(first_signal);
}

bool StopSignals::requested() { return first_signal.load(std::memory_order_relaxed) != 0; }

}  // namespace tessera
