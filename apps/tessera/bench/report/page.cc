#include "bench/report/page.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "bench/report/plots.h"
#include "bench/report/record.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

bool is(const Line& line, const char* bench) { return line["bench"] == bench; }

std::vector<Line> only(const std::vector<Line>& lines, const char* bench) {
  std::vector<Line> out;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(out), [&](const Line& l) { return is(l, bench); });
  return out;
}

// A field's name for people: "median_us" is "median (µs)".
std::string readable(std::string key) {
  static constexpr std::array<std::pair<std::string_view, const char*>, 6> kUnits{{{"_per_s", " a second"},
                                                                                   {"_us", " (µs)"},
                                                                                   {"_gbps", " (GB/s)"},
                                                                                   {"_gib", " (GiB)"},
                                                                                   {"_percent", " (%)"},
                                                                                   {"_s", " (s)"}}};
  for (const auto& [ending, unit] : kUnits) {
    if (key.ends_with(ending)) {
      key = key.substr(0, key.size() - ending.size()) + unit;
      break;
    }
  }
  std::replace(key.begin(), key.end(), '_', ' ');
  return key == "gbps" ? "GB/s" : key;
}

Line without_bench(const Line& row) {
  Line out = Line::object();
  for (const auto& [key, value] : row.items()) {
    if (key != "bench" && !value.is_array() && !value.is_object()) out[readable(key)] = value;
  }
  return out;
}

PageParts table_of(const std::vector<Line>& rows) {
  PageParts out = PageParts::array();
  for (const Line& row : rows) out.push_back(without_bench(row));
  return {{"table", out}};
}

// Puts a further table after the rows for each field that is itself an object, such as stages_us.
void add_tables(PageParts* parts, const std::vector<Line>& rows) {
  std::vector<std::string> inner;  // names of such fields
  for (const Line& row : rows) {
    for (const auto& [key, value] : row.items()) {
      if (value.is_object() && std::find(inner.begin(), inner.end(), key) == inner.end()) inner.push_back(key);
    }
  }
  parts->push_back(table_of(rows));
  const std::vector<Measured> results = measured(rows);
  const std::vector<std::string> names = labels(results);
  for (const std::string& field : inner) {
    PageParts fields = PageParts::array();
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].line.contains(field) || !results[i].line[field].is_object()) continue;
      fields.push_back({{readable(field), names[i]}});
      fields.back().update(results[i].line[field]);  // `predict` gives pairs: predicted and measured
    }
    if (!fields.empty()) parts->push_back({{"table", fields}});
  }
}

// One table per bench.
PageParts tables(const std::vector<Line>& rows) {
  std::vector<std::pair<std::string, std::vector<Line>>> kinds;
  for (const Line& row : rows) {
    const std::string kind = value_text(row["bench"]);
    auto known = std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == kind; });
    if (known == kinds.end()) known = kinds.insert(kinds.end(), {kind, {}});
    known->second.push_back(row);
  }
  PageParts out = PageParts::array();
  for (const auto& [kind, of_kind] : kinds) add_tables(&out, of_kind);
  return out;
}

// Explains the one-letter names that the lines use.
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
      text += str_cat(text.empty() ? "" : ", ", name, ": ", meaning);
  }
  return text.empty() ? "" : text + ".";
}

// The line under the title: machine, noise and time.
std::string circumstances_text(const Line& run) {
  std::string text = machine_text(run);
  const Line others = run.value("others_percent", Line());
  text += others.is_number()
              ? str_cat("Other programs used ", value_text(others), " % of the processors during the run.")
              : "What other programs used of the processors is not known.";
  return text;
}

PageParts changes(const std::vector<Line>& lines) {
  const std::vector<Line> summary = only(lines, "compared"), changed = only(lines, "change");
  PageParts out = PageParts::array();
  if (!summary.empty()) out.push_back({{"text", comparison_text(summary[0])}});
  if (!changed.empty()) out.push_back(table_of(changed));
  return out;
}

Line last_run(const std::vector<Line>& lines) {
  const std::vector<Line> runs = only(lines, "run");
  return runs.empty() ? Line::object() : runs.back();
}

}  // namespace

std::string bench_title(const std::vector<Line>& lines) {
  return "tessera bench " + value_text(last_run(lines).value("name", Line("")));
}

PageParts bench_parts(const std::vector<Line>& lines) {
  const std::vector<Measured> results = measured(lines);
  PageParts out = PageParts::array();
  for (const std::string& text : {circumstances_text(last_run(lines)), common_label(results), abbreviations(lines)}) {
    if (!text.empty()) out.push_back({{"text", text}});
  }
  add_section(&out, "Bars on speed", "", tables(only(lines, "bar")));
  add_section(&out, "What changed", "Beyond the noise of both runs.", changes(lines));
  add_section(&out, "Times", "Medians; whiskers reach from p10 to p90.", time_bars(results));
  add_section(&out, "As the work grows", "", growth_charts(results));
  add_section(&out, "Against the gather limit",
              "Bytes of rows a second. The dashed line is the limit that this machine reaches when it reads the same "
              "rows and does nothing else.",
              rooflines(results));
  add_section(&out, "Stages", "", stage_bars(results));
  std::vector<Line> others;
  for (const Line& line : lines) {
    if (!is(line, "run") && !is(line, "bar") && !is(line, "change") && !is(line, "compared")) others.push_back(line);
  }
  add_section(&out, "All figures", "", tables(others));
  std::string raw;
  for (const Line& line : lines) raw += line.dump(-1, ' ', false, Line::error_handler_t::replace) + "\n";
  out.push_back({{"details", "The same as JSON lines"}, {"text", raw}});
  return out;
}

void write_bench_page(const std::string& path, const std::vector<Line>& lines) {
  write_page(path, bench_title(lines), bench_parts(lines));
}

}  // namespace tessera::cli
