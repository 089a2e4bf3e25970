// Authentication: requests without the server's token get 401.
#pragma once

#include <string>
#include <string_view>

#include "serve/request_handler.h"

namespace tessera::serve {

// Reads the token, the first line of a file. Throws kNotFound if the file cannot be read. Throws kInvalidArgument if
// the line is not a token (RFC 6750: letters, digits and -._~+/, then = signs) or is shorter than 16 characters, which
// could be guessed, or if everybody on the host may read or write the file.
std::string read_token(const std::string& path);

// Passes on requests with "Authorization: Bearer TOKEN", and those for /v2/health, which reveals nothing about models
// and is used by orchestrators that have no token. The comparison takes the same time wherever tokens differ.
class TokenHandler : public RequestHandler {
 public:
  TokenHandler(std::string token, RequestHandler& behind) : token_(std::move(token)), behind_(behind) {}

  Clock::time_point handle(HttpRequest&& request, const Respond& respond) override;
  HttpResponse overdue() const override { return behind_.overdue(); }
  void end() override { behind_.end(); }
  void count_connections(const std::function<size_t()>& open) override { behind_.count_connections(open); }

 private:
  bool shows_token(std::string_view authorization) const;

  const std::string token_;
  RequestHandler& behind_;
};

}  // namespace tessera::serve
