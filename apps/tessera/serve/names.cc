#include "serve/names.h"

#include <algorithm>

#include "serve/infer_json.h"
#include "tessera/error.h"

namespace tessera::serve {

std::string listed(const std::vector<std::string>& names, const char* quote) {
  constexpr size_t kMost = 8;
  const size_t told = std::min(names.size(), kMost), left = names.size() - told;
  std::string out;
  for (size_t i = 0; i < told; ++i) {
    if (i > 0) out += i + 1 == names.size() ? " and " : ", ";
    out += str_cat(quote, shown(names[i]), quote);
  }
  return left == 0 ? out : str_cat(out, " and ", left, left == 1 ? " other" : " others");
}

}  // namespace tessera::serve
