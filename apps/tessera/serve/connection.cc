#include "serve/connection.h"

#include <algorithm>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <exception>
#include <optional>
#include <utility>
#include <vector>
#ifdef TESSERA_TLS
#include <boost/asio/ssl.hpp>
#endif

#include "serve/infer_json.h"
#include "tessera/error.h"
#include "tessera/sdk/draft/endpoint.h"

namespace tessera::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Parser = http::request_parser<RequestBody>;

constexpr auto kGrace = std::chrono::milliseconds(250);  // limit of an idle connection after the server ends
constexpr auto kAgain = std::chrono::milliseconds(50);
constexpr auto kLinger = std::chrono::milliseconds(2000);  // time for a client to read why it was refused
constexpr size_t kRead = 16384;                            // bytes read at once, more than the longest header
constexpr size_t kLarge = size_t{64} << 10;                // a body larger than this is parsed by another thread

bool is_loopback(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback();
  }
  return address.is_loopback();
}

HttpResponse busy(const std::string& why) {
  HttpResponse out = HttpResponse::failed(503, Failure::kBusy, why + ": ask again later");
  out.retry = true;
  return out;
}

// The reason why reading stopped, as a response; nothing if the client is gone or never began.
std::optional<HttpResponse> refusal(const error_code& error, bool timed_out, const ServerOptions& options) {
  if (timed_out) {
    return HttpResponse::failed(408, Failure::kSlowSender,
                                str_cat("the request did not arrive within ", options.read_timeout.count(), " ms"));
  }
  if (error == http::error::body_limit) {
    return HttpResponse::failed(413, Failure::kTooLarge,
                                str_cat("a request takes at most ", options.max_body, " bytes"));
  }
  if (error == http::error::header_limit) {
    return HttpResponse::failed(431, Failure::kTooLarge,
                                str_cat("a request's header takes at most ", options.max_header, " bytes"));
  }
  if (error == http::error::buffer_overflow) {
    return HttpResponse::failed(
        431, Failure::kTooLarge,
        str_cat("the line before a chunk, or the trailer, takes at most ", options.max_header, " bytes"));
  }
  if (error == boost::system::errc::no_buffer_space) {
    return busy(str_cat("requests of ", options.max_bodies, " bytes are under way"));
  }
  if (error == boost::system::errc::not_enough_memory) return out_of_memory();
  if (error == http::error::end_of_stream || error == http::error::partial_message) return std::nullopt;
  if (error.category() == make_error_code(http::error::bad_method).category()) {
    return HttpResponse::failed(400, Failure::kBadHttp, str_cat("this is not an HTTP/1.1 request: ", error.message()));
  }
  return std::nullopt;
}

http::response<http::string_body> to_http(HttpResponse&& from, unsigned version) {
  http::response<http::string_body> out{static_cast<http::status>(from.status), version};
  out.set(http::field::server, "tessera");
  out.set(http::field::content_type, from.content_type);
  if (from.json_bytes) out.set("Inference-Header-Content-Length", std::to_string(*from.json_bytes));
  if (from.allow != nullptr) out.set(http::field::allow, from.allow);
  if (from.challenge != nullptr) out.set(http::field::www_authenticate, from.challenge);
  if (from.retry) out.set(http::field::retry_after, "1");
  out.body() = std::move(from.body);
  return out;
}

template <class Stream>
constexpr bool kIsTls = !std::is_same_v<Stream, tcp::socket>;

template <class Stream>
class StreamConnection final : public Connection {
 public:
  StreamConnection(Shared& shared, Stream stream, bool loopback)
      : Connection(shared),
        stream_(std::move(stream)),
        loopback_(loopback),
        timer_(stream_.get_executor()),
        arrived_(stream_.get_executor()),
        buffer_(shared.options.max_header + kRead) {}

  void start(bool crowded) override {
    asio::co_spawn(stream_.get_executor(), run(self(), crowded), [](const std::exception_ptr& failure) {
      if (failure) std::rethrow_exception(failure);  // the caller logs it
    });
  }
  void end_soon() override {
    asio::post(stream_.get_executor(), [self = self()] {
      if (self->idle_) self->limit(kGrace);
    });
  }

 private:
  using Self = std::shared_ptr<StreamConnection>;
  Self self() { return std::static_pointer_cast<StreamConnection>(shared_from_this()); }

  // Coroutines here pass objects in members and await in statements of their own, because gcc 12 miscompiles moves of
  // temporaries that live across a suspension.
  auto token() { return asio::redirect_error(asio::use_awaitable, error_); }

  // Runs however run() ends, also when memory is exhausted: a limit still armed would keep this connection alive
  // forever.
  struct Leave {
    StreamConnection& connection;
    ~Leave() {
      connection.idle_ = false;
      connection.no_limit();
      error_code ignored;
      beast::get_lowest_layer(connection.stream_).close(ignored);
    }
  };

  // `self` keeps this alive.
  asio::awaitable<void> run(Self self, bool crowded) {
    (void)self;
    const Leave leave{*this};
    bool more = co_await greeted();
    if (more && crowded) {
      response_ = busy(str_cat(shared_.options.max_connections, " connections are open"));
      more = co_await refuse();
    }
    while (more) more = co_await turn();
    co_await close();
  }

