#include "config/splitmix64.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

// The first numbers of seed 1234567 in reference implementations.
TEST(SplitMix64, GivesThePublishedNumbers) {
  SplitMix64 random(1234567);
  for (const uint64_t want :
       {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u, 16408922859458223821u})
    EXPECT_EQ(random.bits(), want);
}

}  // namespace
}  // namespace tessera
