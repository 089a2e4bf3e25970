// Runs the introduction on one rank and on two. The program checks itself and fails if one of its claims is false.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shell.h"

namespace {

using tessera::test::output_of;
using testing::EndsWith;
using testing::HasSubstr;

TEST(Introduction, IsTrueOnOneRank) {
  EXPECT_THAT(output_of(TESSERA_EXAMPLE " 2>&1"),
              testing::AllOf(HasSubstr("over 1 rank(s)"), EndsWith("All of this is true.\n")));
}

TEST(Introduction, IsTrueOnTwoRanksOverTcp) {
  EXPECT_THAT(output_of(TESSERA_PROGRAM " launch -n 2 -- " TESSERA_EXAMPLE " 2>&1"),
              testing::AllOf(HasSubstr("over 2 rank(s), transport tcp"), HasSubstr("film    | row_wise"),
                             EndsWith("All of this is true.\n")));
}

}  // namespace
