#include "serve/request_handler.h"

#include "serve/infer_json.h"
#include "serve/protocol.h"
#include "tessera/error.h"

namespace tessera::serve {

HttpResponse::HttpResponse(Outcome outcome) : Outcome(std::move(outcome)) {
  body = failure ? render_error(sentence) : std::move(text);
}

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

std::string_view path_of(std::string_view target) {
  target = target.substr(0, target.find('?'));
  if (target.size() > 1 && target.back() == '/') target.remove_suffix(1);
  return target;
}

}  // namespace tessera::serve
