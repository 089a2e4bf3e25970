// Calls to the file system that may fail for a moment, and queries of paths that use them.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <string>
#include <vector>

namespace tessera::checkpoint {

// True if a call that failed with errno `error` may succeed a moment later, because the disk, the network or a shortage
// failed. A missing file or a full disk is a final answer.
bool may_pass(int error);
// Waits before the next try of a call, longer each time. False: it was tried often enough, for about a second.
bool wait_before_retry(int tries);

// Repeats `call`, which returns a negative number and sets errno on failure, until it succeeds or fails for good.
template <class Call>
auto patiently(const Call& call) {
  for (int tries = 1;; ++tries) {
    const auto result = call();
    if (result >= 0) return result;
    const int error = errno;
    const bool again = error == EINTR || (may_pass(error) && wait_before_retry(tries));
    errno = error;
    if (!again) return result;
  }
}

// Returns the type after links, S_IFREG for example; 0: there is nothing. Throws if that cannot be told.
mode_t type_of(const std::string& path);
// Lists the names in a directory, in no order.
std::vector<std::string> names_in(const std::string& directory);
// Resolves links and strips a trailing slash. `what`: the message if `directory` is empty.
std::string absolute_directory(const std::string& directory, const char* what);
// Makes a directory and its parents durably. False: it existed.
bool make_directories(const std::string& directory);

}  // namespace tessera::checkpoint
