// Shared by fuzz targets. A target is a function fuzz_NAME(Input) in NAME_fuzz.cc: for any bytes it returns, or ends
// the process if the product is wrong. CMakeLists.txt lists the targets.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "tessera/error.h"

namespace tessera::fuzz {

using Input = std::span<const uint8_t>;

inline std::string_view text_of(Input input) { return {reinterpret_cast<const char*>(input.data()), input.size()}; }

inline void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "fuzz: not so: %s\n", what);
  std::abort();
}

// Runs `body`, which may refuse its input with a sentence. Returns false if it did.
template <class Body>
bool taken(const Body& body) {
  try {
    body();
    return true;
  } catch (const Error& e) {
    require(e.code() != Code::kOk && *e.what() != '\0', "a refusal has a code and a sentence");
    return false;
  }
}

// Takes values from the front of an input; zeros once it has ended.
class Taker {
 public:
  explicit Taker(Input input) : rest_(input) {}
  template <class T>
  T take() {
    T out{};
    const size_t n = std::min(sizeof(T), rest_.size());
    if (n > 0) std::memcpy(&out, rest_.data(), n);
    rest_ = rest_.subspan(n);
    return out;
  }
  Input take(size_t most) {
    const Input out = rest_.first(std::min(most, rest_.size()));
    rest_ = rest_.subspan(out.size());
    return out;
  }
  Input rest() const { return rest_; }

 private:
  Input rest_;
};

// A file in memory with given bytes, which has a path.
class ScratchFile {
 public:
  explicit ScratchFile(Input bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = write(fd_, bytes.data() + done, bytes.size() - done);
      if (n <= 0) std::abort();
      done += static_cast<size_t>(n);
    }
  }
  ~ScratchFile() { close(fd_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace tessera::fuzz
