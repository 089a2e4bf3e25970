// A description of the machine that a bench ran on, and of its noise.
#pragma once

#include <optional>

#include "bench/report/lines.h"
#include "tessera/machine.h"

namespace tessera::cli {

// {"cpu": ..., "processors": ..., "memory_gib": ..., "isa": ..., "isa_forced": ...}: equal for equal machines and
// TESSERA_ISA. "processors" counts those that this process may use. "isa" is the instruction set that the CPU kernels
// use: avx512, avx2 or portable.
Line machine_record();

inline constexpr double kLoudPercent = 100 * kLoudShare;

// Processor seconds that this process and the children it waited for have used.
double used_by_us();

// The share of all processors' time that other programs, and other machines on the same host (steal), have used since
// construction. It is computed from /proc/stat, less the time of this process and of the children it waited for.
class Noise {
 public:
  Noise();
  // A share in [0, 1]; unset if the system does not say, or if too little time has passed.
  std::optional<double> share() const;

 private:
  double all_, busy_, own_;  // seconds at construction; all_ is 0 if unknown
};

}  // namespace tessera::cli
