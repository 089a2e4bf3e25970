// tessera/stop_signals.h - SIGTERM, SIGINT and SIGHUP ask a job to end in good order. Slurm, Kubernetes, Ctrl-C and a
// closing terminal send them.
//
//   const StopSignals signals;
//   TrainLoop loop(trainer, read, {.steps = 1000, .stop = StopSignals::requested});
#pragma once

#include <signal.h>

namespace tessera {

// The exit status of a job that a signal ended between two steps, after everything was saved: sysexits' EX_TEMPFAIL,
// "try again later".
inline constexpr int kStoppedBySignal = 75;

// While this object lives, the first of these signals is only remembered. The second one ends the process at once, with
// status 128 + N, unless it is the same signal within a second, which counts as the first received twice. Signals that
// were ignored stay ignored, because a shell's "job &" must not react to Ctrl-C. There may be one object at a time.
class StopSignals {
 public:
  StopSignals();
  // Restores the previous handlers, unless a signal was received: the process is then about to end, and its launcher
  // may forward the same signal a moment later.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  static bool requested();  // [any-thread] stays true after the object is gone
  // Restores the previous handlers and raises the remembered signal; does nothing without one.
  static void raise_again();
};

}  // namespace tessera
