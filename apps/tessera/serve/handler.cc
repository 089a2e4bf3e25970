#include "serve/handler.h"

#include <algorithm>
#include <charconv>
#include <new>
#include <utility>

#include "data/columns.h"
#include "serve/infer_json.h"
#include "serve/json_text.h"
#include "tessera/error.h"

namespace tessera::serve {
namespace {

constexpr auto kNever = Clock::time_point::max();

HttpResponse json_response(std::string body) {
  HttpResponse out;
  out.body = std::move(body);
  return out;
}

HttpResponse not_found(const std::string& sentence) { return HttpResponse::failed(404, Failure::kNotFound, sentence); }

HttpResponse no_model() {
  return HttpResponse::unavailable(Failure::kUnavailable,
                                   "the model, or a rank of it, is lost; it is being loaded again");
}

// %41 -> A. What is no such thing stays as it is.
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

// "NAME[/versions/V][/ACTION]"
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

constexpr std::string_view kModels = "/v2/models/";
bool starts_with(std::string_view text, std::string_view begin) { return text.substr(0, begin.size()) == begin; }

bool is_infer(std::string_view path) {
  if (!starts_with(path, kModels)) return false;
  const ModelPath parts = model_path(path.substr(kModels.size()));
  return parts.good && parts.action == "infer";
}

}  // namespace

Handler::Handler(const HandlerOptions& options, ModelHolder& models, Batcher& batcher, Metrics& metrics)
    : options_(options), models_(models), batcher_(batcher), metrics_(metrics) {}

Clock::time_point Handler::handle(HttpRequest&& request, const Respond& respond) {
  const std::string path(path_of(request.target));
  const bool infers = is_infer(path), reloads = path == "/admin/reload";
  if (infers && request.method == "POST") return infer(path, std::move(request), respond);
  if (reloads && request.method == "POST") return reload(request, respond);
  HttpResponse response = infers || reloads ? HttpResponse::not_allowed(request.method, "POST") : get(path);
  const bool reads = request.method == "GET" || request.method == "HEAD";  // the connection keeps HEAD's body back
  if (!infers && !reloads && response.status != 404 && !reads)
    response = HttpResponse::not_allowed(request.method, "GET, HEAD");
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
  if (path == "/v2") return json_response(render_server());
  if (path == "/v2/health/live") return json_response("{\"live\":true}");
  if (path == "/v2/health/ready") return ready();
  if (path == "/metrics") return metrics_text();
  if (starts_with(path, kModels)) return model_get(path.substr(kModels.size()));
  return not_found(cat("there is nothing at ", shown(path), ": the service begins at /v2"));
}

HttpResponse Handler::ready() const {
  if (ending_) return HttpResponse::unavailable(Failure::kUnavailable, "the server is ending");
  if (!models_.current()) return no_model();
  return json_response("{\"ready\":true}");
}

HttpResponse Handler::model_get(std::string_view rest) {
  const std::shared_ptr<Predictor> model = models_.current();
  if (!model) return no_model();
  const ModelPath path = model_path(rest);
  if (!path.good || (!path.action.empty() && path.action != "ready")) {
    return not_found(cat("there is nothing at ", kModels, shown(rest)));
  }
  if (auto response = unknown(*model, path.name, path.version)) return *response;
  if (path.action == "ready") return ready();
  return json_response(render_model(model->model(), name_of(*model)));
}

HttpResponse Handler::metrics_text() const {
  Gauges gauges;
  gauges.queue = batcher_.waiting();
  gauges.connections = connections_ ? connections_() : 0;
  if (const std::shared_ptr<Predictor> model = models_.current()) {
    gauges.model = name_of(*model);
    gauges.version = model->model().version;
    gauges.bad_ids = bad_ids_.of(model);
  }
  return HttpResponse::prometheus(metrics_.text(gauges));
}

const std::string& Handler::name_of(const Predictor& model) const {
  return options_.name.empty() ? model.model().name : options_.name;
}

std::optional<HttpResponse> Handler::unknown(const Predictor& model, std::string_view name,
                                             std::string_view version) const {
  if (name != name_of(model)) {
    return not_found(cat("model \"", shown(name), "\" is not served here; \"", name_of(model), "\" is"));
  }
  if (!version.empty() && version != model.model().version) {
    return not_found(
        cat("version ", shown(version), " of model ", name, " is not served; ", model.model().version, " is"));
  }
  return std::nullopt;
}

Clock::time_point Handler::infer(std::string_view path, HttpRequest&& http, const Respond& respond) {
  const auto answer = [&](HttpResponse response) {
    response.inference = true;
    respond(std::move(response));
    return kNever;
  };
  const std::shared_ptr<Predictor> model = models_.current();
  if (!model) return answer(no_model());
  const ModelPath parts = model_path(path.substr(kModels.size()));
  if (auto response = unknown(*model, parts.name, parts.version)) return answer(std::move(*response));
  if (!http.content_encoding.empty() && http.content_encoding != "identity") {
    return answer(HttpResponse::failed(
        415, Failure::kBadHttp,
        cat("Content-Encoding ", shown(http.content_encoding), " is not understood: send the request uncompressed")));
  }
  const auto refuse = [&](const std::string& why) {
    return answer(HttpResponse::failed(400, Failure::kBadRequest, why));
  };
  std::optional<size_t> json_bytes;
  if (const std::string& text = http.json_bytes; !text.empty()) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, json_bytes.emplace());
    if (stop != end || error != std::errc()) {
      return refuse(cat("Inference-Header-Content-Length takes a number of bytes, not \"", shown(text), "\""));
    }
  }
  InferRequest request;
  try {
    const std::shared_ptr<const data::Columns> columns = columns_of(model);
    request = parse_infer(model->model(), http.body, json_bytes, {options_.max_samples, columns.get()});
  } catch (const Error& e) {
    return refuse(e.what());
  }
  if (const std::string why = model->why_not(request.input()); !why.empty()) {
    bad_ids_.refused(model, request.input());
    return refuse(why);
  }
  return submit(model, std::move(request), respond);
}

