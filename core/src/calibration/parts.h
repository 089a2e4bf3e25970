// The measurements of a calibration, stage by stage. All functions are collective over the group of `trials`.
#pragma once

#include <memory>
#include <optional>

#include "calibration/trials.h"
#include "tessera/machine.h"
#include "tessera/runtime.h"

namespace tessera {

// Measures the kernel's lookups and updates for several row and table sizes. Tables are float32 with row-wise Adagrad.
KernelFigures measure_kernel(const Runtime& runtime, const CalibrationOptions& options, const Trials& trials);

// Measures collectives of several sizes. The group has at least two ranks.
LinkFigures measure_link(const ProcessGroup& group, const Trials& trials);
// The part of a small exchange that exchanges in flight at once share: n of them take delay + n * the rest.
double measure_delay(const ProcessGroup& group, const Trials& trials, const LinkFigures& link);

// Measures the stages inside whole steps. `machine` already has figures of a kernel, of dense layers and of the link
// inside the host, which come from loops over each of them. This function corrects them, and adds those of the core's
// own work around the exchanges. `host` has this host's ranks.
void measure_steps(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& host, const Trials& trials,
                   Machine* machine);

// Measures layers, interaction and the optimizer's update; nullopt if there are no such plugins.
std::optional<DenseFigures> measure_dense(const Runtime& runtime, const Trials& trials);

}  // namespace tessera
