// The machine of a bench and its noise.
#pragma once

#include <optional>

#include "bench/report/lines.h"
#include "tessera/calibration.h"

namespace tessera::cli {

// {"cpu": ..., "processors": ..., "memory_gib": ..., "isa": ..., "isa_forced": ...}: equal for equal machines and
// TESSERA_ISA. Processors are those that this process may use; "isa" is the instruction set that the CPU kernels take:
// avx512, avx2 or portable.
Line machine_record();

inline constexpr double kLoudPercent = 100 * kLoudShare;

// The share of all processors' time that other programs, and other machines on the same host (steal), have used since
// construction: what /proc/stat counts, less what this process and the children that it waited for have used.
class Noise {
 public:
  Noise();
  // A share in [0, 1]; nothing if the system does not say, or if too little time has passed to tell.
  std::optional<double> share() const;

 private:
  double all_, busy_, own_;  // seconds, at construction; all_ 0: unknown
};

}  // namespace tessera::cli
