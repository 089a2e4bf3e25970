// Draws a plan as a picture: ranks as columns, shards as boxes.
#pragma once

#include <string>

#include "tessera/planner.h"

namespace tessera::cli {

// An SVG image that needs nothing else. In the upper panel, a box is as tall as its shard's bytes; in the lower panel,
// as its time. Columns are ranks, grouped by host. Pointing at a box shows table, rows, columns, bytes and time.
std::string plan_svg(const PlanResult& result);
// The same image in an HTML page, with the plan's tables as text below.
std::string plan_html(const PlanResult& result);

// Writes the picture to a file. Throws UsageError if its name does not end with .svg or .html, or if it cannot be
// written.
void write_picture(const std::string& path, const PlanResult& result);

}  // namespace tessera::cli
