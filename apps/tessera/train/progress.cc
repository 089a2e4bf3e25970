#include "train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "formatted.h"
#include "wrapped.h"

namespace tessera::cli {
namespace {

constexpr int64_t kBarUpdates = 200;  // bound on redraws per run
constexpr int64_t kStepsToJudge = 10;
constexpr double kSecondsToJudge = 1;
constexpr int kWidestBar = 30, kNarrowestBar = 8;

// Formats "0:42", "1:02:03".
std::string duration_text(double seconds) {
  const long long s = std::llround(seconds);
  if (s < 3600) return formatted("%lld:%02lld", s / 60, s % 60);
  return formatted("%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
}

// The pieces of the line, the most important first.
std::vector<std::string> pieces(const ProgressState& p) {
  std::vector<std::string> out{formatted("%s%lld", p.loss ? "step " : "", static_cast<long long>(p.step))};
  if (p.steps > 0) out[0] += formatted("/%lld", static_cast<long long>(p.steps));
  if (p.seconds_left) out.push_back(duration_text(*p.seconds_left) + " to go");
  if (p.loss) out.push_back(formatted("loss %.4f", *p.loss));
  if (!p.validation.empty()) out.push_back(p.validation);
  out.push_back(formatted("%.0f samples/s", p.samples_per_s));
  if (p.loss && p.steps > 0) out.push_back(formatted("epoch %lld", static_cast<long long>(p.epoch)));
  if (p.loss && (p.table_rate != 1 || p.dense_rate != 1))
    out.push_back(formatted("rates x %.3g (tables) x %.3g (dense)", p.table_rate, p.dense_rate));
  return out;
}

int terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

std::string progress_text(const ProgressState& state) {
  std::string text;
  for (const std::string& piece : pieces(state)) text += (text.empty() ? "" : "  ") + piece;
  return text;
}

std::string progress_line(const ProgressState& state, int columns) {
  const auto most = static_cast<size_t>(std::max(columns - 1, 0));  // some terminals wrap after the last column
  std::string text;
  for (const std::string& piece : pieces(state)) {
    if (text.size() + (text.empty() ? 0 : 2) + piece.size() > most) break;
    text += (text.empty() ? "" : "  ") + piece;
  }
  const int width = std::min(static_cast<int>(most - text.size()) - 3, kWidestBar);  // "[" and "] "
  if (width < kNarrowestBar) return text;
  const auto full = static_cast<size_t>(state.steps ? width * state.step / state.steps : width);
  return "[" + std::string(full, '#') + std::string(static_cast<size_t>(width) - full, '.') + "] " + text;
}

bool Progress::due(int64_t step) const {
  if (step == options_.steps) return true;
  if (options_.terminal && options_.steps > 0) return step % std::max<int64_t>(1, options_.steps / kBarUpdates) == 0;
  return options_.log_every > 0 && step % options_.log_every == 0;
}

ProgressState Progress::state(int64_t step, int64_t samples) const {
  const double seconds = watch_.seconds();
  ProgressState now{.step = step, .steps = options_.steps};
  if (seconds > 0) now.samples_per_s = static_cast<double>(samples) / seconds;
  const int64_t done = step - options_.first;
  const bool known = done >= kStepsToJudge && seconds >= kSecondsToJudge;  // the first steps are slower than others
  if (options_.steps > 0 && done > 0 && (known || step == options_.steps)) {
    now.seconds_left = seconds * static_cast<double>(options_.steps - step) / static_cast<double>(done);
  }
  return now;
}

void Progress::draw(const ProgressState& state) {
  // Returns to the line's start, and erases the rest of a longer previous line.
  std::fprintf(stderr, "\r%s\x1b[K", progress_line(state, terminal_columns()).c_str());
  drawn_ = true;
}

void Progress::report(const TrainProgress& done) {
  if (!options_.shown) return;
  ProgressState now = state(done.step, done.samples);
  now.epoch = done.epoch;
  now.loss = done.loss;
  now.validation = validation_;
  now.table_rate = done.table_rate;
  now.dense_rate = done.dense_rate;
  if (options_.terminal)
    draw(now);
  else
    std::fprintf(stderr, "%s\n", progress_text(now).c_str());
}

void Progress::report(int64_t step, int64_t samples) {
  if (options_.shown && options_.terminal) draw(state(step, samples));
}

void Progress::note(const std::string& text) {
  if (!options_.shown) return;
  finish();
  std::fprintf(stderr, "%s", fitted(text, STDERR_FILENO).c_str());
}

void Progress::finish() {
  if (drawn_) std::fputc('\n', stderr);
  drawn_ = false;
}

}  // namespace tessera::cli
