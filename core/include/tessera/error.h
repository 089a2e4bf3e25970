// tessera/error.h - two kinds of failure: Error for the world's mistakes, TESSERA_CHECK for the programmer's.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tessera/abi/base.h"

namespace tessera {

// The ABI's codes (abi/base.h).
enum class Code : int32_t {
  kOk = TSR_OK,
  kCancelled = TSR_CANCELLED,
  kUnknown = TSR_UNKNOWN,
  kInvalidArgument = TSR_INVALID_ARGUMENT,
  kDeadlineExceeded = TSR_DEADLINE_EXCEEDED,
  kNotFound = TSR_NOT_FOUND,
  kAlreadyExists = TSR_ALREADY_EXISTS,
  kPermissionDenied = TSR_PERMISSION_DENIED,
  kResourceExhausted = TSR_RESOURCE_EXHAUSTED,
  kFailedPrecondition = TSR_FAILED_PRECONDITION,
  kAborted = TSR_ABORTED,
  kOutOfRange = TSR_OUT_OF_RANGE,
  kUnimplemented = TSR_UNIMPLEMENTED,
  kInternal = TSR_INTERNAL,
  kUnavailable = TSR_UNAVAILABLE,
  kDataLoss = TSR_DATA_LOSS,
};

// A failure of the world: bad input, a missing file, a dead peer. The text is one sentence for a person.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message, int rank = -1) : std::runtime_error(message), code_(code), rank_(rank) {}
  Code code() const { return code_; }
  int rank() const { return rank_; }  // the job's rank that caused it; -1: not known

 private:
  Code code_;
  int rank_;
};

// A type-erased argument of str_cat() and fail(), so that their many callers only list arguments, and the printing code
// exists once per type. Borrows the argument.
class TextPart {
 public:
  TextPart(const char* text) : value_(text), print_(print_text) {}
  template <class T>
  TextPart(const T& value) : value_(&value), print_(print_value<T>) {}
  friend std::ostream& operator<<(std::ostream& out, const TextPart& part) {
    part.print_(out, part.value_);
    return out;
  }

 private:
  static void print_text(std::ostream& out, const void* value) { out << static_cast<const char*>(value); }
  template <class T>
  static void print_value(std::ostream& out, const void* value) {
    out << *static_cast<const T*>(value);
  }

  const void* value_;
  void (*print_)(std::ostream&, const void*);
};

// Prints all parts one after the other.
[[gnu::noinline]] inline std::string cat_parts(std::initializer_list<TextPart> parts) {
  std::ostringstream out;
  for (const TextPart& part : parts) out << part;
  return out.str();
}
template <class... Parts>
std::string str_cat(const Parts&... parts) {
  return cat_parts({TextPart(parts)...});
}

// Does throw Error(code, str_cat(parts...)).
[[noreturn]] [[gnu::noinline]] inline void fail_parts(Code code, std::initializer_list<TextPart> parts) {
  throw Error(code, cat_parts(parts));
}
template <class... Parts>
[[noreturn]] void fail(Code code, const Parts&... parts) {
  fail_parts(code, {TextPart(parts)...});
}

// The caller's half of an ABI call: `AbiError e; e.check(api->f(..., e.out()), "tcp: connect");`
class AbiError {
 public:
  AbiError() : raw_ TSR_ERROR_INIT {}
  tsr_error* out() { return &raw_; }
  // Throws an Error with `what` before the plugin's message, unless the code is TSR_OK.
  void check(tsr_code code, std::string_view what = "") const {
    if (code == TSR_OK) return;
    std::string text(what);
    if (!text.empty()) text += ": ";
    if (said().empty())
      text += str_cat("failed with code ", code);
    else
      text += said();
    throw Error(static_cast<Code>(code), text, raw_.rank);
  }
  // The plugin's message; empty: it gave none. Without a NUL it ends with the array.
  std::string_view said() const { return {raw_.message, ::strnlen(raw_.message, sizeof(raw_.message))}; }

 private:
  tsr_error raw_;
};

}  // namespace tessera

// A programmer's mistake: prints and aborts.
#define TESSERA_CHECK(condition, ...)                                                      \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      std::fprintf(stderr, "%s:%d: check failed: %s %s\n", __FILE__, __LINE__, #condition, \
                   ::tessera::str_cat("" __VA_ARGS__).c_str());                            \
      std::abort();                                                                        \
    }                                                                                      \
  } while (0)
