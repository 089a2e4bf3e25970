// How far training is: one line of a terminal that is drawn again, plain lines otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "distributed/stopwatch.h"
#include "tessera/train_job.h"

namespace tessera::cli {

// What a line of progress says.
struct ProgressState {
  int64_t step = 0, steps = 0;  // done, and in all; 0: there is no end
  int64_t epoch = 0;
  double samples_per_s = 0;
  std::optional<double> seconds_left;     // nothing where that cannot be told yet
  std::optional<double> loss;             // a mean over the last steps; nothing where there is none
  std::string validation;                 // what the last one said of its monitor; empty: none was
  double table_rate = 1, dense_rate = 1;  // factors of the learning rates; shown where they are not 1
};

// "step 120/500  0:42 to go  loss 0.6931  98000 samples/s  epoch 0  rates x 0.5 (tables) x 1 (dense)"
std::string progress_text(const ProgressState& state);
// The same for a terminal, shorter than `columns`: what comes last is left out where it does not fit, and a bar fills
// what is left, where that is enough for one.
std::string progress_line(const ProgressState& state, int columns);

class Progress {
 public:
  // `shown`: only one rank prints. `log_every`: steps between plain lines; 0: none. `terminal`: draw a bar.
  struct Options {
    int64_t first = 0;  // steps done before this run
    int64_t steps = 0;  // in all; 0: there is no end
    int64_t log_every = 100;
    bool shown = true;
    bool terminal = false;
  };
  explicit Progress(Options options) : options_(options) {}
  ~Progress() { finish(); }  // what an error says begins on a line of its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // True when report() after this step would print: the caller then agrees on the loss with the other ranks. The same
  // on all ranks.
  bool due(int64_t step) const;
  void report(const TrainProgress& done);
  // The same where there is no loss; nothing without a terminal.
  void report(int64_t step, int64_t samples);
  // Stands in the line from now on.
  void set_validation(const std::string& text) { validation_ = text; }
  // A line of its own.
  void note(const std::string& text);
  void finish();

 private:
  ProgressState state(int64_t step, int64_t samples) const;  // without epoch and loss
  void draw(const ProgressState& state);

  Options options_;
  const Stopwatch watch_;
  bool drawn_ = false;
  std::string validation_;
};

// True when standard error is a terminal that can rewrite a line.
bool stderr_is_terminal();

}  // namespace tessera::cli
