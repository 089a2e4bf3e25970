// What `tessera calibrate` measures, part by part. All functions are collective over the group of `trials`.
#pragma once

#include <optional>
#include <string>

#include "calibrate/trials.h"
#include "tessera/machine.h"
#include "tessera/process_group.h"

namespace tessera::cli {

struct CalibrateOptions {
  std::string save, kernel = "auto", backend = "auto";
  int nproc = 0;  // ranks to start on this machine; 0: as many as it has cores, at most 2
  int threads = 1;
  bool quick = false;
};

// Starts options.nproc ranks on this machine and measures. Not to be called from a rank.
Machine calibrated(const CalibrateOptions& options);

// The kernel plugin's lookups and updates over row and table size, in tables of float32 with row-wise Adagrad.
KernelFigures measure_kernel(const Runtime& runtime, const CalibrateOptions& options, const Trials& trials);

// Collectives over sizes. The group has at least two ranks.
LinkFigures measure_link(const ProcessGroup& group, const Trials& trials);

// What the parts cost in a step. `machine` has figures of a kernel, of dense layers and of the link inside the host,
// from loops over each of them: they are corrected; and it gets those of the core's own work around the exchanges.
// `host`: this host's ranks.
void measure_steps(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& host, const Trials& trials,
                   Machine* machine);

// Layers, interaction and the optimizer's update; nothing where there are no such plugins.
std::optional<DenseFigures> measure_dense(const Runtime& runtime, const Trials& trials);

}  // namespace tessera::cli
