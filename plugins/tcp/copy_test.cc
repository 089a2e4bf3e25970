#include "copy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera::tcp {
namespace {

// Whole lines are streamed; bytes before and after them are copied normally.
TEST(CopyPastCache, IsACopyWhereverItBeginsAndEnds) {
  constexpr size_t kRoom = 1024;
  std::vector<char> from(kRoom);
  for (size_t i = 0; i < kRoom; ++i) from[i] = static_cast<char>(i * 31 + 7);
  for (const size_t to_at : {0, 1, 16, 63, 64, 65}) {
    for (const size_t from_at : {0, 1, 32, 63}) {
      for (const size_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 129, 640, 900}) {
        std::string expected(kRoom, '.'), to(kRoom, '.');
        expected.replace(to_at, bytes, from.data() + from_at, bytes);
        copy_past_cache(to.data() + to_at, from.data() + from_at, bytes);
        ASSERT_EQ(to, expected) << bytes << " bytes from " << from_at << " to " << to_at;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::tcp
