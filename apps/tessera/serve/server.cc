#include "serve/server.h"

#include <boost/asio.hpp>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "serve/connection.h"
#include "tessera/error.h"
#ifdef TESSERA_TLS
#include <boost/asio/ssl.hpp>
#endif

namespace tessera::serve {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // pause when the system has no more descriptors

std::string with_port(const tcp::endpoint& at) {
  const std::string host = at.address().to_string();
  return (at.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(at.port());
}

tcp::endpoint endpoint_of(const ServerOptions& options) {
  error_code error;
  const auto address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
  if (error) {
    fail(Code::kInvalidArgument, "host \"", options.host,
         "\" is not a numeric address such as 127.0.0.1, 0.0.0.0 "
         "or ::");
  }
  return {address, static_cast<uint16_t>(options.port)};
}

#ifdef TESSERA_TLS
using TlsContext = asio::ssl::context;

std::unique_ptr<TlsContext> tls_of(const ServerOptions& options) {
  if (options.tls_cert.empty()) return nullptr;
  auto out = std::make_unique<TlsContext>(TlsContext::tls_server);
  out->set_options(TlsContext::default_workarounds | TlsContext::no_tlsv1 | TlsContext::no_tlsv1_1);
  error_code error;
  out->use_certificate_chain_file(options.tls_cert, error);
  if (error) fail(Code::kInvalidArgument, "cannot use the TLS certificate ", options.tls_cert, ": ", error.message());
  out->use_private_key_file(options.tls_key, TlsContext::pem, error);
  if (error) fail(Code::kInvalidArgument, "cannot use the TLS key ", options.tls_key, ": ", error.message());
  return out;
}
#else
struct TlsContext {};

std::unique_ptr<TlsContext> tls_of(const ServerOptions& options) {
  if (options.tls_cert.empty()) return nullptr;
  fail(Code::kUnimplemented, "this program was built without TLS: OpenSSL (libssl-dev) was not found then");
}
#endif

}  // namespace

struct Server::Impl {
  Impl(const ServerOptions& o, Metrics& metrics, Log& log)
      : options(o),
        tls(tls_of(options)),
        shared(options, metrics, log),
        parsers(static_cast<size_t>(options.threads)),
        acceptor(asio::make_strand(io)),
        signals(acceptor.get_executor()) {
#ifdef TESSERA_TLS
    shared.tls = tls.get();
#endif
    shared.parsers = &parsers;
    listen();
  }

  void listen() {
    const tcp::endpoint where = endpoint_of(options);
    error_code error;
    acceptor.open(where.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(where, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      fail(Code::kUnavailable, "cannot listen at ", with_port(where), ": ", error.message(),
           error == asio::error::address_in_use ? "; choose another --port" : "");
    }
    local = acceptor.local_endpoint();
  }

  // Accepts until the acceptor is closed, even if a connection finds no memory.
  void keep_accepting() {
    asio::co_spawn(acceptor.get_executor(), accept(), [this](const std::exception_ptr& failure) {
      if (failure && acceptor.is_open()) keep_accepting();
      if (failure) std::rethrow_exception(failure);  // the caller logs it
    });
  }

  asio::awaitable<void> accept() {
    asio::steady_timer pause(acceptor.get_executor());
    error_code error;
    while (acceptor.is_open()) {
      tcp::socket socket(asio::make_strand(io));
      co_await acceptor.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
      if (!error) admit(std::move(socket));
      if (!error || !acceptor.is_open()) continue;
      shared.log.write_some(Level::kWarning, "not_accepted", {{"error", error.message()}});
      pause.expires_after(kAcceptPause);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
    }
  }

  // Connections that the system has accepted by now are answered.
  void stop_accepting() {
    error_code error;
    acceptor.non_blocking(true, error);
    while (!error) {
      tcp::socket socket(asio::make_strand(io));
      acceptor.accept(socket, error);
      if (!error) admit(std::move(socket));
    }
    acceptor.close(error);
  }

  // Tells surplus connections so, unless too many are being told already.
  void admit(tcp::socket socket) {
    const size_t open = shared.connections();
    if (open >= options.max_connections + ServerOptions::kTurnedAway) return;
    const bool crowded = open >= options.max_connections;
    make_connection(std::move(socket), shared)->start(crowded);
  }

  void end() {
    if (shared.ending.exchange(true)) return;
    shared.log.write(Level::kInfo, "ending", {{"connections", static_cast<int64_t>(shared.connections())}});
    if (shared.handler != nullptr) shared.handler->end();
    stop_accepting();
    error_code ignored;
    signals.cancel(ignored);
    shared.end_all();
  }

  // An exception of a handler, such as bad_alloc, ends its connection and not the server.
  void work() {
    while (true) {
      try {
        io.run();
        return;
      } catch (const std::exception& e) {
        shared.log.write_some(Level::kError, "connection_dropped", {{"error", e.what()}});
      }
    }
  }

  void wait_for_signal() {
    signals.async_wait([this](const error_code& error, int signal) {
      if (error) return;
      if (signal == SIGHUP) {
        hangup();
        wait_for_signal();
      } else {
        signals.clear();  // the next signal ends the process
        asio::post(acceptor.get_executor(), [this] { end(); });
      }
    });
  }

  const ServerOptions options;
  std::unique_ptr<TlsContext> tls;
  Shared shared;
  asio::thread_pool parsers;
  asio::io_context io;  // declared last: it may hold the last connections, which use the members above
  tcp::acceptor acceptor;
  asio::signal_set signals;  // used in the acceptor's strand
  std::function<void()> hangup;
  tcp::endpoint local;
};

Server::Server(const ServerOptions& options, Metrics& metrics, Log& log) {
  TESSERA_CHECK(options.threads > 0 && options.max_connections > 0 &&
                options.tls_cert.empty() == options.tls_key.empty());
  impl_ = std::make_unique<Impl>(options, metrics, log);
}
Server::~Server() = default;

int Server::port() const { return impl_->local.port(); }
std::string Server::url() const { return (impl_->tls ? "https://" : "http://") + with_port(impl_->local); }

void Server::watch_signals(std::function<void()> hangup) {
  impl_->hangup = std::move(hangup);
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) impl_->signals.add(signal);
  impl_->wait_for_signal();
}

void Server::run(RequestHandler& handler) {
  impl_->shared.handler = &handler;
  handler.count_connections([impl = impl_.get()] { return impl->shared.connections(); });
  impl_->keep_accepting();
  std::vector<std::thread> threads;
  for (int i = 1; i < impl_->options.threads; ++i) threads.emplace_back([this] { impl_->work(); });
  impl_->work();
  for (std::thread& thread : threads) thread.join();
  impl_->parsers.join();
}

void Server::end() {
  asio::post(impl_->acceptor.get_executor(), [impl = impl_.get()] { impl->end(); });
}

}  // namespace tessera::serve
