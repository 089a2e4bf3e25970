// Answers what clients ask, in no protocol's terms: takes an inference request through checks, queue and model, and
// knows the models. Two translators use it: HTTP's (handler.h), and that of endpoint components (endpoint.h).
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "serve/batcher.h"
#include "serve/outcome.h"
#include "serve/protocol.h"
#include "serve/repository.h"

namespace tessera::serve {

class Histories;  // histories.h

// The calls of the Open Inference Protocol and of its model repository, and one of this server.
enum class Ask {
  kInfer,
  kServerLive,
  kServerReady,
  kModelReady,
  kServerMetadata,
  kModelMetadata,
  kIndex,
  kLoad,
  kUnload,
  kLoadAll,
};

struct Question {
  Ask ask = Ask::kInfer;
  std::string model, version;           // an empty version: the server chooses
  std::string_view authorization = {};  // "Bearer TOKEN", for TokenService
  bool local = false;                   // from this host, and not forwarded by a proxy or a web page
  bool loaded = false;                  // kIndex: only models that are loaded
  Clock::time_point arrived{};          // time of its last byte; unset: now
  // kInfer: converts the client's tensors for this model. It is called during ask(). It throws Error with a sentence
  // for the client (400), or Refused.
  std::function<InferRequest(const ModelDescription&, const InferLimits&)> input = {};
};

// Thrown by Question::input for a refusal with another status.
struct Refused {
  Outcome outcome;
};

// All members are [any-thread].
class Service {
 public:
  // Called once, within ask() or later by a thread of the service.
  using Respond = std::function<void(Outcome)>;

  virtual ~Service() = default;
  // Returns the time when the outcome is due. The caller then answers with overdue() and drops a later outcome.
  virtual Clock::time_point ask(const Question& question, const Respond& respond) = 0;
  virtual Outcome overdue() const = 0;
};

struct ServiceOptions {
  std::chrono::milliseconds deadline{1000};  // per request, from its last byte; a client may ask for less
  int64_t max_samples = 1024;                // per request
  Histories* histories = nullptr;            // null: rows bring lists only
};

// Questions are answered within ask(), or later by a thread of the batcher or of the holder.
class ModelService : public Service {
 public:
  ModelService(const ServiceOptions& options, ModelRepository& models, Batcher& batcher);

  Clock::time_point ask(const Question& question, const Respond& respond) override;
  Outcome overdue() const override;
  void end() { ending_ = true; }  // reports "not ready" from now on

 private:
  Outcome answer(const Question& question) const;
  Outcome ready() const;
  Outcome about_model(const Question& question) const;
  Clock::time_point infer(const Question& question, const Respond& respond);
  Clock::time_point submit(const Found& found, InferRequest&& request, const Respond& respond);
  static Outcome outcome_of(Served& served, const std::shared_ptr<Predictor>& model, const Answer& answer);
  static void answered(Served& served, const std::shared_ptr<Predictor>& model, const InferRequest& request,
                       const Answer& answer, const Respond& respond);
  void change(const Question& question, const Respond& respond);

  const ServiceOptions options_;
  ModelRepository& models_;
  Batcher& batcher_;
  std::atomic<bool> ending_{false};
};

}  // namespace tessera::serve
