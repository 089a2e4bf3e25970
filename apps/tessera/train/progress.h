// Shows the progress of training: on a terminal one line that is redrawn, otherwise plain lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "stopwatch.h"
#include "tessera/train_job.h"

namespace tessera::cli {

// The values shown in a line of progress.
struct ProgressState {
  int64_t step = 0, steps = 0;  // steps done, and in all; 0: there is no end
  int64_t epoch = 0;
  double samples_per_s = 0;
  std::optional<double> seconds_left;     // unset if it cannot be estimated yet
  std::optional<double> loss;             // mean over the last steps; unset if there is none
  std::string validation;                 // the monitor's value in the last validation; empty if there was none
  double table_rate = 1, dense_rate = 1;  // factors of the learning rates; shown unless they are 1
};

// For example "step 120/500  0:42 to go  loss 0.6931  98000 samples/s  epoch 0  rates x 0.5 (tables) x 1 (dense)".
std::string progress_text(const ProgressState& state);
// The same for a terminal, shorter than `columns`: the last pieces are left out if they do not fit, and a bar fills the
// remaining width if there is enough.
std::string progress_line(const ProgressState& state, int columns);

class Progress {
 public:
  // `shown`: only one rank prints. `log_every`: steps between plain lines; 0: none. `terminal`: draw a bar.
  struct Options {
    int64_t first = 0;  // steps done before this run
    int64_t steps = 0;  // steps in all; 0: there is no end
    int64_t log_every = 100;
    bool shown = true;
    bool terminal = false;
  };
  explicit Progress(Options options) : options_(options) {}
  ~Progress() { finish(); }  // so that an error message begins on a line of its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // True if report() after this step would print. The answer is the same on all ranks, so that they can agree on the
  // loss first.
  bool due(int64_t step) const;
  void report(const TrainProgress& done);
  // The same without a loss; does nothing without a terminal.
  void report(int64_t step, int64_t samples);
  // Sets a text that is part of the line from now on.
  void set_validation(const std::string& text) { validation_ = text; }
  // Prints a line of its own.
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

// True if standard error is a terminal that can rewrite a line.
bool stderr_is_terminal();

}  // namespace tessera::cli
