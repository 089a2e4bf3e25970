// Runs the introduction on one rank and on two. The program checks itself and fails if one of its claims is false.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace {

using testing::EndsWith;
using testing::HasSubstr;

std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  if (pipe == nullptr) return "";
  std::string text;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, n);
  EXPECT_EQ(::pclose(pipe), 0) << text;
  return text;
}

TEST(Introduction, IsTrueOnOneRank) {
  const std::string text = output_of(TESSERA_INTRODUCTION);
  EXPECT_THAT(text, HasSubstr("over 1 rank(s)"));
  EXPECT_THAT(text, EndsWith("All of this is true.\n"));
}

TEST(Introduction, IsTrueOnTwoRanksOverTcp) {
  const std::string text = output_of(TESSERA_PROGRAM " launch -n 2 -- " TESSERA_INTRODUCTION);
  EXPECT_THAT(text, HasSubstr("over 2 rank(s), transport tcp"));
  EXPECT_THAT(text, HasSubstr("film    | row_wise"));
  EXPECT_THAT(text, EndsWith("All of this is true.\n"));
}

}  // namespace
