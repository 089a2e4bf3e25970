#include "serve/endpoint.h"

#include <atomic>
#include <condition_variable>
#include <new>
#include <optional>
#include <utility>

#include "plugin/calls.h"
#include "tessera/abi/draft/endpoint.h"
#include "tessera/error.h"

namespace tessera::serve {
namespace {

HttpRequest request_of(const tsr_endpoint_request& from) {
  HttpRequest out;
  out.method = from.method;
  out.target = from.target;
  out.authorization = from.authorization;
  if (from.body_bytes > 0) out.body.assign(static_cast<const char*>(from.body), static_cast<size_t>(from.body_bytes));
  if (from.json_bytes >= 0) out.json_bytes = std::to_string(from.json_bytes);
  out.local = (from.flags & TSR_ENDPOINT_LOCAL) != 0;
  return out;
}

tsr_endpoint_response response_of(const HttpResponse& from) {
  return {sizeof(tsr_endpoint_response),
          0,
          from.status,
          0,
          from.body.data(),
          std::ssize(from.body),
          from.json_bytes ? static_cast<int64_t>(*from.json_bytes) : -1};
}

}  // namespace

// The requests of an endpoint that wait for their answer. Each gets exactly one: the handler's, or at its deadline the
// one that says so. A late answer after the endpoint's end still finds this object, and does nothing.
class Endpoint::Asked : public std::enable_shared_from_this<Asked> {
 public:
  Asked(RequestHandler& handler, Metrics& metrics, Log& log)
      : handler_(handler), metrics_(metrics), log_(log), thread_([this] { watch(); }) {}

  void handle(const tsr_endpoint_request& given, tsr_endpoint_respond respond, void* context) noexcept {
    std::shared_ptr<Request> request;
    try {
      request = std::make_shared<Request>(Request{respond, context, Clock::now()});
      const Clock::time_point due = handler_.handle(
          request_of(given),
          [self = shared_from_this(), request](const HttpResponse& response) { self->answer(*request, response); });
      if (due != Clock::time_point::max()) expect(request, due);
    } catch (const std::exception&) {  // there is no memory, so this answer must not allocate
      constexpr std::string_view kBody = R"({"error":"there is not enough memory for this request: ask again later"})";
      const tsr_endpoint_response response{sizeof(response), 0, 503, 0, kBody.data(), std::ssize(kBody), -1};
      if (!request || !answered(*request)) respond(context, &response);
    }
  }

  // Ends the watch over deadlines; no request may follow.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

 private:
  struct Request {
    tsr_endpoint_respond respond;
    void* context;
    Clock::time_point start;
    bool answered = false;
    std::optional<std::multimap<Clock::time_point, std::shared_ptr<Request>>::iterator> place = std::nullopt;
  };

  void expect(const std::shared_ptr<Request>& request, Clock::time_point due) {
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      if (request->answered) return;
      request->place = due_.emplace(due, request);
      first = *request->place == due_.begin();
    }
    if (first) wake_.notify_all();
  }

  // Marks the request as answered. Returns true if it already was.
  bool answered(Request& request) {
    const std::lock_guard lock(mutex_);
    if (request.place) due_.erase(*std::exchange(request.place, std::nullopt));
    return std::exchange(request.answered, true);
  }

  void answer(Request& request, const HttpResponse& response) noexcept {
    if (answered(request)) return;
    try {
      count(request.start, response, metrics_, log_);
    } catch (const std::bad_alloc&) {  // the answer is then not counted
    }
    const tsr_endpoint_response told = response_of(response);
    request.respond(request.context, &told);
  }

  void watch() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      if (due_.empty()) {
        wake_.wait(lock);
        continue;
      }
      const Clock::time_point due = due_.begin()->first;
      if (Clock::now() < due) {
        wake_.wait_until(lock, due);
        continue;
      }
      const std::shared_ptr<Request> request = due_.begin()->second;
      lock.unlock();
      answer(*request, handler_.overdue());
      lock.lock();
    }
  }

  RequestHandler& handler_;
  Metrics& metrics_;
  Log& log_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::multimap<Clock::time_point, std::shared_ptr<Request>> due_;
  bool ending_ = false;
  std::thread thread_;
};

Endpoint::Endpoint(const Runtime& runtime, const std::string& name, const ServerOptions& options,
                   RequestHandler& handler, Metrics& metrics, Log& log)
    : part_(runtime.create(TSR_ENDPOINT_KIND, name)), asked_(std::make_shared<Asked>(handler, metrics, log)) {
  const auto text = [](const std::string& given) { return given.empty() ? nullptr : given.c_str(); };
  const tsr_endpoint_server server{sizeof(server),
                                   0,
                                   asked_.get(),
                                   [](void* self, const tsr_endpoint_request* request, tsr_endpoint_respond respond,
                                      void* context) { static_cast<Asked*>(self)->handle(*request, respond, context); },
                                   options.host.c_str(),
                                   text(options.tls_cert),
                                   text(options.tls_key),
                                   static_cast<int64_t>(options.max_body),
                                   static_cast<int64_t>(options.max_bodies)};
  const char* url = nullptr;
  AbiError error;
  const plugin::CallScope call(*part_, "start");
  const tsr_code code = part_->api<tsr_endpoint>().start(part_->self(), &server, &url, error.out());
  if (code != TSR_OK) asked_->end();
  error.check(code, part_->id());
  url_ = url == nullptr ? "" : url;
}

Endpoint::~Endpoint() {
  {
    AbiError ignored;  // it counts as stopped in any case
    const plugin::CallScope call(*part_, "stop");
    (void)part_->api<tsr_endpoint>().stop(part_->self(), ignored.out());
  }
  asked_->end();
}

}  // namespace tessera::serve