std::shared_ptr<const data::Columns> Handler::columns_of(const std::shared_ptr<Predictor>& model) {
  const std::string& encoding = model->model().encoding;
  if (encoding.empty()) return nullptr;
  const std::lock_guard lock(columns_mutex_);
  if (columns_model_.lock() != model) {
    columns_ = std::make_shared<const data::Columns>(encoding, "the model's encoding of columns");
    columns_model_ = model;
  }
  return columns_;
}

Clock::time_point Handler::submit(const std::shared_ptr<Predictor>& model, InferRequest&& request,
                                  const Respond& respond) {
  Clock::duration patience = options_.deadline;
  if (request.timeout) patience = std::min<Clock::duration>(patience, *request.timeout);
  const Clock::time_point deadline = Clock::now() + patience;
  Job job{std::move(request), model, deadline, [this, model, respond](const InferRequest& of, const Answer& answer) {
            HttpResponse response;
            try {
              response = answered(model, of, answer);
            } catch (const std::bad_alloc&) {
              response = out_of_memory();
              response.inference = true;
            }
            respond(std::move(response));
          }};
  if (batcher_.submit(std::move(job))) return deadline;
  HttpResponse full = HttpResponse::unavailable(
      Failure::kQueueFull, cat("the queue is full (", batcher_.options().max_queue, " requests): ask again later"));
  full.inference = true;
  respond(std::move(full));
  return kNever;
}

HttpResponse Handler::answered(const std::shared_ptr<Predictor>& model, const InferRequest& request,
                               const Answer& answer) {
  HttpResponse out;
  switch (answer.code) {
    case Code::kOk: {
      InferResponse infer =
          render_infer(model->model(), name_of(*model), request.id, request.binary_output, answer.scores);
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
      models_.lost(model);
      out = HttpResponse::unavailable(Failure::kUnavailable, answer.error);
      break;
    default:
      out = HttpResponse::failed(500, Failure::kInternal, answer.error);
  }
  out.inference = true;
  return out;
}

Clock::time_point Handler::reload(const HttpRequest& request, const Respond& respond) {
  if (!request.local) {
    respond(HttpResponse::failed(403, Failure::kForbidden,
                                 "a model is reloaded only by a program on the server's own host, over loopback"));
    return kNever;
  }
  models_.reload([respond](const Reloaded& result) {
    if (!result.done) return respond(HttpResponse::failed(500, Failure::kInternal, result.error));
    respond(json_response("{\"version\":" + json_string(result.version) +
                          ",\"previous\":" + json_string(result.previous) + "}"));
  });
  return kNever;
}

}  // namespace tessera::serve
