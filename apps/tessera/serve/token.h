// Authentication: requests without the server's token get 401, over HTTP and from endpoints.
#pragma once

#include <string>
#include <string_view>

#include "serve/request_handler.h"
#include "serve/service.h"

namespace tessera::serve {

// Reads the token, the first line of a file. Throws kNotFound if the file cannot be read. Throws kInvalidArgument if
// the line is not a token (RFC 6750: letters, digits and -._~+/, then = signs) or is shorter than 16 characters, which
// could be guessed, or if everybody on the host may read or write the file.
std::string read_token(const std::string& path);

class Token {
 public:
  explicit Token(std::string text) : text_(std::move(text)) {}
  // True for "Bearer TOKEN". The comparison takes the same time wherever tokens differ.
  bool is_shown(std::string_view authorization) const;

 private:
  const std::string text_;
};

// Passes on requests with "Authorization: Bearer TOKEN", and those for /v2/health, which reveals nothing about models
// and is used by orchestrators that have no token.
class TokenHandler : public RequestHandler {
 public:
  TokenHandler(std::string token, RequestHandler& behind) : token_(std::move(token)), behind_(behind) {}

  Clock::time_point handle(HttpRequest&& request, const Respond& respond) override;
  HttpResponse overdue() const override { return behind_.overdue(); }
  void end() override { behind_.end(); }
  void count_connections(const std::function<size_t()>& open) override { behind_.count_connections(open); }

 private:
  const Token token_;
  RequestHandler& behind_;
};

// The same for questions of endpoints.
class TokenService : public Service {
 public:
  TokenService(std::string token, Service& behind) : token_(std::move(token)), behind_(behind) {}

  Clock::time_point ask(const Question& question, const Respond& respond) override;
  Outcome overdue() const override { return behind_.overdue(); }

 private:
  const Token token_;
  Service& behind_;
};

}  // namespace tessera::serve
