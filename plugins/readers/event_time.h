// When something happened, out of a field: seconds since 1970.
#pragma once

#include <string_view>

namespace tessera_readers {

// A number of seconds since 1970 (from 10^11 on of milliseconds, from 10^14 on of microseconds, from 10^17 on of
// nanoseconds), or a time as ISO 8601 writes it, 2026-03-01T12:00:00.5+01:00, with a blank for T, without the seconds
// or the time, in UTC where it names no zone. NaN: it is neither.
double event_time(std::string_view text);
// The same of a number.
double event_time(double number);

}  // namespace tessera_readers
