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

// The core's own work around the exchanges, from steps of a rank that is alone.
void measure_stages(const Runtime& runtime, const KernelFigures& kernel, const Trials& trials, Machine* machine);

// Layers, interaction and the optimizer's update; nothing where there are no such plugins.
std::optional<DenseFigures> measure_dense(const Runtime& runtime, const Trials& trials);

}  // namespace tessera::cli
