#include "serve/handler.h"

#include <algorithm>
#include <charconv>
#include <new>
#include <utility>

#include "config/json.h"
#include "data/columns.h"
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
                           kScorePath = "/v1/score";
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

}  // namespace

Handler::Handler(const HandlerOptions& options, ModelRepository& models, Batcher& batcher, Metrics& metrics)
    : options_(options), models_(models), batcher_(batcher), metrics_(metrics) {}

Clock::time_point Handler::handle(HttpRequest&& request, const Respond& respond) {
  const std::string path(path_of(request.target));
  const bool infers = is_asked(path, kModels, "infer"), scores = is_asked(path, kScoreModels, "score"),
             changes = is_change(path), posts = infers || scores || changes || path == kIndex || path == kScorePath;
  if (posts && request.method != "POST") {
    respond(HttpResponse::not_allowed(request.method, "POST"));
    return kNever;
  }
  if (path == kScorePath) return score(std::move(request), respond);
  if (infers || scores) {
    const ModelPath parts = model_path(std::string_view(path).substr((infers ? kModels : kScoreModels).size()));
    return infer(models_.find(parts.name, parts.version), std::move(request), scores, respond);
  }
  if (changes) {
    change(path, request, respond);
    return kNever;
  }
  HttpResponse response = posts ? index(request.body) : get(path);
  const bool reads = request.method == "GET" || request.method == "HEAD";  // the connection omits the body for HEAD
  if (!posts && response.status != 404 && !reads) response = HttpResponse::not_allowed(request.method, "GET, HEAD");
  respond(std::move(response));
  return kNever;
}

HttpResponse Handler::overdue() const {
  HttpResponse out = HttpResponse::unavailable(Failure::kDeadline,
                                               "the deadline passed before the model had an answer: ask again later");
  out.inference = true;
  return out;
}

HttpResponse Handler::get(std::string_view path) {
  if (path == "/v2") return HttpResponse::json(render_server());
  if (path == "/v2/health/live") return HttpResponse::json("{\"live\":true}");
  if (path == "/v2/health/ready") return ready();
  if (path == "/metrics") return metrics_text();
  if (starts_with(path, kModels)) return model_get(path.substr(kModels.size()));
  return HttpResponse::not_found(
      str_cat("there is nothing at ", shown(path), ": the service begins at /v2, and POST /v1/score takes rows"));
}

HttpResponse Handler::ready() const {
  if (ending_) return HttpResponse::unavailable(Failure::kUnavailable, "the server is ending");
  return models_.ready();
}

HttpResponse Handler::model_get(std::string_view rest) {
  const ModelPath path = model_path(rest);
  if (!path.good || (!path.action.empty() && path.action != "ready")) {
    return HttpResponse::not_found(str_cat("there is nothing at ", kModels, shown(rest)));
  }
  Found found = models_.find(path.name, path.version);
  if (!found.model) return std::move(found.refusal);
  HttpResponse out;
  if (path.action != "ready")
    out = HttpResponse::json(render_model(found.model->model(), path.name, models_.versions(path.name),
                                          found.served->columns_of(found.model).get()));
  else if (ending_)
    out = HttpResponse::unavailable(Failure::kUnavailable, "the server is ending");
  else
    out = HttpResponse::json("{\"ready\":true}");
  out.model = found.served->name();
  return out;
}

HttpResponse Handler::metrics_text() const {
  Gauges gauges;
  gauges.queue = batcher_.waiting();
  gauges.connections = connections_ ? connections_() : 0;
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
  return HttpResponse::json(models_.index(ready));
}

// {"model": NAME, "rows": [...]}; NAME may be left out if one model is served.
Clock::time_point Handler::score(HttpRequest&& request, const Respond& respond) {
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
  if (why.empty()) return infer(models_.find(target.model, target.version), std::move(request), true, respond);
  HttpResponse refusal = HttpResponse::failed(400, Failure::kBadRequest, why);
  refusal.inference = true;
  respond(std::move(refusal));
  return kNever;
}

