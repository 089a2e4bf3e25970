// Calls to the file system that may fail for a moment, and what is asked of paths with them.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <string>
#include <vector>

namespace tessera::checkpoint {

// Whether a call that failed with errno `error` may succeed a moment later: the disk, the network or a shortage failed,
// which says nothing about the file. A file that is not there, or a full disk, is an answer.
bool may_pass(int error);
// Waits before the next try of a call, longer each time. False: there were enough tries, over about a second.
bool wait_before_retry(int tries);

// Calls `call`, which returns a negative number and sets errno where it fails, until it succeeds or may not pass.
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

// Its type, S_IFREG for example, after links; 0: there is nothing. Throws where it cannot be told.
mode_t type_of(const std::string& path);
// Names in a directory, in no order.
std::vector<std::string> names_in(const std::string& directory);
// `directory` without links and a slash at its end. `what`: the sentence if it is empty.
std::string absolute_directory(const std::string& directory, const char* what);
// Makes a directory and those above it, durably. False: it was there.
bool make_directories(const std::string& directory);

}  // namespace tessera::checkpoint
