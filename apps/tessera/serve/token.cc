#include "serve/token.h"

#include <sys/stat.h>

#include <boost/beast/core/string.hpp>
#include <cctype>
#include <fstream>
#include <utility>

#include "tessera/error.h"

namespace tessera::serve {
namespace {

constexpr size_t kLeast = 16, kMost = 4096;  // bounds on the characters of a token

bool is_token(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 && static_cast<unsigned char>(c) < 128;
    if (!plain && std::string_view("-._~+/").find(c) == std::string_view::npos) return false;
  }
  return !text.empty();
}

Outcome no_token(std::string_view authorization) {
  return Outcome::failed(401, Failure::kNoToken,
                         authorization.empty()
                             ? "this server needs a token: send the header Authorization: Bearer TOKEN"
                             : "the token of this request is not the server's");
}

}  // namespace

std::string read_token(const std::string& path) {
  struct stat info {};
  // Only regular files are checked; a pipe or a terminal has its own access rights.
  if (::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & (S_IROTH | S_IWOTH)) != 0)
    fail(Code::kInvalidArgument, "--token-file: everybody on this host can read or change ", path, ": run `chmod 600 ",
         path, "`");
  std::ifstream in(path);
  std::string token;
  if (!in || !std::getline(in, token)) fail(Code::kNotFound, "--token-file: cannot read a line of ", path);
  while (!token.empty() && (token.back() == '\r' || token.back() == ' ')) token.pop_back();
  if (token.size() < kLeast || token.size() > kMost || !is_token(token))
    fail(Code::kInvalidArgument, "--token-file: the first line of ", path, " must be a token of ", kLeast, " to ",
         kMost, " letters, digits and -._~+/=, as `openssl rand -hex 32` makes them");
  return token;
}

bool Token::is_shown(std::string_view authorization) const {
  constexpr std::string_view kScheme = "Bearer";
  if (!boost::beast::iequals(authorization.substr(0, kScheme.size()), kScheme)) return false;
  authorization.remove_prefix(kScheme.size());
  if (authorization.empty() || authorization[0] != ' ') return false;
  while (!authorization.empty() && authorization[0] == ' ') authorization.remove_prefix(1);
  size_t differs = authorization.size() ^ text_.size();
  for (size_t i = 0; i < text_.size(); ++i) {
    const char c = i < authorization.size() ? authorization[i] : '\0';
    differs |= static_cast<unsigned char>(c ^ text_[i]);
  }
  return differs == 0;
}

Clock::time_point TokenHandler::handle(HttpRequest&& request, const Respond& respond) {
  const std::string_view path = path_of(request.target);
  constexpr std::string_view kHealth = "/v2/health/";
  if (path.substr(0, kHealth.size()) == kHealth || token_.is_shown(request.authorization))
    return behind_.handle(std::move(request), respond);
  HttpResponse out = no_token(request.authorization);
  out.challenge = "Bearer";
  respond(std::move(out));
  return Clock::time_point::max();
}

Clock::time_point TokenService::ask(const Question& question, const Respond& respond) {
  const bool health = question.ask == Ask::kServerLive || question.ask == Ask::kServerReady;
  if (health || token_.is_shown(question.authorization)) return behind_.ask(question, respond);
  respond(no_token(question.authorization));
  return Clock::time_point::max();
}

}  // namespace tessera::serve
