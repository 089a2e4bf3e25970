// tessera/stop_signals.h - SIGTERM, SIGINT and SIGHUP, which ask a job to end in good order: Slurm, Kubernetes, Ctrl-C
// and a terminal that closes send them.
//
//   const StopSignals signals;
//   TrainLoop loop(trainer, read, {.steps = 1000, .stop = StopSignals::requested});
#pragma once

#include <signal.h>

namespace tessera {

// The exit status of a job that a signal has ended between two steps, with all that it was to save saved: sysexits'
// EX_TEMPFAIL, "try again later".
inline constexpr int kStoppedBySignal = 75;

// While this lives the first of these signals is only remembered; the second ends the process at once, with status
// 128 + N. The same one again within a second is the first, heard twice. One that was ignored stays so: a shell's "job
// &" shall not hear the Ctrl-C for another. One object at a time.
class StopSignals {
 public:
  StopSignals();
  // Restores the handlers of before, unless a signal was heard, because the process is to end then: its launcher may
  // hand the same one on a moment later.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  static bool requested();  // [any-thread] also when it has gone
  // Puts back what was before, and raises the signal that was remembered; nothing without one.
  static void raise_again();
};

}  // namespace tessera
