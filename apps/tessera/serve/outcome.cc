#include "serve/outcome.h"

namespace tessera::serve {

Outcome Outcome::json(std::string text) {
  Outcome out;
  out.text = std::move(text);
  return out;
}

Outcome Outcome::failed(int status, Failure failure, const std::string& sentence) {
  Outcome out;
  out.status = status;
  out.failure = failure;
  out.sentence = sentence;
  return out;
}

Outcome Outcome::unavailable(Failure failure, const std::string& sentence) {
  Outcome out = failed(503, failure, sentence);
  out.retry = true;
  return out;
}

Outcome Outcome::not_found(const std::string& sentence) { return failed(404, Failure::kNotFound, sentence); }

Outcome out_of_memory() {
  return Outcome::unavailable(Failure::kBusy, "there is not enough memory for this request: ask again later");
}

void count(Clock::time_point start, const Outcome& outcome, Metrics& metrics, Log& log) {
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  metrics.response(outcome.status);
  if (outcome.inference && outcome.status == 200) metrics.answered(seconds);
  if (outcome.failure) {
    metrics.failure(*outcome.failure);
    const Level level = outcome.status >= 500 ? Level::kWarning : Level::kInfo;
    const Field status{"status", int64_t{outcome.status}}, error{"error", outcome.sentence};
    if (outcome.model.empty())
      log.write_some(level, to_string(*outcome.failure), {status, error});
    else
      log.write_some(level, to_string(*outcome.failure), {{"model", outcome.model}, status, error});
  } else if (log.on(Level::kDebug)) {
    const Field status{"status", int64_t{outcome.status}}, time{"seconds", seconds};
    if (outcome.model.empty())
      log.write(Level::kDebug, "answered", {status, time});
    else
      log.write(Level::kDebug, "answered", {{"model", outcome.model}, status, time});
  }
}

}  // namespace tessera::serve
