// Names, on standard error, the plugin that keeps the program waiting, or the one that was running when it crashed.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace tessera::cli {

// While this object lives, a plugin that takes longer than five seconds for one answer is reported, again after ten,
// twenty and so on. Exchanges with other ranks are not reported, because they have deadlines. Its thread does not
// survive a fork.
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

// From now on, SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT first report the plugin that their thread was calling, if
// any; then they act as before. TESSERA_CRASH_REPORT=0 turns this off.
void report_crashes();

}  // namespace tessera::cli