  asio::awaitable<bool> greeted() {
    error_ = {};
#ifdef TESSERA_TLS
    if constexpr (kIsTls<Stream>) {
      limit(shared_.options.read_timeout);
      co_await stream_.async_handshake(asio::ssl::stream_base::server, token());
      no_limit();
    }
#endif
    co_return !error_;
  }

  // Handles one request and its response. Returns false if no more requests follow.
  asio::awaitable<bool> turn() {
    bool good = co_await first_byte();
    if (!good) co_return false;
    parser_.emplace(std::piecewise_construct, std::forward_as_tuple(shared_.bodies));
    parser_->header_limit(static_cast<uint32_t>(shared_.options.max_header));
    parser_->body_limit(shared_.options.max_body);
    response_.reset();
    limit(shared_.options.read_timeout);
    good = co_await read();
    no_limit();
    if (!good) {
      parser_->get().body().clear();
      co_await refuse();
      co_return false;
    }
    const auto start = Clock::now();
    co_await answer();
    parser_->get().body().clear();
    count(start, *response_, shared_.metrics, shared_.log);
    good = co_await send(parser_->get().keep_alive());
    co_return good;
  }

  // Waits for a request to begin.
  asio::awaitable<bool> first_byte() {
    if (buffer_.size() > 0) co_return true;
    idle_ = true;
    limit(shared_.ending ? kGrace : shared_.options.idle_timeout);
    const size_t bytes = co_await stream_.async_read_some(buffer_.prepare(4096), token());
    idle_ = false;
    no_limit();
    buffer_.commit(bytes);
    co_return !error_;
  }

