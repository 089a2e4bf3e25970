// The state of the process that a library may change while it is opened. A constructor may change it. So does a library
// linked with -ffast-math, after which all sums lose denormal numbers.
#pragma once

#include <array>
#include <cfenv>
#include <csignal>
#include <string>

namespace tessera::plugin {

class ProcessState {
 public:
  ProcessState();  // takes the current state
  ~ProcessState();
  ProcessState(const ProcessState&) = delete;
  ProcessState& operator=(const ProcessState&) = delete;

  // Restores what has changed since then: floating-point mode and signal mask of this thread, and locale, working
  // directory and signal handlers of the process. Returns their names, "the locale and the working directory"; "" if
  // nothing has changed.
  std::string restore() const;

 private:
  std::fenv_t floating_point_;
  std::string locale_;
  int directory_;  // -1: it cannot be opened
  sigset_t mask_;
  std::array<struct sigaction, NSIG> actions_;  // by signal number
};

}  // namespace tessera::plugin
