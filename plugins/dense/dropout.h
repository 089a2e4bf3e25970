// Values that training drops: an element is set to 0 with some probability, and otherwise divided by one minus it.
#pragma once

#include "loops.h"
#include "tessera/sdk/module.h"

namespace tessera_dense {

// Reads the option `name`, a probability; throws Failure unless it is at least 0 and below 1.
double read_rate(tessera::sdk::Options& options, const char* name, double otherwise);

// Drops values with probability `rate`. Whether value i is dropped is a function of the call's seed and step, of
// `stream`, which tells a layer's draws apart, and of i alone. So backward drops what forward has dropped, and nothing
// is kept between them.
class Dropper {
 public:
  Dropper(const tessera::sdk::ModuleCall& call, uint64_t stream, double rate);
  // The values are [first, first + n) of the stream; `from` and `to` may be equal. [any-thread]
  void drop(int64_t first, int64_t n, const float* from, float* to) const {
    const uint32_t keys[] = {static_cast<uint32_t>(key_) + static_cast<uint32_t>(first),
                             static_cast<uint32_t>(key_ >> 32)};
    loops_.drop(n, keys, least_, scale_, from, to);
  }

 private:
  const RowLoops& loops_;
  uint64_t key_;
  uint32_t least_;
  float scale_;
};

}  // namespace tessera_dense
