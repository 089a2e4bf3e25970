// Shows a plan as a page: what each rank stores and computes, and the tables.
#pragma once

#include <string>

#include "page/page_file.h"
#include "tessera/planner.h"

namespace tessera::cli {

// The parts of the page. A box stands for a shard; it is as tall as its bytes in one chart, and as its time in another.
PageParts plan_page(const PlanResult& result);

// Throws UsageError if the name does not end with .html, kUnavailable if the file cannot be written.
void write_picture(const std::string& path, const PlanResult& result);

}  // namespace tessera::cli
