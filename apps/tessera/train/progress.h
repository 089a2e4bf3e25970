// How far training is: a bar that rewrites its line on a terminal, plain lines otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tessera::cli {

class Progress {
 public:
  // `shown`: only one rank prints. `log_every`: steps between plain lines; 0: none. `terminal`: draw a bar.
  struct Options {
    int64_t steps = 0;  // in all
    int64_t log_every = 100;
    bool shown = true;
    bool terminal = false;
  };
  explicit Progress(Options options) : options_(options) {}

  // True when report() after this step would print: the caller then agrees on the loss with the other ranks. The same
  // on all ranks.
  bool due(int64_t step) const;
  // After `step` steps (1 for the first) and `samples` samples; `loss` is a mean over the last ones.
  void report(int64_t step, int64_t epoch, int64_t samples, double loss);
  // The same where there is no loss; nothing without a terminal.
  void report(int64_t step, int64_t samples);
  void finish();

 private:
  double rate_of(int64_t samples) const;
  void draw(int64_t step, const std::string& text);

  Options options_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool drawn_ = false;
};

// True when standard error is a terminal that can rewrite a line.
bool stderr_is_terminal();

}  // namespace tessera::cli
