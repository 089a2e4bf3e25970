// Triton's C API with exceptions: a failed call throws, and an exported function returns what was thrown.
#pragma once

#include <triton/core/tritonbackend.h>
#include <triton/core/tritonserver.h>

#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>

#include "tessera/infer.h"

namespace tessera_triton {

class Failure : public std::runtime_error {
 public:
  Failure(TRITONSERVER_Error_Code code, const std::string& text) : std::runtime_error(text), code_(code) {}
  TRITONSERVER_Error_Code code() const { return code_; }
  TRITONSERVER_Error* error() const { return TRITONSERVER_ErrorNew(code_, what()); }

 private:
  TRITONSERVER_Error_Code code_;
};

template <class... Parts>
std::string joined(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Fails because of what a request or a configuration says.
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw Failure(TRITONSERVER_ERROR_INVALID_ARG, joined(parts...));
}

// Throws the error, if there is one, and deletes it.
inline void check(TRITONSERVER_Error* error) {
  if (error == nullptr) return;
  const TRITONSERVER_Error_Code code = TRITONSERVER_ErrorCode(error);
  const std::string text = TRITONSERVER_ErrorMessage(error);
  TRITONSERVER_ErrorDelete(error);
  throw Failure(code, text);
}

// Deletes the error of a call whose failure changes nothing, such as a report of times.
inline void ignore(TRITONSERVER_Error* error) {
  if (error != nullptr) TRITONSERVER_ErrorDelete(error);
}

// Throws the error of a call of tessera/infer.h.
inline void check(tsr_code code, const tsr_error& error) {
  if (code == TSR_OK) return;
  const bool wrong = code == TSR_INVALID_ARGUMENT || code == TSR_OUT_OF_RANGE;
  throw Failure(wrong                     ? TRITONSERVER_ERROR_INVALID_ARG
                : code == TSR_NOT_FOUND   ? TRITONSERVER_ERROR_NOT_FOUND
                : code == TSR_UNAVAILABLE ? TRITONSERVER_ERROR_UNAVAILABLE
                                          : TRITONSERVER_ERROR_INTERNAL,
                error.message);
}

// Runs the body of an exported function; no exception crosses.
template <class Body>
TRITONSERVER_Error* guarded(const Body& body) {
  try {
    body();
    return nullptr;
  } catch (const Failure& e) {
    return e.error();
  } catch (const std::exception& e) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, e.what());
  }
}

}  // namespace tessera_triton
