#include "serve/request_handler.h"

#include "serve/infer_json.h"
#include "serve/protocol.h"
#include "tessera/error.h"

namespace tessera::serve {

HttpResponse HttpResponse::json(std::string body) {
  HttpResponse out;
  out.body = std::move(body);
  return out;
}

HttpResponse HttpResponse::failed(int status, Failure failure, const std::string& sentence) {
  HttpResponse out;
  out.status = status;
  out.failure = failure;
  out.sentence = sentence;
  out.body = render_error(sentence);
  return out;
}

HttpResponse HttpResponse::unavailable(Failure failure, const std::string& sentence) {
  HttpResponse out = failed(503, failure, sentence);
  out.retry = true;
  return out;
}

HttpResponse HttpResponse::not_found(const std::string& sentence) { return failed(404, Failure::kNotFound, sentence); }

HttpResponse HttpResponse::not_allowed(const std::string& method, const char* allow) {
  HttpResponse out =
      failed(405, Failure::kBadHttp, str_cat("method ", shown(method), " is not allowed here: use ", allow));
  out.allow = allow;
  return out;
}

HttpResponse HttpResponse::prometheus(std::string text) {
  HttpResponse out;
  out.body = std::move(text);
  out.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return out;
}

HttpResponse out_of_memory() {
  return HttpResponse::unavailable(Failure::kBusy, "there is not enough memory for this request: ask again later");
}

void count(Clock::time_point start, const HttpResponse& response, Metrics& metrics, Log& log) {
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  metrics.response(response.status);
  if (response.inference && response.status == 200) metrics.answered(seconds);
  if (response.failure) {
    metrics.failure(*response.failure);
    const Level level = response.status >= 500 ? Level::kWarning : Level::kInfo;
    const Field status{"status", int64_t{response.status}}, error{"error", response.sentence};
    if (response.model.empty())
      log.write_some(level, to_string(*response.failure), {status, error});
    else
      log.write_some(level, to_string(*response.failure), {{"model", response.model}, status, error});
  } else if (log.on(Level::kDebug)) {
    const Field status{"status", int64_t{response.status}}, time{"seconds", seconds};
    if (response.model.empty())
      log.write(Level::kDebug, "answered", {status, time});
    else
      log.write(Level::kDebug, "answered", {{"model", response.model}, status, time});
  }
}

std::string_view path_of(std::string_view target) {
  target = target.substr(0, target.find('?'));
  if (target.size() > 1 && target.back() == '/') target.remove_suffix(1);
  return target;
}

}  // namespace tessera::serve
