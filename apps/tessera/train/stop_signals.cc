#include "train/stop_signals.h"

#include <unistd.h>

#include <atomic>

namespace tessera::cli {
namespace {

std::atomic<int> first_signal = 0;  // what a handler can reach
static_assert(std::atomic<int>::is_always_lock_free);

// A handler that ends the process itself: for process 1 of a container the default action is to ignore signals.
void handle(int signal) {
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, signal)) _exit(128 + signal);
}

}  // namespace

StopSignals::StopSignals() {
  first_signal = 0;
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  const auto watch = [&](int signal, struct sigaction* before) {
    sigaction(signal, nullptr, before);
    if (before->sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  };
  watch(SIGTERM, &terminate_before_);
  watch(SIGINT, &interrupt_before_);
}

StopSignals::~StopSignals() {
  sigaction(SIGTERM, &terminate_before_, nullptr);
  sigaction(SIGINT, &interrupt_before_, nullptr);
}

void StopSignals::raise_again() {
  if (requested()) raise(first_signal);
}

bool StopSignals::requested() { return first_signal.load(std::memory_order_relaxed) != 0; }

}  // namespace tessera::cli
