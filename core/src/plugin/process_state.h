// State of the process that a library may change while it is opened: a constructor that runs then, or a library
// linked with -ffast-math, which makes every thread's later sums lose denormal numbers.
#pragma once

#include <array>
#include <cfenv>
#include <csignal>
#include <string>

namespace tessera::plugin {

class ProcessState {
 public:
  ProcessState();  // as it is now
  ~ProcessState();
  ProcessState(const ProcessState&) = delete;
  ProcessState& operator=(const ProcessState&) = delete;

  // Puts back what has changed since, for this thread (floating-point mode, signal mask) and the process (locale,
  // working directory, signal handlers). What that was: "the locale and the working directory"; "" where nothing was.
  std::string restore() const;

 private:
  std::fenv_t floating_point_;
  std::string locale_;
  int directory_;  // -1: there is none that can be opened
  sigset_t mask_;
  std::array<struct sigaction, NSIG> actions_;  // by signal
};

}  // namespace tessera::plugin
