// Memory that two ranks of one host share, and how they find out that they can.
//
// The memory has no name: the lower rank makes it (memfd_create, mode 0600, sealed against any change of its size) and
// tells the other, over their authenticated connection, where in /proc it may be opened. The kernel asks for the rights
// of a debugger there, so another user's process cannot, and nothing is left behind whatever becomes of the two. Where
// hosts only look alike (containers, process namespaces) something else or nothing is opened: each side therefore
// proves to the other that it sees the same memory, by a random number written there and told over the connection.
//
// If the kernel also lets one read the other's memory, that is found out in the same way, and large pieces are lent.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "link.h"
#include "process.h"
#include "ring.h"
#include "tessera/sdk/pair_link.h"
#include "wire.h"

namespace tessera::tcp {

// Before the rings' data, in a page of its own. Index 0: the lower rank, its writing and its sleep.
struct SharedState {
  uint64_t magic = 0;
  Nonce nonces[2]{};
  RingState rings[2];
  // The events that the rank waits for while it sleeps: bits of Wake. The rank that makes one come true clears this and
  // rings.
  struct alignas(128) Sleep {
    std::atomic<uint32_t> wants{0};
  } sleeps[2];
  // Set by a rank before it takes back what it has lent: what is fetched from then on counts for nothing.
  std::atomic<uint32_t> renounced[2]{};
};

using sdk::Wake;

// One rank's end.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // New memory, with two rings of `capacity` bytes. Empty where the system does not lend any.
  static SharedMemory make(size_t capacity, Fd* file);
  // Another process's, behind an open file. Empty where that is not what make() makes.
  static SharedMemory open(const Fd& file, size_t capacity);

  explicit operator bool() const { return state_ != nullptr; }
  SharedState& state() const { return *state_; }
  // The findings of share_memory() about the two processes.
  struct Lending {
    std::unique_ptr<Nonce> badge;  // this process's
    Process other;
    bool lends = false;  // the other can read this process
  } lending;
  // Rank `lower`: the one that made it.
  RingWriter writer(bool lower) const { return {&state_->rings[lower ? 0 : 1], data(lower ? 0 : 1), capacity_}; }
  RingReader reader(bool lower) const { return {&state_->rings[lower ? 1 : 0], data(lower ? 1 : 0), capacity_}; }

 private:
  SharedMemory(void* memory, size_t capacity) : state_(static_cast<SharedState*>(memory)), capacity_(capacity) {}
  char* data(size_t ring) const;

  SharedState* state_ = nullptr;
  size_t capacity_ = 0;
};

struct SharingOptions {
  int32_t rank = 0;
  bool enabled = true;
  bool single_copy = true;     // where the kernel allows it
  std::vector<int32_t> hosts;  // by rank: only ranks of one number try
  std::vector<int32_t> names;  // by rank, for messages
  double timeout_s = 30;       // for messages
  std::chrono::steady_clock::time_point deadline;
};

// The memory shared with each rank; empty if there is none and data takes the socket. Every rank of the group
// calls it before any data was sent over the links. Failure where a rank dies or does not answer in time.
std::vector<SharedMemory> share_memory(const std::vector<Link>& links, const SharingOptions& options);

}  // namespace tessera::tcp
