// For tests: the sentence with which a call refuses.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "tessera/error.h"

namespace tessera::test {

// Returns the text of the exception that `call` throws; `accepted` if it throws none.
template <class Exception = tessera::Error, class Call>
std::string refusal(const Call& call, const char* accepted = "no error") {
  try {
    call();
  } catch (const Exception& e) {
    return e.what();
  }
  return accepted;
}

// Does the same, and expects this code.
template <class Call>
std::string refusal(Code code, const Call& call, const char* accepted = "no error") {
  try {
    call();
  } catch (const tessera::Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return accepted;
}

// Returns the message and code of the error that `call` throws.
inline std::pair<std::string, Code> failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const tessera::Error& e) {
    return {e.what(), e.code()};
  }
  return {"no error", Code::kOk};
}

}  // namespace tessera::test
