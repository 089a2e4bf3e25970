// Calibrates this machine with ranks that it starts (tessera/machine.h describes their work).
#pragma once

#include <string>

#include "tessera/machine.h"

namespace tessera::cli {

struct CalibrateOptions {
  std::string save, kernel = "auto", backend = "auto";
  int nproc = 0;  // ranks to start on this machine; 0: one per core, at most 2
  int threads = 1;
  bool quick = false;
};

// Starts options.nproc ranks on this machine and measures. Measures again if other programs run. Must not be called
// from a rank.
Machine calibrated(const CalibrateOptions& options);

}  // namespace tessera::cli
