#include "serve/handler.h"

#include <algorithm>
#include <charconv>
#include <new>
#include <optional>
#include <utility>

#include "config/json.h"
#include "serve/histories.h"
#include "serve/infer_json.h"
#include "serve/json_text.h"
#include "serve/score_rows.h"
#include "tessera/error.h"

namespace tessera::serve {
namespace {

constexpr auto kNever = Clock::time_point::max();

// Decodes %41 to A. Invalid escapes stay as they are.
std::string decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Parses "NAME[/versions/V][/ACTION]".
struct ModelPath {
  std::string name, version;
  std::string_view action;
  bool good = false;
};
ModelPath model_path(std::string_view rest) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = rest.find('/');
    parts.push_back(rest.substr(0, end));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  ModelPath out;
  out.name = decoded(parts[0]);
  size_t next = 1;
  if (parts.size() >= 3 && parts[1] == "versions") {
    out.version = decoded(parts[2]);
    next = 3;
  }
  if (parts.size() == next + 1) out.action = parts[next++];
  out.good = parts.size() == next && !out.name.empty();
  return out;
}

constexpr std::string_view kModels = "/v2/models/", kRepository = "/v2/repository/models/",
                           kIndex = "/v2/repository/index", kReload = "/admin/reload", kScoreModels = "/v1/models/",
                           kScorePath = "/v1/score", kEventsPath = "/v1/events";
bool starts_with(std::string_view text, std::string_view begin) { return text.substr(0, begin.size()) == begin; }

// True for "NAME[/versions/V]/ACTION" after `begin`.
bool is_asked(std::string_view path, std::string_view begin, std::string_view action) {
  if (!starts_with(path, begin)) return false;
  const ModelPath parts = model_path(path.substr(begin.size()));
  return parts.good && parts.action == action;
}

// True for "NAME/load" and "NAME/unload" after kRepository.
bool is_change(std::string_view path) {
  if (path == kReload) return true;
  if (!starts_with(path, kRepository)) return false;
  const ModelPath parts = model_path(path.substr(kRepository.size()));
  return parts.good && parts.version.empty() && (parts.action == "load" || parts.action == "unload");
}

// The number of bytes of JSON that the header says, if it is there.
std::optional<size_t> json_bytes_of(const HttpRequest& request) {
  const std::string& text = request.json_bytes;
  if (text.empty()) return std::nullopt;
  size_t bytes = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, bytes);
  if (stop == end && error == std::errc()) return bytes;
  fail(Code::kInvalidArgument, "Inference-Header-Content-Length takes a number of bytes, not \"", shown(text), "\"");
}

void check_encoding(const HttpRequest& request) {
  if (!request.content_encoding.empty() && request.content_encoding != "identity") {
    throw Refused{Outcome::failed(415, Failure::kBadHttp,
                                  str_cat("Content-Encoding ", shown(request.content_encoding),
                                          " is not supported: send the request uncompressed"))};
  }
}

InferRequest parse(const HttpRequest& request, bool rows, const ModelDescription& model, const InferLimits& limits) {
  check_encoding(request);
  const std::optional<size_t> json_bytes = json_bytes_of(request);
  return rows ? parse_scores(model, request.body, limits) : parse_infer(model, request.body, json_bytes, limits);
}

// Converts an outcome, and writes its predictions in the form of their request.
HttpResponse rendered(Outcome&& outcome) {
  const Inferred* const inferred = std::exchange(outcome.inferred, nullptr);
  HttpResponse out(std::move(outcome));
  if (inferred == nullptr) return out;
  const auto& [model, name, columns, request, values] = *inferred;
  try {
    if (request.rows) {
      out.body = render_scores(model, name, columns, request, values);
      return out;
    }
    InferResponse infer = render_infer(model, name, request, values);
    out.body = std::move(infer.body);
    out.json_bytes = infer.json_bytes;
    if (infer.json_bytes) out.content_type = "application/octet-stream";
    return out;
  } catch (const std::bad_alloc&) {
    HttpResponse none = out_of_memory();
    none.inference = true;
    none.model = out.model;
    return none;
  }
}

}  // namespace

Handler::Handler(ModelService& service, const ModelRepository& models, const Batcher& batcher, Metrics& metrics,
                 KeptHistories* kept)
    : service_(service), models_(models), batcher_(batcher), metrics_(metrics), kept_(kept) {}

Clock::time_point Handler::handle(HttpRequest&& request, const Respond& respond) {
  const std::string path(path_of(request.target));
  const bool infers = is_asked(path, kModels, "infer"), scores = is_asked(path, kScoreModels, "score"),
             changes = is_change(path),
             posts = infers || scores || changes || path == kIndex || path == kScorePath || path == kEventsPath;
  if (posts && request.method != "POST") {
    respond(HttpResponse::not_allowed(request.method, "POST"));
    return kNever;
  }
  if (path == kScorePath) return score(request, respond);
  if (infers || scores) {
    ModelPath parts = model_path(std::string_view(path).substr((infers ? kModels : kScoreModels).size()));
    return infer({.model = std::move(parts.name), .version = std::move(parts.version)}, request, scores, respond);
  }
  if (changes) return change(path, request, respond);
  HttpResponse response = path == kEventsPath ? add_events(request) : posts ? index(request.body) : get(path);
  const bool reads = request.method == "GET" || request.method == "HEAD";  // the connection omits the body for HEAD
  if (!posts && response.status != 404 && !reads) response = HttpResponse::not_allowed(request.method, "GET, HEAD");
  respond(std::move(response));
  return kNever;
}

