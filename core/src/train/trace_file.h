// Writes traces of all ranks to one file for ui.perfetto.dev and chrome://tracing.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tessera/process_group.h"
#include "tessera/step_figures.h"

namespace tessera {

// A thread of a rank under the name that the picture shows.
using NamedTrace = std::pair<std::string, const Trace*>;

// Number of spans that each of a rank's `threads` should keep, so that the file stays below about 60 MB.
size_t most_spans(int world_size, int threads);

// Writes the traces of all ranks in the trace event format, on rank 0. Each rank is a process; times are microseconds
// since the earliest span. Traces arrive in small pieces, so that neither memory nor deadlines grow with their size. A
// barrier aligns the clocks of different hosts. Returns on rank 0 what was wrong with the file, or "": a job does not
// fail because of a picture. Collective.
std::string write_trace(const std::string& path, const std::vector<NamedTrace>& threads, const ProcessGroup& group);

}  // namespace tessera
