// Where a rank listens, as it travels and as it is kept.
#pragma once

#include <array>
#include <cstdint>

namespace tessera::tcp {

struct Address {
  std::array<uint8_t, 16> ip{};  // IPv4: the first four bytes
  uint16_t port = 0;
  uint8_t v6 = 0;
  uint8_t reserved = 0;
};
static_assert(sizeof(Address) == 20);

}  // namespace tessera::tcp
