// TorchRec's sharders, and the collections and devices for which it offers them.
#pragma once

#include <span>

namespace tessera::torchrec {

struct KnownSharder {
  const char* sharding_type;
  bool only_when_asked;
  bool cpu_bags, cpu_sequences, accelerator_bags, accelerator_sequences;  // under PlannerOptions::torchrec_limits
};

// The limits in TorchRec's order.
std::span<const KnownSharder> known_sharders();

bool within_limits(const KnownSharder& known, bool sequences, bool accelerator);

}  // namespace tessera::torchrec
