#include "planner/torchrec/limits.h"

namespace tessera::torchrec {

namespace {

constexpr KnownSharder kKnownSharders[] = {
    {"data_parallel", false, true, true, true, true}, {"table_wise", false, true, true, true, true},
    {"column_wise", false, true, true, true, true},   {"table_column_wise", false, true, false, true, false},
    {"row_wise", false, false, true, true, true},     {"table_row_wise", false, false, false, true, false},
    {"grid_shard", true, false, false, true, false},
};

}  // namespace

std::span<const KnownSharder> known_sharders() { return kKnownSharders; }

bool within_limits(const KnownSharder& known, bool sequences, bool accelerator) {
  if (accelerator) return sequences ? known.accelerator_sequences : known.accelerator_bags;
  return sequences ? known.cpu_sequences : known.cpu_bags;
}

}  // namespace tessera::torchrec
