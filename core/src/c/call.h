// The frame of all functions in the C headers. No exception leaves it, messages go into the caller's tsr_error, and
// structs are copied as far as both sides know them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "tessera/error.h"

namespace tessera::c {

inline tsr_code report(tsr_error* err, Code code, const char* text, int rank = -1) {
  if (err == nullptr) return static_cast<tsr_code>(code);
  constexpr size_t kMessageAt = offsetof(tsr_error, message);
  if (err->struct_size >= kMessageAt) {
    err->code = static_cast<tsr_code>(code);
    err->rank = rank;
  }
  if (err->struct_size > kMessageAt) {
    const size_t room = std::min<size_t>(err->struct_size, sizeof(tsr_error)) - kMessageAt;
    size_t length = std::min(std::strlen(text), room - 1);
    // A text that is too long is cut before a whole UTF-8 character.
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
    std::memcpy(err->message, text, length);
    err->message[length] = '\0';
  }
  return static_cast<tsr_code>(code);
}

template <class Body>
tsr_code guarded(tsr_error* err, const Body& body) noexcept {
  try {
    body();
    return TSR_OK;
  } catch (const Error& e) {
    return report(err, e.code(), e.what(), e.rank());
  } catch (const std::bad_alloc&) {
    return report(err, Code::kResourceExhausted, "there is not enough memory");
  } catch (const std::exception& e) {
    return report(err, Code::kInternal, e.what());
  } catch (...) {
    return report(err, Code::kInternal, "an exception of unknown type");
  }
}

inline void need(const void* pointer, const char* name) {
  if (pointer == nullptr) fail(Code::kInvalidArgument, name, " is NULL");
}

// Copies the part of the struct that both sides know. Members that only the caller knows become 0. struct_size stays
// the caller's.
template <class T>
void copy_out(const T& from, T* to, const char* name) {
  need(to, name);
  if (to->struct_size < sizeof(uint32_t)) fail(Code::kInvalidArgument, name, "->struct_size is not set");
  const uint32_t size = to->struct_size;
  std::memcpy(to, &from, std::min<size_t>(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(reinterpret_cast<char*>(to) + sizeof(T), 0, size - sizeof(T));
  to->struct_size = size;
}

// Refuses a caller's struct that asks for more than this library knows. `tail` has the members after the known ones.
void check_known(std::span<const char> tail, uint32_t high_flags, uint32_t reserved, const char* name);

// Copies a caller's struct, with zeros where it is shorter. A longer one must have zeros in the members that only the
// caller knows, and so must reserved members, because a later version may give them a meaning.
template <class T>
T copy_in(const T* from, const char* name) {
  T out{};
  need(from, name);
  const uint32_t size = from->struct_size;
  if (size < sizeof(uint32_t)) fail(Code::kInvalidArgument, name, "->struct_size is not set");
  const size_t known = std::min<size_t>(size, sizeof(T));
  std::memcpy(&out, from, known);
  uint32_t high_flags = 0, reserved = 0;
  if constexpr (requires { out.flags; }) high_flags = out.flags & TSR_MUST_UNDERSTAND;
  if constexpr (requires { out.reserved; }) reserved = out.reserved;
  check_known({reinterpret_cast<const char*>(from) + known, size - known}, high_flags, reserved, name);
  return out;
}

// The same for options that may be left out.
template <class T>
T copy_if_given(const T* from, const char* name) {
  return from == nullptr ? T{} : copy_in(from, name);
}

// Makes an object for the caller. *out is NULL unless `make` returns.
template <class T, class Make>
tsr_code made(T** out, const char* name, tsr_error* err, const Make& make) noexcept {
  return guarded(err, [&] {
    need(out, name);
    *out = nullptr;
    *out = make();
  });
}

// Returns element i, or fails: "there is no feature 7: the model has 3".
template <class List>
const auto& at(const List& all, uint32_t i, const char* what, const char* owner) {
  if (i >= all.size()) fail(Code::kOutOfRange, "there is no ", what, " ", i, ": the ", owner, " has ", all.size());
  return all[i];
}

}  // namespace tessera::c
