// Traces of all ranks as one file that ui.perfetto.dev and chrome://tracing draw.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tessera/process_group.h"
#include "tessera/trace.h"

namespace tessera {

// A thread of a rank, as the picture names it.
using NamedTrace = std::pair<std::string, const Trace*>;

// Spans that one of a rank's `threads` should keep, so that the file stays below some 60 MB whatever is trained.
size_t most_spans(int world_size, int threads);

// Writes everybody's traces in the trace event format, on rank 0: a process for each rank, microseconds since the
// earliest span. They arrive in small pieces, written as they come, so that neither memory nor deadlines grow with
// them. Ranks of one host have one clock; those of other hosts are set by a barrier. Collective. Returns on rank 0 what
// was wrong with the file, "" where nothing was: a picture is no reason to fail a job.
std::string write_trace(const std::string& path, const std::vector<NamedTrace>& threads, const ProcessGroup& group);

}  // namespace tessera
