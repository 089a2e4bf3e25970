// A Python process that runs frames.py, and the frames with which it answers.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "columnar/source.h"

namespace tessera_readers {

// The reason why the Python no longer answers, as a part of a sentence. The file is not the cause.
class PythonLost : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept {
    reset();
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void reset();

 private:
  int fd_;
};

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};

struct PythonFrame {
  char kind = 0;
  std::string head;
  std::unique_ptr<std::byte, FreeMemory> body;  // aligned to 64 bytes
  int64_t body_size = 0;
};

class PythonChild {
 public:
  // Throws PythonLost if it cannot be started.
  explicit PythonChild(PythonOptions options);
  // Ends the child.
  ~PythonChild();
  PythonChild(const PythonChild&) = delete;
  PythonChild& operator=(const PythonChild&) = delete;

  const std::string& python() const { return options_.python; }
  // After a PythonLost, all of these throw it. tell() sends a command that has no answer.
  void tell(const std::string& command);
  PythonFrame ask(const std::string& command);
  // Sends a command and leaves its answer for the next ask() of the same command; another command drops it.
  void ask_ahead(const std::string& command);

 private:
  void start();
  [[noreturn]] void lose(const std::string& why);
  std::string last_words() const;
  void read(void* to, int64_t bytes);
  void skip_to_greeting();
  PythonFrame receive();
  void end();

  PythonOptions options_;
  pid_t pid_ = -1, owner_ = -1;  // the child, and the process that started it
  Descriptor commands_, answers_, errors_;
  bool greeted_ = false;
  std::string asked_;  // command without an answer so far; empty if there is none
  std::string lost_;   // why it is lost; empty if it is not
};

}  // namespace tessera_readers
