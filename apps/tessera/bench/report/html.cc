#include "bench/report/html.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "bench/report/svg.h"
#include "command.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

constexpr const char* kStyle = R"(
body { background: var(--bg); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 24px;
  max-width: 1250px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 8px; }
p, figcaption { color: var(--soft); margin: 4px 0 12px; max-width: 1000px; }
figure { margin: 0 0 24px; }
svg { display: block; width: 100%; height: auto; font-size: 12.5px; font-family: system-ui, sans-serif; }
svg text { fill: var(--ink); } svg text.axis { fill: var(--soft); font-size: 11.5px; }
svg text.value { font-variant-numeric: tabular-nums; }
svg line.grid { stroke: var(--grid); } svg line.whisker { stroke: var(--ink); stroke-width: 1.5; }
svg line.limit { stroke: var(--bad); stroke-width: 2; stroke-dasharray: 4 3; }
.legend span { margin-right: 16px; white-space: nowrap; }
.legend i { display: inline-block; width: 12px; height: 12px; margin-right: 6px; border-radius: 2px; }
.wide { overflow-x: auto; margin-bottom: 20px; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
td.text { min-width: 90px; } td.number { white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); }
@media (max-width: 1000px) { table { font-size: 11px; } th, td { padding: 3px 6px 3px 0; } }
pre { overflow-x: auto; font-size: 12px; } summary { cursor: pointer; }
)";

std::vector<std::string> columns_of(const std::vector<Line>& rows) {
  std::vector<std::string> columns;
  for (const Line& row : rows) {
    for (const auto& [key, value] : row.items()) {
      if (key != "bench" && !value.is_array() && std::find(columns.begin(), columns.end(), key) == columns.end())
        columns.push_back(key);
    }
  }
  return columns;
}

// Lets a long name break after an underscore.
std::string heading(const std::string& column) {
  std::string out;
  for (const char c : escaped(column)) out += c == '_' ? std::string("_<wbr/>") : std::string(1, c);
  return "<th>" + out + "</th>";
}

std::string cell(const std::string& column, const Line& value) {
  const bool good = value == "faster" || (column == "holds" && value == true);
  const bool bad = value == "slower" || ((column == "holds" || column == "verified") && value == false);
  const std::string text = value_text(value);
  std::string classes = value.is_number() ? "number" : text.size() > 14 ? "text" : "";
  if (good) classes = "good";
  if (bad) classes = "bad";
  return (classes.empty() ? "<td>" : "<td class=\"" + classes + "\">") + escaped(text) + "</td>";
}

// Shows a single row as a table of names and values, from top to bottom.
std::string upright_table(const Line& row) {
  std::string out = "<div class=\"wide\"><table>\n";
  for (const std::string& column : columns_of({row}))
    out += "<tr>" + heading(column) + cell(column, row[column]) + "</tr>\n";
  return out + "</table></div>\n";
}

}  // namespace

std::string html_table(const std::vector<Line>& rows) {
  if (rows.size() == 1) return upright_table(rows[0]);
  std::vector<std::string> columns = columns_of(rows);
  std::string common;
  std::erase_if(columns, [&](const std::string& column) {
    const bool same = std::all_of(rows.begin(), rows.end(), [&](const Line& row) {
      return row.contains(column) && row[column] == rows[0].value(column, Line());
    });
    if (same) common += (common.empty() ? "" : " · ") + column + ' ' + value_text(rows[0][column]);
    return same;
  });
  std::string out = common.empty() ? "" : "<p>All: " + escaped(common) + "</p>\n";
  out += "<div class=\"wide\"><table>\n<tr>";
  for (const std::string& column : columns) out += heading(column);
  out += "</tr>\n";
  for (const Line& row : rows) {
    out += "<tr>";
    for (const std::string& column : columns) out += cell(column, row.value(column, Line("")));
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string html_section(const std::string& title, const std::string& about, const std::string& content) {
  if (content.empty()) return "";
  return "<h2>" + escaped(title) + "</h2>\n" + (about.empty() ? "" : "<p>" + escaped(about) + "</p>\n") + content;
}

std::string html_document(const std::string& title, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
         "content=\"width=device-width, initial-scale=1\"/>\n<title>" +
         escaped(title) + "</title>\n<style>" + palette() + kStyle + "</style></head>\n<body>\n<h1>" + escaped(title) +
         "</h1>\n" + body + "</body></html>\n";
}

std::string html_details(const std::string& summary, const std::string& text) {
  return "<details><summary>" + escaped(summary) + "</summary><pre>" + escaped(text) + "</pre></details>\n";
}

void check_writable(const std::string& path, const char* option) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : ".";
  const bool exists = fs::exists(path, error);
  if (exists ? fs::is_regular_file(path, error) && ::access(path.c_str(), W_OK) == 0
             : fs::is_directory(folder, error) && ::access(folder.c_str(), W_OK) == 0) {
    return;
  }
  throw UsageError(str_cat(option, ": cannot write ", path.empty() ? "a file without a name" : path,
                           ": name a file in a folder that exists and may be written"));
}

void write_html(const std::string& path, const std::string& page) {
  std::ofstream file(path);
  file << page << std::flush;
  if (!file) fail(Code::kUnavailable, "cannot write ", path, ": is the disk full?");
}

}  // namespace tessera::cli
