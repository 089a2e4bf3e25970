// A plan as a picture: ranks as columns, shards as boxes.
#pragma once

#include <string>

#include "tessera/planner.h"

namespace tessera::cli {

// One SVG image that needs nothing else: above, boxes as tall as a shard's bytes; below, as tall as its time. Columns
// are ranks, in hosts. Pointing at a box names table, rows, columns, bytes and time.
std::string plan_svg(const PlanResult& result);
// The same in an HTML page, with the plan's tables as text below.
std::string plan_html(const PlanResult& result);

// Writes it to a file whose name ends with .svg or .html: UsageError for another, or one that cannot be written.
void write_picture(const std::string& path, const PlanResult& result);

}  // namespace tessera::cli
