// Compares the bytes that the tables' exchanges sent with the plan's estimate.
#pragma once

#include <nlohmann/json.hpp>

#include "tessera/process_group.h"
#include "tessera/traffic.h"

namespace tessera {

// Bytes per step, summed over ranks: {"ids": {"in_host": {"sent": x, "planned": y}, "across_hosts": {...}}, "rows":
// ..., "gradients": ...}. `sent`: by this rank in `steps` steps. `planned`: for this rank in one step. Collective.
nlohmann::ordered_json traffic_report(const ProcessGroup& group, const ExchangeBytes<int64_t>& sent, double steps,
                                      const ExchangeBytes<double>& planned);

}  // namespace tessera
