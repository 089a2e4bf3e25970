// Runs the introduction on one rank and on two. The program checks itself and fails if one of its claims is false.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shell.h"

namespace {

using testing::EndsWith;
using testing::HasSubstr;
using tessera::test::output_of;

TEST(Introduction, IsTrueOnOneRank) {
  const std::string text = output_of(TESSERA_EXAMPLE " 2>&1");
  EXPECT_THAT(text, HasSubstr("over 1 rank(s)"));
  EXPECT_THAT(text, EndsWith("All of this is true.\n"));
}

TEST(Introduction, IsTrueOnTwoRanksOverTcp) {
  const std::string text = output_of(TESSERA_PROGRAM " launch -n 2 -- " TESSERA_EXAMPLE " 2>&1");
  EXPECT_THAT(text, HasSubstr("over 2 rank(s), transport tcp"));
  EXPECT_THAT(text, HasSubstr("film    | row_wise"));
  EXPECT_THAT(text, EndsWith("All of this is true.\n"));
}

}  // namespace
