#include "wiring/messages.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Messages, APayloadIsItsIdsWeightsAndWordsInEights) {
  EXPECT_EQ(payload_bytes<int64_t>(3, 0, 4), 40);
  EXPECT_EQ(payload_bytes<int64_t>(3, 3, 4), 56);  // 52, padded
  EXPECT_EQ(payload_bytes<int64_t>(0, 0, 1), 8);
  EXPECT_EQ(payload_bytes(3.0, 3.0, 4.0), 56);
  EXPECT_EQ(payload_bytes(0.5, 0.0, 0.0), 8);
  EXPECT_EQ(presence_words(int64_t{32}), 2);
  EXPECT_EQ(presence_words(int64_t{33}), 3);
  EXPECT_EQ(presence_words(32.5), 3);
}

TEST(Messages, SmallPayloadsHaveRoomBehindHeaders) {
  EXPECT_EQ(inline_payload_for(0, 2), 0);
  EXPECT_EQ(inline_payload_for(1000, 2), 1280);  // an eighth more, in units of 256
  // All headers of a rank together carry at most 256 KiB.
  EXPECT_EQ(inline_payload_for(200 << 10, 2), 225 << 10);
  EXPECT_EQ(inline_payload_for(200 << 10, 3), 0);
  EXPECT_EQ(inline_payload_for(256 << 10, 2), 0);
  EXPECT_GT(inline_payload_for(1000, 1), 0);
}

}  // namespace
}  // namespace tessera
