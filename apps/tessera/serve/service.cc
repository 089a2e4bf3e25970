#include "serve/service.h"

#include <algorithm>
#include <new>
#include <utility>

#include "serve/histories.h"
#include "serve/row_error.h"
#include "tessera/data.h"
#include "tessera/error.h"

namespace tessera::serve {
namespace {

constexpr auto kAtOnce = Clock::time_point::max();  // the outcome is there, so nothing is due

Outcome ending() { return Outcome::unavailable(Failure::kUnavailable, "the server is ending"); }

Outcome of_inference(Outcome outcome, std::string_view model) {
  outcome.inference = true;
  outcome.model = model;
  return outcome;
}

}  // namespace

ModelService::ModelService(const ServiceOptions& options, ModelRepository& models, Batcher& batcher)
    : options_(options), models_(models), batcher_(batcher) {}

Clock::time_point ModelService::ask(const Question& question, const Respond& respond) {
  switch (question.ask) {
    case Ask::kInfer:
      return infer(question, respond);
    case Ask::kLoad:
    case Ask::kUnload:
    case Ask::kLoadAll:
      change(question, respond);
      return kAtOnce;
    default:
      respond(answer(question));
      return kAtOnce;
  }
}

Outcome ModelService::overdue() const {
  return of_inference(
      Outcome::unavailable(Failure::kDeadline, "the deadline passed before the model had an answer: ask again later"),
      "");
}

Outcome ModelService::answer(const Question& question) const {
  switch (question.ask) {
    case Ask::kServerLive:
      return Outcome::json("{\"live\":true}");
    case Ask::kServerReady:
      return ready();
    case Ask::kServerMetadata:
      return Outcome::json(render_server());
    case Ask::kIndex:
      return Outcome::json(models_.index(question.loaded));
    default:
      return about_model(question);
  }
}

Outcome ModelService::ready() const { return ending_ ? ending() : models_.ready(); }

Outcome ModelService::about_model(const Question& question) const {
  Found found = models_.find(question.model, question.version);
  if (!found.model) return std::move(found.refusal);
  Outcome out;
  if (question.ask == Ask::kModelMetadata)
    out = Outcome::json(render_model(found.model->model(), question.model, models_.versions(question.model),
                                     found.served->columns_of(found.model).get()));
  else
    out = ending_ ? ending() : Outcome::json("{\"ready\":true}");
  out.model = found.served->name();
  return out;
}

Clock::time_point ModelService::infer(const Question& question, const Respond& respond) {
  Found found = models_.find(question.model, question.version);
  if (!found.model) {
    found.refusal.inference = true;
    respond(std::move(found.refusal));
    return kAtOnce;
  }
  const auto refuse = [&](Outcome outcome) {
    respond(of_inference(std::move(outcome), found.served->name()));
    return kAtOnce;
  };
  // The request waited too long for a thread to parse it.
  if (question.arrived != Clock::time_point() && Clock::now() > question.arrived + options_.deadline)
    return refuse(overdue());
  Predictor& model = *found.model;
  InferRequest request;
  std::shared_ptr<const ColumnEncoding> columns;
  try {
    columns = found.served->columns_of(found.model);
    InferLimits limits{options_.max_samples, columns.get(), found.served->name()};
    if (options_.histories != nullptr && columns != nullptr) {
      const RowHistories histories = options_.histories->of(columns->reader());
      limits.maker = histories.maker;
      limits.kept = histories.kept;
    }
    request = question.input(model.model(), limits);
    found.served->unknown_ids().add(found.served->name(), model.model(), columns.get(), request);
  } catch (const Error& e) {
    return refuse(Outcome::failed(400, Failure::kBadRequest, e.what()));
  } catch (const Refused& refused) {
    return refuse(refused.outcome);
  }
  if (const std::string why = model.why_not(request.input()); !why.empty()) {
    found.served->bad_ids().refused(found.model, request.input());
    return refuse(Outcome::failed(400, Failure::kBadRequest, request.rows ? row_error(why, columns.get()) : why));
  }
  return submit(found, std::move(request), respond);
}

Clock::time_point ModelService::submit(const Found& found, InferRequest&& request, const Respond& respond) {
  Clock::duration patience = options_.deadline;
  if (request.timeout) patience = std::min<Clock::duration>(patience, *request.timeout);
  const Clock::time_point deadline = Clock::now() + patience;
  Job job{std::move(request), found.model, deadline,
          [served = found.served, model = found.model, respond](const InferRequest& of, const Answer& answer) {
            answered(*served, model, of, answer, respond);
          }};
  if (batcher_.submit(std::move(job))) return deadline;
  respond(of_inference(
      Outcome::unavailable(Failure::kQueueFull,
                           str_cat("the queue is full (", batcher_.options().max_queue, " requests): ask again later")),
      found.served->name()));
  return kAtOnce;
}

// The outcome of a prediction, without its values.
Outcome ModelService::outcome_of(Served& served, const std::shared_ptr<Predictor>& model, const Answer& answer) {
  switch (answer.code) {
    case Code::kOk:
      return {};
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
      return Outcome::failed(400, Failure::kBadRequest, answer.error);
    case Code::kDeadlineExceeded:
      return Outcome::unavailable(Failure::kDeadline, answer.error);
    case Code::kResourceExhausted:
      return out_of_memory();
    case Code::kUnavailable:
      served.holder().lost(model);
      return Outcome::unavailable(Failure::kUnavailable, answer.error);
    default:
      return Outcome::failed(500, Failure::kInternal, answer.error);
  }
}

void ModelService::answered(Served& served, const std::shared_ptr<Predictor>& model, const InferRequest& request,
                            const Answer& answer, const Respond& respond) {
  Outcome out;
  std::shared_ptr<const ColumnEncoding> columns;
  try {
    out = outcome_of(served, model, answer);
    if (request.rows) columns = served.columns_of(model);
  } catch (const std::bad_alloc&) {
    out = out_of_memory();
  }
  const Inferred inferred{model->model(), served.name(), columns.get(), request, answer.outputs};
  if (out.status == 200) out.inferred = &inferred;
  respond(of_inference(std::move(out), served.name()));
}

void ModelService::change(const Question& question, const Respond& respond) {
  if (!question.local) {
    return respond(
        Outcome::failed(403, Failure::kForbidden,
                        "models are loaded and unloaded only by a program on the server's own host, over loopback"));
  }
  if (question.ask == Ask::kLoadAll) return models_.load("", respond);
  if (question.ask == Ask::kUnload) return respond(models_.unload(question.model));
  if (question.model.empty()) return respond(models_.find("", "").refusal);
  models_.load(question.model, respond);
}

}  // namespace tessera::serve
