// The messages that open a connection: the caller's identity, and the proofs of both sides.
//
// Integers travel in native byte order (little endian on every supported machine; otherwise the magics would not
// match). Everything read from the network has a fixed size, or a length checked against a bound.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "address.h"
#include "tessera/abi/collective.h"

namespace tessera::tcp {

using Nonce = std::array<uint8_t, 16>;
using GroupId = std::array<uint8_t, 16>;
using Mac = std::array<uint8_t, 32>;

inline constexpr uint64_t kHelloMagic = 0x3230504354525354;  // "TSRTCP02"
inline constexpr int32_t kMaxRanks = 4096;

// Up to this many ranks, rank 0 sends every rank everybody's address. In larger groups it sends each rank only its
// teacher's address. The list goes down this tree, in which each rank teaches two others.
inline constexpr int32_t kToldByRank0 = 16;
constexpr int32_t teacher_of(int32_t rank) { return (rank - 1) / 2; }

// The purpose of a connection.
enum class Purpose : uint32_t { kRendezvous = 0, kData = 1, kControl = 2, kAddresses = 3 };

// The first message of every connection, from the side that connects.
struct Hello {
  uint64_t magic = kHelloMagic;
  Nonce nonce{};
  GroupId group{};  // zero for the rendezvous, when the group has no id yet
  Purpose purpose = Purpose::kRendezvous;
  int32_t rank = 0;    // the caller's rank
  int32_t target = 0;  // the rank being called
  int32_t world_size = 0;
  int32_t port = 0;  // the port on which the caller listens for the mesh
  uint32_t reserved = 0;
};
static_assert(sizeof(Hello) == 64);

// Precedes the hello if the connection goes through a proxy (proxy.h): the destination, and the two ranks' numbers in
// the job.
struct Route {
  static constexpr uint64_t kMagic = 0x3130585054525354;  // "TSRTPX01"
  uint64_t magic = kMagic;
  Address to;
  int32_t caller = 0;
  int32_t called = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(Route) == 40);
// The address of the proxy to dial instead of each rank's own address; unset if there is no proxy.
using Proxied = std::optional<Address>;

// HMAC-SHA-256, keyed with the job's token, over the role, the hello, the called address and the called side's nonce.
// Each side sends its own. The roles differ, so that a proof cannot be sent back. Each side takes the address from its
// own end of the connection, so that a proof cannot be forwarded to another door.
enum class Role : uint8_t { kCaller = 'c', kCalled = 's' };
Mac proof(std::string_view token, Role role, const Hello& hello, const Address& called, const Nonce& challenge);
bool equal(const Mac& a, const Mac& b);  // in constant time
Nonce random_nonce();                    // from the system's random source
// The id of a group split off `parent`; the same on all its members.
GroupId child_id(const GroupId& parent, uint64_t split, int32_t color);

}  // namespace tessera::tcp
