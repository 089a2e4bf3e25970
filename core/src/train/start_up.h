// How long this process has been there.
#pragma once

namespace tessera {

// Seconds since the system made this process, to a clock tick (10 ms); 0 where the system does not say.
double seconds_since_process_start();

}  // namespace tessera
