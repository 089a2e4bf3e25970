// The address on which a rank listens, in the form in which it is sent and stored.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tessera::tcp {

struct Address {
  std::array<uint8_t, 16> ip{};  // IPv4: the first four bytes
  uint16_t port = 0;
  uint8_t v6 = 0;
  uint8_t reserved = 0;
};
static_assert(sizeof(Address) == 20);

// The addresses of a group, by rank.
struct Members {
  std::vector<Address> addresses;
  std::vector<int32_t> names;  // their ranks in the whole job, which messages use
};

}  // namespace tessera::tcp
