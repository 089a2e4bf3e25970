// For tests: the sentence with which a call refuses.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tessera/error.h"

namespace tessera::test {

// Returns the text of the exception that `call` throws; `accepted` if it throws none.
template <class Exception = Error, class Call>
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
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return accepted;
}

}  // namespace tessera::test
