#include "bench/report/page.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "bench/report/plots.h"
#include "bench/report/record.h"
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

bool is(const Line& line, const char* bench) { return line["bench"] == bench; }

std::vector<Line> only(const std::vector<Line>& lines, const char* bench) {
  std::vector<Line> out;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(out), [&](const Line& l) { return is(l, bench); });
  return out;
}

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

// A long name may be broken where it has an underscore.
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

// A single row, from top to bottom.
std::string upright_table(const Line& row) {
  std::string out = "<div class=\"wide\"><table>\n";
  for (const std::string& column : columns_of({row}))
    out += "<tr>" + heading(column) + cell(column, row[column]) + "</tr>\n";
  return out + "</table></div>\n";
}

// Rows with one header; a row without a column has an empty cell. What all rows have in common is said once, above.
std::string table(const std::vector<Line>& rows) {
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

// Rows whose fields are themselves objects, such as stages_us, have a table of each such field behind their own.
std::string with_inner_tables(const std::vector<Line>& rows) {
  std::vector<Line> outer;
  std::vector<std::string> inner;  // the fields' names
  for (const Line& row : rows) {
    outer.push_back({{"bench", row["bench"]}});
    for (const auto& [key, value] : row.items()) {
      if (!value.is_object())
        outer.back()[key] = value;
      else if (std::find(inner.begin(), inner.end(), key) == inner.end())
        inner.push_back(key);
    }
  }
  std::string out = table(outer);
  const std::vector<Measured> results = measured(rows);
  const std::vector<std::string> names = labels(results);
  for (const std::string& field : inner) {
    std::vector<Line> fields;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].line.contains(field) || !results[i].line[field].is_object()) continue;
      fields.push_back({{field, names[i]}});
      for (const auto& [name, value] : results[i].line[field].items())
        fields.back()[name] = value.is_array() ? Line(value.dump()) : value;  // predict: predicted and measured
    }
    if (!fields.empty()) out += table(fields);
  }
  return out;
}

// A table for the rows of each bench.
std::string tables(const std::vector<Line>& rows) {
  std::vector<std::pair<std::string, std::vector<Line>>> kinds;
  for (const Line& row : rows) {
    const std::string kind = value_text(row["bench"]);
    auto known = std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == kind; });
    if (known == kinds.end()) known = kinds.insert(kinds.end(), {kind, {}});
    known->second.push_back(row);
  }
  std::string out;
  for (const auto& [kind, of_kind] : kinds) out += with_inner_tables(of_kind);
  return out;
}

// What the one-letter names mean that the lines use.
std::string abbreviations(const std::vector<Line>& lines) {
  static constexpr std::pair<const char*, const char*> kNames[] = {{"T", "tables"},
                                                                   {"E", "rows of each table"},
                                                                   {"D", "columns of each table"},
                                                                   {"B", "samples of a batch, on each rank"},
                                                                   {"L", "ids of a bag"},
                                                                   {"alpha", "skew of the ids (Zipf; 0: uniform)"},
                                                                   {"world", "ranks"}};
  std::string text;
  for (const auto& [name, meaning] : kNames) {
    if (std::any_of(lines.begin(), lines.end(), [name = name](const Line& line) { return line.contains(name); }))
      text += cat(text.empty() ? "" : ", ", name, ": ", meaning);
  }
  return text.empty() ? "" : "<p>" + escaped(text) + ".</p>\n";
}

std::string section(const std::string& title, const std::string& about, const std::string& content) {
  if (content.empty()) return "";
  return "<h2>" + escaped(title) + "</h2>\n" + (about.empty() ? "" : "<p>" + escaped(about) + "</p>\n") + content;
}

// What is said under the title: machine, noise, time.
std::string circumstances_text(const Line& run) {
  std::string text = machine_text(run);
  const Line others = run.value("others_percent", Line());
  text += others.is_number() ? cat("Other programs used ", value_text(others), " % of the processors during the run.")
                             : "What other programs used of the processors is not known.";
  return text;
}

std::string changes(const std::vector<Line>& lines) {
  const std::vector<Line> summary = only(lines, "compared"), changed = only(lines, "change");
  if (summary.empty()) return "";
  std::string out = "<p>" + escaped(comparison_text(summary[0])) + "</p>\n";
  return out + (changed.empty() ? "" : table(changed));
}

}  // namespace

std::string page(const std::vector<Line>& lines) {
  const std::vector<Line> runs = only(lines, "run");
  const Line run = runs.empty() ? Line::object() : runs.back();
  const std::string title = "tessera bench " + value_text(run.value("name", Line("")));
  const std::vector<Measured> results = measured(lines);
  const std::vector<Line> bars = only(lines, "bar");
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"/>\n<title>" +
      escaped(title) + "</title>\n<style>" + palette() + kStyle + "</style></head>\n<body>\n<h1>" + escaped(title) +
      "</h1>\n<p>" + escaped(circumstances_text(run)) + "</p>\n<p>" + escaped(common_label(results)) + "</p>\n";
  out += abbreviations(lines);
  out += section("Bars on speed", "", bars.empty() ? "" : tables(bars));
  out += section("What changed", "Beyond the noise of both runs.", changes(lines));
  out += section("Times", "Medians; whiskers reach from p10 to p90.", time_bars(results));
  out += section("As the work grows", "", growth_charts(results));
  out +=
      section("Against the gather limit",
              "Bytes of rows a second. The dashed line is the limit that this machine reaches when it reads the same "
              "rows and does nothing else.",
              rooflines(results));
  out += section("Stages", "", stage_bars(results));
  std::vector<Line> others;
  for (const Line& line : lines) {
    if (!is(line, "run") && !is(line, "bar") && !is(line, "change") && !is(line, "compared")) others.push_back(line);
  }
  out += section("All figures", "", others.empty() ? "" : tables(others));
  std::string raw;
  for (const Line& line : lines) raw += line.dump(-1, ' ', false, Line::error_handler_t::replace) + "\n";
  out += "<details><summary>The same as JSON lines</summary><pre>" + escaped(raw) + "</pre></details>\n";
  return out + "</body></html>\n";
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
  throw UsageError(cat(option, ": cannot write ", path.empty() ? "a file without a name" : path,
                       ": name a file in a folder that exists and may be written"));
}

void write_page(const std::string& path, const std::vector<Line>& lines) {
  std::ofstream file(path);
  file << page(lines) << std::flush;
  if (!file) fail(Code::kUnavailable, "cannot write ", path, ": is the disk full?");
}

}  // namespace tessera::cli