Clock::time_point Handler::infer(Found&& found, HttpRequest&& http, bool rows, const Respond& respond) {
  const auto answer = [&](HttpResponse response) {
    response.inference = true;
    if (found.served != nullptr) response.model = found.served->name();
    respond(std::move(response));
    return kNever;
  };
  if (!found.model) return answer(std::move(found.refusal));
  // The request waited too long for a thread to parse it.
  if (http.arrived != Clock::time_point() && Clock::now() > http.arrived + options_.deadline) return answer(overdue());
  Predictor& model = *found.model;
  if (!http.content_encoding.empty() && http.content_encoding != "identity") {
    return answer(HttpResponse::failed(415, Failure::kBadHttp,
                                       str_cat("Content-Encoding ", shown(http.content_encoding),
                                               " is not supported: send the request uncompressed")));
  }
  const auto refuse = [&](const std::string& why) {
    return answer(HttpResponse::failed(400, Failure::kBadRequest, why));
  };
  std::optional<size_t> json_bytes;
  if (const std::string& text = http.json_bytes; !text.empty()) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, json_bytes.emplace());
    if (stop != end || error != std::errc()) {
      return refuse(str_cat("Inference-Header-Content-Length takes a number of bytes, not \"", shown(text), "\""));
    }
  }
  InferRequest request;
  try {
    const std::shared_ptr<const data::Columns> columns = found.served->columns_of(found.model);
    const InferLimits limits{options_.max_samples, columns.get(), found.served->name()};
    request = rows ? parse_scores(model.model(), http.body, limits)
                   : parse_infer(model.model(), http.body, json_bytes, limits);
    found.served->unknown_ids().add(found.served->name(), model.model(), columns.get(), request);
  } catch (const Error& e) {
    return refuse(e.what());
  }
  if (const std::string why = model.why_not(request.input()); !why.empty()) {
    found.served->bad_ids().refused(found.model, request.input());
    return refuse(why);
  }
  return submit(found, std::move(request), respond);
}

Clock::time_point Handler::submit(const Found& found, InferRequest&& request, const Respond& respond) {
  Clock::duration patience = options_.deadline;
  if (request.timeout) patience = std::min<Clock::duration>(patience, *request.timeout);
  const Clock::time_point deadline = Clock::now() + patience;
  Job job{std::move(request), found.model, deadline,
          [this, served = found.served, model = found.model, respond](const InferRequest& of, const Answer& answer) {
            HttpResponse response;
            try {
              response = answered(*served, model, of, answer);
            } catch (const std::bad_alloc&) {
              response = out_of_memory();
              response.inference = true;
            }
            response.model = served->name();
            respond(std::move(response));
          }};
  if (batcher_.submit(std::move(job))) return deadline;
  HttpResponse full = HttpResponse::unavailable(
      Failure::kQueueFull, str_cat("the queue is full (", batcher_.options().max_queue, " requests): ask again later"));
  full.inference = true;
  full.model = found.served->name();
  respond(std::move(full));
  return kNever;
}

HttpResponse Handler::answered(Served& served, const std::shared_ptr<Predictor>& model, const InferRequest& request,
                               const Answer& answer) {
  HttpResponse out;
  switch (answer.code) {
    case Code::kOk: {
      if (request.rows) {
        out.body =
            render_scores(model->model(), served.name(), served.columns_of(model).get(), request, answer.outputs);
        break;
      }
      InferResponse infer = render_infer(model->model(), served.name(), request, answer.outputs);
      out.body = std::move(infer.body);
      out.json_bytes = infer.json_bytes;
      if (infer.json_bytes) out.content_type = "application/octet-stream";
      break;
    }
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
      out = HttpResponse::failed(400, Failure::kBadRequest, answer.error);
      break;
    case Code::kDeadlineExceeded:
      out = HttpResponse::unavailable(Failure::kDeadline, answer.error);
      break;
    case Code::kResourceExhausted:
      out = out_of_memory();
      break;
    case Code::kUnavailable:
      served.holder().lost(model);
      out = HttpResponse::unavailable(Failure::kUnavailable, answer.error);
      break;
    default:
      out = HttpResponse::failed(500, Failure::kInternal, answer.error);
  }
  out.inference = true;
  return out;
}

void Handler::change(std::string_view path, const HttpRequest& request, const Respond& respond) {
  if (!request.local) {
    return respond(HttpResponse::failed(
        403, Failure::kForbidden,
        "models are loaded and unloaded only by a program on the server's own host, over loopback"));
  }
  if (path == kReload) return models_.load("", respond);
  const ModelPath parts = model_path(path.substr(kRepository.size()));
  if (parts.action == "load") return models_.load(parts.name, respond);
  respond(models_.unload(parts.name));
}

}  // namespace tessera::serve
