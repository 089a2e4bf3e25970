// The answer to what a client asked, in no protocol's terms.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "serve/log.h"
#include "serve/metrics.h"
#include "serve/protocol.h"

namespace tessera::serve {

using Clock = std::chrono::steady_clock;

// Predictions that answer a request.
struct Inferred {
  const ModelDescription& model;
  std::string_view name;          // the model's name for clients
  const ColumnEncoding* columns;  // for requests of rows: of the data that the model was trained on; or null
  const InferRequest& request;
  std::span<const std::span<const float>> values;  // per output of the model, [request.batch, its width]
};

struct Outcome {
  int status = 200;                    // HTTP's number, also for clients of other protocols: metrics and log have it
  std::string text;                    // JSON, if there is more to say than the status
  const Inferred* inferred = nullptr;  // set for predictions; valid during the call that passes the outcome
  bool retry = false;                  // the same request may succeed a second later
  bool inference = false;              // its time is measured
  std::optional<Failure> failure;
  std::string sentence;         // describes the failure
  std::string_view model = {};  // the served model that this is about, for the log; a view of a name that outlives it

  static Outcome json(std::string text);
  static Outcome failed(int status, Failure failure, const std::string& sentence);
  // 503, which tells the client to ask again later
  static Outcome unavailable(Failure failure, const std::string& sentence);
  static Outcome not_found(const std::string& sentence);
};

// The outcome if there is no memory for a request at the moment.
Outcome out_of_memory();

// Counts and logs the outcome of a request whose last byte came at `start`. [any-thread]
void count(Clock::time_point start, const Outcome& outcome, Metrics& metrics, Log& log);

}  // namespace tessera::serve
