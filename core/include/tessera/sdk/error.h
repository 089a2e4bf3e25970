// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/error.h - errors of a plugin: throw Failure inside; guard() turns it into a tsr_code at the border.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tessera/abi/base.h"

namespace tessera::sdk {
inline namespace v1 {

// One sentence for a person: what failed, in which component, and what to do.
class Failure : public std::runtime_error {
 public:
  // `rank`: the rank at fault (tsr_error::rank); -1: unknown.
  Failure(tsr_code code, const std::string& text, int32_t rank = -1)
      : std::runtime_error(text), code_(code), rank_(rank) {}
  tsr_code code() const { return code_; }
  int32_t rank() const { return rank_; }

 private:
  tsr_code code_;
  int32_t rank_;
};

// Throws a Failure with all parts printed one after the other.
template <class... Parts>
[[noreturn]] void fail(tsr_code code, const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  throw Failure(code, out.str());
}

// Fills the caller's error. Text that is too long is cut at a whole UTF-8 character. Returns `code`.
inline tsr_code set_error(tsr_error* err, tsr_code code, std::string_view text, int32_t rank = -1) noexcept {
  constexpr size_t kHead = offsetof(tsr_error, message);
  if (err == nullptr || err->struct_size <= kHead) return code;
  const size_t capacity = std::min<size_t>(err->struct_size - kHead, sizeof(err->message)) - 1;
  size_t length = std::min(text.size(), capacity);
  while (length < text.size() && length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  std::memcpy(err->message, text.data(), length);
  err->message[length] = '\0';
  err->code = code;
  err->rank = rank;
  return code;
}

// Throws Failure(TSR_UNIMPLEMENTED) if `flags` of `what` have a bit that must be understood (abi/base.h) and is not in
// `known`.
inline void check_flags(uint32_t flags, uint32_t known, const char* what) {
  if ((flags & TSR_MUST_UNDERSTAND & ~known) != 0)
    fail(TSR_UNIMPLEMENTED, what, " has flags ", flags, ", which this plugin does not know");
}

// Runs `body` and lets no exception pass. If `body` returns a tsr_code (and fills `err`), it returns that code.
template <class Body>
tsr_code guard(tsr_error* err, Body&& body) noexcept {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Body>>) {
      std::forward<Body>(body)();
      return TSR_OK;
    } else {
      return std::forward<Body>(body)();
    }
  } catch (const Failure& failure) {
    return set_error(err, failure.code() == TSR_OK ? TSR_INTERNAL : failure.code(), failure.what(), failure.rank());
  } catch (const std::bad_alloc&) {
    return set_error(err, TSR_RESOURCE_EXHAUSTED, "out of memory");
  } catch (const std::exception& e) {
    return set_error(err, TSR_INTERNAL, e.what());
  } catch (...) {
    return set_error(err, TSR_INTERNAL, "an exception of unknown type");
  }
}

// The caller's half, for plugins that call the host or a wrapped component: `Call c; c.check(api->f(..., c.err()));`
class Call {
 public:
  tsr_error* err() { return &err_; }
  // Throws Failure with the callee's message unless `code` is TSR_OK.
  void check(tsr_code code) const {
    if (code == TSR_OK) return;
    const std::string said(err_.message, ::strnlen(err_.message, sizeof(err_.message)));  // the NUL may be missing
    throw Failure(code, said.empty() ? "failed with code " + std::to_string(code) : said, err_.rank);
  }

 private:
  tsr_error err_ TSR_ERROR_INIT;
};

}  // namespace v1
}  // namespace tessera::sdk
