// The state that the cpu kernel's forward keeps for backward, in memory that only grows.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/sdk/host.h"
#include "tessera/sdk/kernel.h"

namespace tessera_cpu {

namespace sdk = tessera::sdk;

// Memory that is kept between calls. After the largest batch, it allocates nothing more.
class Scratch {
 public:
  explicit Scratch(sdk::Host host) : host_(host) {}

  // Returns at least `bytes` bytes, aligned to 64. Previous content is lost.
  char* take(int64_t bytes) {
    if (static_cast<uint64_t>(bytes) > buffer_.bytes()) {
      buffer_ = sdk::Buffer();  // freed first, because both together would need twice the memory
      buffer_ = sdk::Buffer(host_, static_cast<uint64_t>(bytes + bytes / 4 + 4096));
    }
    return buffer_.data<char>();
  }
  char* data() const { return buffer_.data<char>(); }
  uint64_t bytes() const { return buffer_.bytes(); }

 private:
  sdk::Host host_;
  sdk::Buffer buffer_;
};

struct Context {
  explicit Context(sdk::Host host) : winners(host), gradients(host) {}

  static Context& of(tsr_context* raw) { return *reinterpret_cast<Context*>(raw); }
  tsr_context* raw() { return reinterpret_cast<tsr_context*>(this); }

  // For MAX pooling: per feature, the index in `winners` of its positions, int32 [bags, dim]; -1 for other poolings.
  std::vector<int64_t> first_winner;
  int32_t* winners_of(uint32_t feature) const {
    return reinterpret_cast<int32_t*>(winners.data()) + first_winner[feature];
  }
  Scratch winners;
  // backward_rows: rows and values of all tables, and the shapes of their views.
  Scratch gradients;
  std::vector<int64_t> shapes;
};

}  // namespace tessera_cpu
