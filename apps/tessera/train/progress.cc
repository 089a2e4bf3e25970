#include "train/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tessera::cli {
namespace {

constexpr int64_t kBarUpdates = 200;  // redraws per run at most

}  // namespace

bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

bool Progress::due(int64_t step) const {
  if (step == options_.steps) return true;
  if (options_.terminal) return step % std::max<int64_t>(1, options_.steps / kBarUpdates) == 0;
  return options_.log_every > 0 && step % options_.log_every == 0;
}

double Progress::rate_of(int64_t samples) const {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  return seconds > 0 ? static_cast<double>(samples) / seconds : 0;
}

void Progress::draw(int64_t step, const std::string& text) {
  constexpr int kWidth = 30;
  const int full = options_.steps ? static_cast<int>(kWidth * step / options_.steps) : kWidth;
  const std::string bar = std::string(full, '#') + std::string(kWidth - full, '.');
  std::fprintf(stderr, "\r[%s] %lld/%lld  %s ", bar.c_str(), static_cast<long long>(step),
               static_cast<long long>(options_.steps), text.c_str());
  drawn_ = true;
}

void Progress::report(int64_t step, int64_t epoch, int64_t samples, double loss) {
  if (!options_.shown) return;
  char text[128];
  std::snprintf(text, sizeof(text), "epoch %lld  loss %.4f  %.0f samples/s", static_cast<long long>(epoch), loss,
                rate_of(samples));
  if (options_.terminal)
    draw(step, text);
  else
    std::fprintf(stderr, "step %lld/%lld  %s\n", static_cast<long long>(step), static_cast<long long>(options_.steps),
                 text);
}

void Progress::report(int64_t step, int64_t samples) {
  if (!options_.shown || !options_.terminal) return;
  char text[64];
  std::snprintf(text, sizeof(text), "%.0f samples/s", rate_of(samples));
  draw(step, text);
}

void Progress::finish() {
  if (drawn_) std::fputc('\n', stderr);
  drawn_ = false;
}

}  // namespace tessera::cli
