#include "plugin/process_state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <cstdint>
#include <vector>

namespace tessera::plugin {
namespace {

// The rounding mode, the handling of denormal numbers, and the exceptions that trap, without the flags that sums set.
uint64_t mode_of(const std::fenv_t& environment) {
#if defined(__x86_64__)
  constexpr uint32_t kFlags = 0x3F;
  return (uint64_t{environment.__control_word} << 32) | (environment.__mxcsr & ~kFlags);
#else
  return environment.__fpcr;
#endif
}

bool same_folder(int folder) {
  struct stat before {
  }, now{};
  return ::fstat(folder, &before) != 0 ||
         (::stat(".", &now) == 0 && before.st_dev == now.st_dev && before.st_ino == now.st_ino);
}

bool same_action(const struct sigaction& a, const struct sigaction& b) {
  return a.sa_sigaction == b.sa_sigaction && a.sa_flags == b.sa_flags;
}

bool same_mask(const sigset_t& a, const sigset_t& b) {
  for (int signal = 1; signal < NSIG; ++signal) {
    if (::sigismember(&a, signal) != ::sigismember(&b, signal)) return false;
  }
  return true;
}

std::string listed(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " and " : ", ";
    out += words[i];
  }
  return out;
}

}  // namespace

ProcessState::ProcessState()
    : locale_(std::setlocale(LC_ALL, nullptr)), directory_(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  std::fegetenv(&floating_point_);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask_);
  for (int signal = 1; signal < NSIG; ++signal) (void)::sigaction(signal, nullptr, &actions_[signal]);
}

ProcessState::~ProcessState() {
  if (directory_ >= 0) ::close(directory_);
}

std::string ProcessState::restore() const {
  std::vector<std::string> changed;
  std::fenv_t now;
  std::fegetenv(&now);
  if (mode_of(now) != mode_of(floating_point_)) {
    std::fesetenv(&floating_point_);
    changed.emplace_back("the floating-point mode");
  }
  if (locale_ != std::setlocale(LC_ALL, nullptr)) {
    std::setlocale(LC_ALL, locale_.c_str());
    changed.emplace_back("the locale");
  }
  if (directory_ >= 0 && !same_folder(directory_) && ::fchdir(directory_) == 0)
    changed.emplace_back("the working directory");
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  if (!same_mask(mask, mask_)) {
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
    changed.emplace_back("the signal mask");
  }
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0 || same_action(action, actions_[signal])) continue;
    if (::sigaction(signal, &actions_[signal], nullptr) == 0)
      changed.push_back("the handler of signal " + std::to_string(signal));
  }
  return listed(changed);
}

}  // namespace tessera::plugin
