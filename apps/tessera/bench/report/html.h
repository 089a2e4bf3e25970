// The common pieces of pages: frame, style, sections, tables. Pages are also well-formed XML, have no script and no
// address, and are readable in light and dark.
#pragma once

#include <string>
#include <vector>

#include "bench/report/lines.h"

namespace tessera::cli {

// A whole page; `body` is HTML.
std::string html_document(const std::string& title, const std::string& body);
// A heading, a sentence and HTML; empty if `content` is empty.
std::string html_section(const std::string& title, const std::string& about, const std::string& content);
// Rows under one header, without "bench"; a row without a column has an empty cell. Values common to all rows are given
// once above the table; a single row is shown upright.
std::string html_table(const std::vector<Line>& rows);
// A part of the page that is shown on demand.
std::string html_details(const std::string& summary, const std::string& text);

// Throws UsageError if the file cannot be written. Call it before measuring, so that no result is lost.
void check_writable(const std::string& path, const char* option = "--html");
// Throws kUnavailable.
void write_html(const std::string& path, const std::string& page);

}  // namespace tessera::cli
