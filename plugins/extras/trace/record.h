// Writes the file of one rank: a line of JSON for each call, in the order in which calls ended.
//
//   {"n": 17, "group": "0", "op": "all_to_all_v", "label": "rows", "dtype": "float32", "bytes": 65536, "flags": 2,
//    "site": "9ae16a3b2f90404f", "row_elements": 64, "start_s": 1.25, "s": 0.000123, "result": 0}
//
// "n" counts the calls in the order in which they began. "bytes" is the size of this rank's input tensor. If checksums
// are on, "sum" is a checksum of the rank's data after the call. A failed call has "error".
#pragma once

#include <tessera/sdk/collective.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

namespace extras {

using namespace tessera::sdk;

// A checksum of bytes that does not depend on the machine's vector width.
inline uint64_t checksum(const void* data, size_t bytes) {
  constexpr uint64_t kPrime = 0x9e3779b97f4a7c15u;
  const char* at = static_cast<const char*>(data);
  uint64_t sum = bytes * kPrime;
  for (; bytes > 0; bytes -= std::min<size_t>(bytes, 8)) {
    uint64_t word = 0;
    std::memcpy(&word, at, std::min<size_t>(bytes, 8));
    at += std::min<size_t>(bytes, 8);
    sum = (sum ^ word) * kPrime;
    sum ^= sum >> 29;
  }
  return sum;
}

struct CallRecord {
  uint64_t number = 0;
  std::string group, label;
  const char* operation = "";
  DLDataType dtype{};
  int64_t bytes = 0, row_elements = 0;
  uint32_t flags = 0;
  uint64_t site = 0;
  std::chrono::steady_clock::time_point start;
};

// The file that all groups of a process write to. [any-thread]
class TraceFile {
 public:
  TraceFile(const std::string& path, bool checksums) : checksums_(checksums), file_(std::fopen(path.c_str(), "w")) {
    if (file_ == nullptr) fail(TSR_PERMISSION_DENIED, "trace: cannot write ", path, ": ", std::strerror(errno));
  }
  ~TraceFile() { std::fclose(file_); }
  TraceFile(const TraceFile&) = delete;

  bool checksums() const { return checksums_; }
  uint64_t next_number() {
    const std::lock_guard lock(mutex_);
    return next_++;
  }
  // `sum` is null if checksums are off. `failure` is null if the call succeeded.
  void add(const CallRecord& call, const uint64_t* sum, const Failure* failure) {
    const auto now = std::chrono::steady_clock::now();
    const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
    char numbers[400];
    std::snprintf(numbers, sizeof(numbers),
                  "\"dtype\": \"%s\", \"bytes\": %" PRId64 ", \"flags\": %" PRIu32 ", \"site\": \"%016" PRIx64
                  "\", \"row_elements\": %" PRId64 ", \"start_s\": %.6f, \"s\": %.9f, \"result\": %d",
                  name_of(call.dtype).c_str(), call.bytes, call.flags, call.site, call.row_elements,
                  seconds(call.start - begin_), seconds(now - call.start), failure == nullptr ? 0 : failure->code());
    std::string line = "{\"n\": " + std::to_string(call.number) + ", \"group\": \"" + call.group + "\", \"op\": \"" +
                       call.operation + "\", \"label\": " + quoted(call.label) + ", " + numbers;
    if (sum != nullptr) {
      std::snprintf(numbers, sizeof(numbers), ", \"sum\": \"%016" PRIx64 "\"", *sum);
      line += numbers;
    }
    if (failure != nullptr) line += ", \"error\": " + quoted(failure->what());
    line += "}\n";
    const std::lock_guard lock(mutex_);
    std::fwrite(line.data(), 1, line.size(), file_);
    if (failure != nullptr) std::fflush(file_);  // the process may end soon
  }
  void flush() {
    const std::lock_guard lock(mutex_);
    std::fflush(file_);
  }

 private:
  static std::string name_of(DLDataType type) {
    if (type.bits == 0) return "";
    const char* kind = type.code == kDLFloat  ? "float"
                       : type.code == kDLInt  ? "int"
                       : type.code == kDLUInt ? "uint"
                                              : "type";
    return kind + std::to_string(int{type.bits});
  }
  static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      const bool is_control = static_cast<unsigned char>(c) < 0x20;
      if (c == '"' || c == '\\') out += '\\';
      out += is_control ? '?' : c;
    }
    return out + '"';
  }

  const bool checksums_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  uint64_t next_ = 0;
  std::FILE* file_;
};

}  // namespace extras
