// Names the plugin that keeps the program waiting, and the one that was running when it crashed, on standard error.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace tessera::cli {

// While it lives, a plugin that takes longer than five seconds for one answer is named, again after ten, twenty and so
// on; exchanges with other ranks, which have deadlines, are not. Its thread does not survive a fork.
class PluginWatch {
 public:
  PluginWatch();
  ~PluginWatch();
  PluginWatch(const PluginWatch&) = delete;
  PluginWatch& operator=(const PluginWatch&) = delete;

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  bool end_ = false;
  std::thread thread_;
};

// From now on SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT are first reported with the plugin that their thread was
// calling, if it was; then they do what they did before. TESSERA_CRASH_REPORT=0: not.
void report_crashes();

}  // namespace tessera::cli
