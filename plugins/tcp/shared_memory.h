// Memory that two ranks of one host share, and how they find out that they can.
//
// The memory has no name: the lower rank makes it (memfd_create, mode 0600, sealed against any change of its size) and
// tells the other, over their authenticated connection, where in /proc it can be opened. The kernel requires a
// debugger's rights there, so another user's process cannot open it. Nothing is left behind, whatever happens to the
// two. If hosts only look alike (containers, process namespaces), something else or nothing is opened. Each side
// therefore proves that it sees the same memory: it writes a random number there and sends it over the connection.
//
// The same exchange finds out if the kernel lets one process read the other's memory; if so, large pieces are lent.
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

// Precedes the rings' data, in a page of its own. Index 0 belongs to the lower rank, which writes to ring 0.
struct SharedState {
  uint64_t magic = 0;
  Nonce nonces[2]{};
  RingState rings[2];
  // The events that a rank waits for while it sleeps, as bits of Wake. The other rank clears this and rings when it
  // causes one.
  struct alignas(128) Sleep {
    std::atomic<uint32_t> wants{0};
  } sleeps[2];
  // Set by a rank before it takes back what it has lent; data fetched afterwards is invalid.
  std::atomic<uint32_t> renounced[2]{};
};

using sdk::Wake;

// One rank's end of the memory.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // New memory with two rings of `capacity` bytes. Empty if the system provides none.
  static SharedMemory make(size_t capacity, Fd* file);
  // Another process's memory, from an open file. Empty if the file was not made by make().
  static SharedMemory open(const Fd& file, size_t capacity);

  explicit operator bool() const { return state_ != nullptr; }
  SharedState& state() const { return *state_; }
  // The findings of share_memory() about the two processes.
  struct Lending {
    std::unique_ptr<Nonce> badge;  // this process's
    Process other;
    bool lends = false;  // true if the other rank can read this process
  } lending;
  // `lower`: for the rank that made the memory.
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
  bool single_copy = true;     // if the kernel allows it
  std::vector<int32_t> hosts;  // per rank; only ranks with equal numbers try to share
  std::vector<int32_t> names;  // per rank, for messages
  double timeout_s = 30;       // for messages
  std::chrono::steady_clock::time_point deadline;
};

// Returns the memory shared with each rank; it is empty for ranks that share none, which use the socket. Every rank of
// the group calls this before any data is sent over the links. Throws Failure if a rank dies or does not answer in
// time.
std::vector<SharedMemory> share_memory(const std::vector<Link>& links, const SharingOptions& options);

}  // namespace tessera::tcp
