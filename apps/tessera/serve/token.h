// Who may ask: requests without the server's token get 401.
#pragma once

#include <string>
#include <string_view>

#include "serve/request_handler.h"

namespace tessera::serve {

// The first line of a file. kNotFound: it cannot be read; kInvalidArgument: what is there is no token (RFC 6750:
// letters, digits and -._~+/, then = signs), or shorter than 16 characters, which one could guess; everybody on the
// host may read or write the file.
std::string read_token(const std::string& path);

// Hands requests on that have "Authorization: Bearer TOKEN", and those for /v2/health, which says nothing about models
// and is asked by orchestrators that have no token. The comparison takes equally long wherever tokens differ.
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
