// Traces of all ranks as one file that ui.perfetto.dev and chrome://tracing draw.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tessera/process_group.h"
#include "tessera/trace.h"

namespace tessera::cli {

// A thread of a rank, as the picture names it.
using NamedTrace = std::pair<std::string, const Trace*>;

// Spans that one of a rank's `threads` should keep, so that the file stays below some 60 MB whatever is trained.
size_t most_spans(int world_size, int threads);

// Gathers everybody's traces and writes them, on rank 0, in the trace event format: a process for each rank,
// microseconds since the earliest span. Ranks of one host have one clock; those of other hosts are set by a barrier.
// Collective. kUnavailable, on all ranks, where the file cannot be written.
void write_trace(const std::string& path, const std::vector<NamedTrace>& threads, const ProcessGroup& group);

}  // namespace tessera::cli
