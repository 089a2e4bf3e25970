// The measurements of a calibration, part by part. All functions are collective over the group of `trials`.
#pragma once

#include <memory>
#include <optional>

#include "calibration/trials.h"
#include "tessera/calibration.h"
#include "tessera/runtime.h"

namespace tessera {

// The kernel plugin's lookups and updates over row and table size, in tables of float32 with row-wise Adagrad.
KernelFigures measure_kernel(const Runtime& runtime, const CalibrationOptions& options, const Trials& trials);

// Collectives over sizes. The group has at least two ranks.
LinkFigures measure_link(const ProcessGroup& group, const Trials& trials);

// The cost of the parts in a step. `machine` has figures of a kernel, of dense layers and of the link inside the host,
// from loops over each of them: they are corrected; and it gets those of the core's own work around the exchanges.
// `host`: this host's ranks.
void measure_steps(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& host, const Trials& trials,
                   Machine* machine);

// Layers, interaction and the optimizer's update; nothing where there are no such plugins.
std::optional<DenseFigures> measure_dense(const Runtime& runtime, const Trials& trials);

}  // namespace tessera