  // Reads the request into the parser. Returns false if there will be none, because of response_ or because the client
  // is gone.
  asio::awaitable<bool> read() {
    co_await http::async_read_header(stream_, buffer_, *parser_, token());
    if (error_) {
      response_ = refusal(error_, timed_out_, shared_.options);
      co_return false;
    }
    response_ = refused_header();
    if (response_) co_return false;
    if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await asio::async_write(stream_, asio::buffer(kContinue), token());
      if (error_) co_return false;
    }
    co_await http::async_read(stream_, buffer_, *parser_, token());
    if (error_) response_ = refusal(error_, timed_out_, shared_.options);
    co_return !error_;
  }

  std::optional<HttpResponse> refused_header() {
    const auto& fields = parser_->get().base();
    const auto count = static_cast<size_t>(std::distance(fields.begin(), fields.end()));
    if (count > shared_.options.max_fields) {
      return HttpResponse::failed(
          431, Failure::kTooLarge,
          str_cat("a request's header takes at most ", shared_.options.max_fields, " fields; this one has ", count));
    }
    // If the transfer encoding is not understood, the end of the request is unknown.
    const size_t codings = fields.count(http::field::transfer_encoding);
    if (codings > 1 || (codings == 1 && !beast::iequals(fields[http::field::transfer_encoding], "chunked"))) {
      return HttpResponse::failed(501, Failure::kBadHttp,
                                  str_cat("Transfer-Encoding ", shown(fields[http::field::transfer_encoding]),
                                          codings > 1 ? " and others" : "", " is not supported: use chunked, or none"));
    }
    return std::nullopt;
  }

  HttpRequest taken_request() {
    auto& message = parser_->get();
    HttpRequest out;
    out.method = std::string(message.method_string());
    out.target = std::string(message.target());
    out.json_bytes = std::string(message["Inference-Header-Content-Length"]);
    out.authorization = std::string(message[http::field::authorization]);
    out.content_encoding = std::string(message[http::field::content_encoding]);
    const auto& fields = message.base();
    const bool direct = std::none_of(fields.begin(), fields.end(),
                                     [](const auto& field) { return sdk::tells_of_a_proxy(field.name_string()); });
    out.local = loopback_ && direct;
    out.body = message.body().take_text();
    out.arrived = Clock::now();
    return out;
  }

  // Sets response_ to the handler's answer, or to the one that says it was too late.
  asio::awaitable<void> answer() {
    const uint64_t turn = ++turn_;
    response_.reset();
    due_.reset();
    const auto respond = [self = self(), turn](HttpResponse response) {
      asio::dispatch(self->stream_.get_executor(), [self, turn, response = std::move(response)]() mutable {
        if (turn != self->turn_) return;  // the answer came too late
        self->response_ = std::move(response);
        self->arrived_.cancel();
      });
    };
    try {
      HttpRequest request = taken_request();
      if (request.body.size() > kLarge)
        hand_over(std::move(request), respond, turn);
      else
        due_ = shared_.handler->handle(std::move(request), respond);
    } catch (const std::bad_alloc&) {
      response_ = out_of_memory();
    }
    while (!response_ && !due_) {
      arrived_.expires_at(Clock::time_point::max());
      co_await arrived_.async_wait(token());
    }
    if (!response_) {
      arrived_.expires_at(*due_);
      co_await arrived_.async_wait(token());
    }
    ++turn_;
    if (!response_) response_ = shared_.handler->overdue();
  }

  // Lets another thread call the handler, then tells this one when the response is due.
  void hand_over(HttpRequest&& request, const RequestHandler::Respond& respond, uint64_t turn) {
    const auto given = std::make_shared<HttpRequest>(std::move(request));
    asio::post(*shared_.parsers, [self = self(), respond, turn, given] {
      try {
        const Clock::time_point due = self->shared_.handler->handle(std::move(*given), respond);
        asio::dispatch(self->stream_.get_executor(), [self, turn, due] {
          if (turn != self->turn_) return;
          self->due_ = due;
          self->arrived_.cancel();
        });
      } catch (const std::bad_alloc&) {
        respond(out_of_memory());
      }
    });
  }

  // Sends the response, if any, to a request that was not read to its end. It is the last one of this connection.
  asio::awaitable<bool> refuse() {
    if (!response_) co_return false;
    count(Clock::now(), *response_, shared_.metrics, shared_.log);
    lingers_ = true;
    co_await send(false);
    co_return false;
  }

  // Returns true if the connection goes on.
  asio::awaitable<bool> send(bool keep) {
    const bool head = parser_ && parser_->is_header_done() && parser_->get().method() == http::verb::head;
    const unsigned version = parser_ && parser_->is_header_done() ? parser_->get().version() : 11;
    auto message = to_http(std::move(*response_), version);
    keep = keep && !shared_.ending;
    message.keep_alive(keep);
    message.prepare_payload();
    if (head) message.body().clear();
    limit(shared_.options.write_timeout);
    co_await http::async_write(stream_, message, token());
    no_limit();
    co_return keep && !error_;
  }

  // Closing a socket while bytes of the client are unread would discard the response, so these bytes are read for a
  // while.
  asio::awaitable<void> close() {
    limit(kLinger);
    error_code ignored;
    if constexpr (!kIsTls<Stream>) stream_.shutdown(tcp::socket::shutdown_send, ignored);
    error_ = {};
    while (lingers_ && !timed_out_ && !error_) {
      buffer_.clear();
      co_await stream_.async_read_some(buffer_.prepare(kRead), token());
    }
#ifdef TESSERA_TLS
    if constexpr (kIsTls<Stream>) {
      if (!timed_out_) co_await stream_.async_shutdown(token());
    }
#endif
  }

  // Cancels the next wait of this connection after `duration`.
  void limit(std::chrono::milliseconds duration) {
    timed_out_ = false;
    timer_.expires_after(duration);
    watch(++armed_);
  }
  void watch(uint64_t armed) {
    timer_.async_wait([self = self(), armed](const error_code& error) {
      if (error || armed != self->armed_) return;
      self->timed_out_ = true;
      error_code ignored;
      beast::get_lowest_layer(self->stream_).cancel(ignored);
      // An operation of several steps may have been between two of them, where nothing could be cancelled.
      self->timer_.expires_after(kAgain);
      self->watch(armed);
    });
  }
  void no_limit() {
    ++armed_;
    error_code ignored;
    timer_.cancel(ignored);
  }

  Stream stream_;
  const bool loopback_;
  asio::steady_timer timer_;    // limits reading and writing
  asio::steady_timer arrived_;  // cancelled when the response has arrived
  beast::flat_buffer buffer_;
  error_code error_;              // of the previous operation
  std::optional<Parser> parser_;  // parses this turn's request
  std::optional<HttpResponse> response_;
  std::optional<Clock::time_point> due_;  // set once the handler has the request
  uint64_t turn_ = 0, armed_ = 0;
  bool idle_ = false, timed_out_ = false, lingers_ = false;
};

}  // namespace

Connection::Connection(Shared& shared) : shared_(shared) {
  const std::lock_guard lock(shared_.mutex);
  shared_.open.insert(this);
}

Connection::~Connection() {
  const std::lock_guard lock(shared_.mutex);
  shared_.open.erase(this);
}

size_t Shared::connections() {
  const std::lock_guard lock(mutex);
  return open.size();
}

void Shared::end_all() {
  // destroyed without the mutex, because the end of the last reference takes it
  std::vector<std::shared_ptr<Connection>> alive;
  {
    const std::lock_guard lock(mutex);
    alive.reserve(open.size());
    for (Connection* connection : open) alive.push_back(connection->weak_from_this().lock());
  }
  for (const auto& connection : alive) {
    if (connection) connection->end_soon();
  }
}

std::shared_ptr<Connection> make_connection(tcp::socket socket, Shared& shared) {
  error_code error;
  socket.set_option(tcp::no_delay(true), error);
  const tcp::endpoint peer = socket.remote_endpoint(error);
  const bool loopback = !error && is_loopback(peer.address());
#ifdef TESSERA_TLS
  if (shared.tls != nullptr) {
    using Tls = asio::ssl::stream<tcp::socket>;
    return std::make_shared<StreamConnection<Tls>>(shared, Tls(std::move(socket), *shared.tls), loopback);
  }
#endif
  return std::make_shared<StreamConnection<tcp::socket>>(shared, std::move(socket), loopback);
}

}  // namespace tessera::serve
