#include "serve/endpoint.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "serve/endpoint_structs.h"
#include "tessera/calls.h"
#include "tessera/error.h"

namespace tessera::serve {

// The requests of an endpoint that wait for their answer. Each gets exactly one: the service's, or at its deadline the
// one that says so. A late answer after the endpoint's end still finds this object, and does nothing.
class Endpoint::Asked : public std::enable_shared_from_this<Asked> {
 public:
  Asked(Service& service, Metrics& metrics, Log& log)
      : service_(service), metrics_(metrics), log_(log), thread_([this] { watch(); }) {}

  void handle(const tsr_endpoint_request& given, tsr_endpoint_respond respond, void* context) noexcept {
    std::shared_ptr<Request> request;
    try {
      request = std::make_shared<Request>(Request{respond, context, Clock::now()});
      const EndpointQuestion asked(given);
      const Clock::time_point due = service_.ask(
          asked.question(),
          [self = shared_from_this(), request](const Outcome& outcome) { self->answer(*request, outcome); });
      if (due != Clock::time_point::max()) expect(request, due);
    } catch (const Refused& refused) {
      answer(*request, refused.outcome);
    } catch (const std::exception&) {  // there is no memory, so this answer must not allocate
      if (!request || !answered(*request)) respond(context, &kNoMemory);
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

  void answer(Request& request, const Outcome& outcome) noexcept {
    if (answered(request)) return;
    try {
      const EndpointAnswer answer(outcome);
      try {
        count(request.start, outcome, metrics_, log_);
      } catch (const std::bad_alloc&) {  // the answer is then not counted
      }
      request.respond(request.context, &answer.response());
    } catch (const std::bad_alloc&) {
      request.respond(request.context, &kNoMemory);
    }
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
      answer(*request, service_.overdue());
      lock.lock();
    }
  }

  Service& service_;
  Metrics& metrics_;
  Log& log_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::multimap<Clock::time_point, std::shared_ptr<Request>> due_;
  bool ending_ = false;
  std::thread thread_;
};

Endpoint::Endpoint(const Runtime& runtime, const std::string& name, const ServerOptions& options, Service& service,
                   Metrics& metrics, Log& log)
    : part_(runtime.create(TSR_ENDPOINT_KIND, name)), asked_(std::make_shared<Asked>(service, metrics, log)) {
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
