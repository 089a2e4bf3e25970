// Dropout: an element is set to 0 with probability `rate`, and otherwise divided by 1 - rate.
#pragma once

#include "loops.h"
#include "tessera/sdk/module.h"

namespace tessera_dense {

// Reads the option `name`, a probability; throws Failure unless it is at least 0 and below 1.
double read_rate(tessera::sdk::Options& options, const char* name, double otherwise);

// Drops values with probability `rate`. Only the call's seed and step, `stream` and i decide if value i is dropped; a
// layer with several dropouts gives each its own stream. So backward drops the same values as forward, and nothing is
// kept between them.
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
