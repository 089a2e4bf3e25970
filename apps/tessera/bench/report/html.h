// The common part of pages: frame, style, sections, tables. They are well-formed XML too; no script, no address,
// readable in light and dark.
#pragma once

#include <string>
#include <vector>

#include "bench/report/lines.h"

namespace tessera::cli {

// A whole page; `body` is HTML.
std::string html_document(const std::string& title, const std::string& body);
// A heading, a sentence and HTML; empty where `content` is.
std::string html_section(const std::string& title, const std::string& about, const std::string& content);
// Rows with one header, "bench" left out; a row without a column has an empty cell. What all rows have in common is
// said once, above; a single row stands upright.
std::string html_table(const std::vector<Line>& rows);
// A part of the page that is shown on demand.
std::string html_details(const std::string& summary, const std::string& text);

// Throws UsageError when the file cannot be written; before there is something to write, so that nothing is lost.
void check_writable(const std::string& path, const char* option = "--html");
// Errors: kUnavailable.
void write_html(const std::string& path, const std::string& page);

}  // namespace tessera::cli
