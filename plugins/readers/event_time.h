// Parses the time of an event, in seconds since 1970.
#pragma once

#include <string_view>

namespace tessera_readers {

// Accepts a number of seconds since 1970 (from 10^11 on milliseconds, from 10^14 on microseconds, from 10^17 on
// nanoseconds). Also accepts an ISO 8601 time such as 2026-03-01T12:00:00.5+01:00. The T may be a blank, seconds or the
// time may be absent, and the default zone is UTC. Returns NaN for anything else.
double event_time(std::string_view text);
// The same for a number.
double event_time(double number);

}  // namespace tessera_readers
