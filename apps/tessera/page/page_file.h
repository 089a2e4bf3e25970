// Writes pages: one HTML file that needs no network. Its script draws it from the parts that the file contains.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::cli {

// A list of headings, texts, tables, charts and so on; page/page.js and page/charts.js say how each is written.
using PageParts = nlohmann::ordered_json;

// Adds a heading, a sentence and parts; nothing if `content` is empty.
void add_section(PageParts* parts, const std::string& title, const std::string& about, const PageParts& content);

// The text of a page. Throws kNotFound if this installation of Tessera lacks share/tessera/page.html.
std::string page_text(const std::string& title, const PageParts& parts);

// Throws UsageError if the file cannot be written. Call it before measuring, so that no result is lost.
void check_writable(const std::string& path, const char* option = "--html");
// Also checks that pages can be made.
void check_page(const std::string& path);
// Throws kUnavailable if the file cannot be written.
void write_page(const std::string& path, const std::string& title, const PageParts& parts);

}  // namespace tessera::cli
