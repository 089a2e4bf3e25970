#include "verify/threads.h"

#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "verify/check.h"

namespace tessera::cli::verify {

int threads_now() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

int threads_once_at_most(int expected) {
  for (int i = 0; i < 1000 && threads_now() > expected; ++i) usleep(1000);
  return threads_now();
}

void require_no_threads_left(int expected) {
  const int left = threads_once_at_most(expected) - expected;
  if (left <= 0) return;
  throw Broken(str_cat(left, left == 1 ? " thread that it started runs" : " threads that it started run",
                       " on after all objects were used and destroyed"),
               "abi/plugin.h, tsr_component::destroy");
}

void on_four_threads(const std::function<void(int)>& ask) {
  std::vector<std::string> said(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      try {
        ask(t);
      } catch (const std::exception& e) {
        said[static_cast<size_t>(t)] = e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : said) require(text.empty(), text);
}

}  // namespace tessera::cli::verify
