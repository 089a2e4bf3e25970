// The age of this process.
#pragma once

namespace tessera {

// Seconds since the system started this process, to a clock tick (10 ms); 0: the system does not say.
double seconds_since_process_start();

}  // namespace tessera
