// Parses the events of a request, {"events": [{...}]}.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/event_rows.h"

namespace tessera::serve {

struct JsonEvents {
  EventRows rows;
  int64_t good = 0;  // rows before the first event that is none
  std::string why;   // its sentence, "event 3, ..."; empty: all are good
};

// `columns`: those of an event. kInvalidArgument: the request is no list of events; then it has no events at all.
JsonEvents parse_events(std::string_view body, const std::vector<std::string>& columns);

}  // namespace tessera::serve