// The response to a question that the service answers at once.
HttpResponse Handler::now(const Question& question) const {
  HttpResponse out;
  service_.ask(question, [&](Outcome outcome) { out = std::move(outcome); });
  return out;
}

HttpResponse Handler::get(std::string_view path) const {
  if (path == "/v2") return now({.ask = Ask::kServerMetadata});
  if (path == "/v2/health/live") return now({.ask = Ask::kServerLive});
  if (path == "/v2/health/ready") return now({.ask = Ask::kServerReady});
  if (path == "/metrics") return metrics_text();
  if (starts_with(path, kModels)) return model_get(path.substr(kModels.size()));
  return HttpResponse::not_found(
      str_cat("there is nothing at ", shown(path), ": the service begins at /v2, and POST /v1/score takes rows"));
}

HttpResponse Handler::model_get(std::string_view rest) const {
  ModelPath path = model_path(rest);
  if (!path.good || (!path.action.empty() && path.action != "ready")) {
    return HttpResponse::not_found(str_cat("there is nothing at ", kModels, shown(rest)));
  }
  return now({.ask = path.action == "ready" ? Ask::kModelReady : Ask::kModelMetadata,
              .model = std::move(path.name),
              .version = std::move(path.version)});
}

HttpResponse Handler::metrics_text() const {
  Gauges gauges{.queue = batcher_.waiting(), .connections = connections_ ? connections_() : 0};
  if (kept_ != nullptr) {
    const KeptHistories::Counts c = kept_->counts();
    gauges.histories = {c.users, c.bytes, c.forgotten, c.events, c.refused, c.unknown_users};
  }
  for (const auto& served : models_.all()) {
    const std::shared_ptr<Predictor> model = served->holder().current();
    if (!model) continue;
    gauges.models.push_back(
        {served->name(), model->model().version, served->bad_ids().of(model), served->unknown_ids().counts()});
    if (const ModelFollower* followed = served->followed()) {
      const FollowStatus s = followed->status();
      const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
      gauges.models.back().followed = {s.number, std::max(0.0, now - s.published_at), s.updates, s.refused};
    }
  }
  return HttpResponse::prometheus(metrics_.text(gauges));
}

// {"events": [...]} adds events to the histories that are kept.
HttpResponse Handler::add_events(const HttpRequest& request) const {
  if (kept_ == nullptr)
    return HttpResponse::not_found("the server keeps no histories: start it with --histories FILE, or with -");
  HttpResponse out;
  try {
    check_encoding(request);
    out.body = str_cat("{\"added\":", kept_->add_json(request.body), "}");
    return out;
  } catch (const Refused& refused) {
    return refused.outcome;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& e) {
    return HttpResponse::failed(400, Failure::kBadRequest, e.what());
  }
}

// {"ready": true} lists only models that are loaded.
HttpResponse Handler::index(const std::string& body) const {
  bool ready = false;
  try {
    if (!body.empty()) {
      const config::JsonSource source{"the request"};
      const auto asked = config::parse_json(body, source);
      config::JsonObject(asked, source).read("ready", ready);
    }
  } catch (const std::exception& e) {
    return HttpResponse::failed(400, Failure::kBadRequest, e.what());
  }
  return now({.ask = Ask::kIndex, .loaded = ready});
}

// {"model": NAME, "rows": [...]}; NAME may be left out if one model is served.
Clock::time_point Handler::score(const HttpRequest& request, const Respond& respond) {
  ScoreTarget target;
  std::string why;
  if (models_.all().size() == 1) {
    target.model = models_.all().front()->name();
  } else {
    try {
      target = score_target(request.body);
      if (target.model.empty())
        why = str_cat(
            "several models are served here: name one, {\"model\": ", json_string(models_.all().front()->name()),
            ", \"rows\": [...]}, or POST ", kScoreModels, "NAME/score");
    } catch (const Error& e) {
      why = e.what();
    }
  }
  if (why.empty())
    return infer({.model = std::move(target.model), .version = std::move(target.version)}, request, true, respond);
  HttpResponse refusal = HttpResponse::failed(400, Failure::kBadRequest, why);
  refusal.inference = true;
  respond(std::move(refusal));
  return kNever;
}

Clock::time_point Handler::infer(Question&& question, const HttpRequest& request, bool rows, const Respond& respond) {
  question.arrived = request.arrived;
  question.input = [&request, rows](const ModelDescription& model, const InferLimits& limits) {
    return parse(request, rows, model, limits);
  };
  return service_.ask(question, [respond](Outcome outcome) { respond(rendered(std::move(outcome))); });
}

// Handles /admin/reload and /v2/repository/models/NAME/load and /unload.
Clock::time_point Handler::change(std::string_view path, const HttpRequest& request, const Respond& respond) {
  Question question{.ask = Ask::kLoadAll, .local = request.local};
  if (path != kReload) {
    ModelPath parts = model_path(path.substr(kRepository.size()));
    question.ask = parts.action == "load" ? Ask::kLoad : Ask::kUnload;
    question.model = std::move(parts.name);
  }
  return service_.ask(question, respond);
}

}  // namespace tessera::serve
