#include "checkpoint/together.h"

#include <chrono>
#include <new>

namespace tessera::checkpoint {
namespace {

constexpr char kFine = '+', kFailed = '!';

std::string failure(Code code, const std::string& text) {
  return cat(kFailed, static_cast<int32_t>(code), ' ', text.empty() ? "unknown error" : text);
}

std::string outcome(const std::function<std::string()>& body) {
  try {
    return kFine + body();
  } catch (const Error& e) {
    return failure(e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return failure(Code::kResourceExhausted, "out of memory");
  } catch (const std::exception& e) {
    return failure(Code::kInternal, e.what());
  }
}

}  // namespace

std::vector<std::string> together(const ProcessGroup& group, const char* label,
                                  const std::function<std::string()>& body) {
  std::vector<std::string> all = group.all_gather_text(outcome(body), label);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].front() == kFailed) {
      const size_t space = all[rank].find(' ');
      const auto code = static_cast<Code>(std::stoi(all[rank].substr(1, space - 1)));
      fail(code, all.size() > 1 ? cat("rank ", rank, ": ") : "", all[rank].substr(space + 1));
    }
    all[rank].erase(0, 1);
  }
  return all;
}

void together_in_turns(const ProcessGroup& group, const char* label, const std::function<bool()>& work) {
  constexpr auto kTurn = std::chrono::seconds(1);
  bool mine = true, any = true;
  while (any) {
    const auto texts = together(group, label, [&] {
      const auto start = std::chrono::steady_clock::now();
      while (mine && std::chrono::steady_clock::now() - start < kTurn) mine = work();
      return std::string(mine ? "more" : "");
    });
    any = false;
    for (const std::string& text : texts) any |= !text.empty();
  }
}

}  // namespace tessera::checkpoint
