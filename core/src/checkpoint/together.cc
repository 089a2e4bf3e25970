#include "checkpoint/together.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <new>
#include <system_error>

namespace tessera::checkpoint {
namespace {

constexpr char kFine = '+', kFailed = '!', kBusy = '.';
constexpr auto kTurn = std::chrono::milliseconds(250);  // the longest silence of a busy rank

std::string failure(Code code, const std::string& text) {
  return str_cat(kFailed, static_cast<int32_t>(code), ' ', text.empty() ? "unknown error" : text);
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

// Returns the results of all bodies, or throws the error of the first that failed.
std::vector<std::string> results_of(std::vector<std::string> all) {
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].front() == kFailed) {
      const size_t space = all[rank].find(' ');
      const auto code = static_cast<Code>(std::stoi(all[rank].substr(1, space - 1)));
      throw Error(code, str_cat(all.size() > 1 ? str_cat("rank ", rank, ": ") : "", all[rank].substr(space + 1)),
                  static_cast<int>(rank));
    }
    all[rank].erase(0, 1);
  }
  return all;
}

}  // namespace

std::vector<std::string> together(const ProcessGroup& group, const char* label,
                                  const std::function<std::string()>& body) {
  return results_of(group.all_gather_text(outcome(body), label));
}

std::vector<std::string> together_at_length(const ProcessGroup& group, const char* label,
                                            const std::function<std::string()>& body) {
  std::future<std::string> work;
  std::string mine(1, kBusy);
  try {
    work = std::async(std::launch::async, [&] { return outcome(body); });
  } catch (const std::system_error&) {  // the system grants no thread, but the others wait for this rank
    mine = outcome(body);
  }
  while (true) {
    if (work.valid() && work.wait_for(kTurn) == std::future_status::ready) mine = work.get();
    std::vector<std::string> all = group.all_gather_text(mine, label);
    const auto busy = [](const std::string& text) { return text.front() == kBusy; };
    if (std::none_of(all.begin(), all.end(), busy)) return results_of(std::move(all));
  }
}

void together_in_turns(const ProcessGroup& group, const char* label, const std::function<bool()>& work) {
  bool mine = true, any = true;
  while (any) {
    const auto texts = together_at_length(group, label, [&] {
      const auto start = std::chrono::steady_clock::now();
      while (mine && std::chrono::steady_clock::now() - start < kTurn) mine = work();
      return std::string(mine ? "more" : "");
    });
    any = false;
    for (const std::string& text : texts) any |= !text.empty();
  }
}

void give_way() {
  constexpr int kNice = 10;
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
}

}  // namespace tessera::checkpoint
