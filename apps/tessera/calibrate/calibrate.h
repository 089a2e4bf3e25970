// Calibration on this machine, by ranks that it starts (tessera/calibration.h has what they do).
#pragma once

#include <string>

#include "tessera/calibration.h"

namespace tessera::cli {

struct CalibrateOptions {
  std::string save, kernel = "auto", backend = "auto";
  int nproc = 0;  // ranks to start on this machine; 0: as many as it has cores, at most 2
  int threads = 1;
  bool quick = false;
};

// Starts options.nproc ranks on this machine and measures, again where other programs run. Not to be called from a
// rank.
Machine calibrated(const CalibrateOptions& options);

}  // namespace tessera::cli
