#include "bench/report/page.h"

#include <algorithm>

#include "bench/report/html.h"
#include "bench/report/plots.h"
#include "bench/report/record.h"
#include "bench/report/svg.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

bool is(const Line& line, const char* bench) { return line["bench"] == bench; }

std::vector<Line> only(const std::vector<Line>& lines, const char* bench) {
  std::vector<Line> out;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(out), [&](const Line& l) { return is(l, bench); });
  return out;
}

// Puts a further table after the rows for each field that is itself an object, such as stages_us.
std::string with_inner_tables(const std::vector<Line>& rows) {
  std::vector<Line> outer;
  std::vector<std::string> inner;  // names of such fields
  for (const Line& row : rows) {
    outer.push_back({{"bench", row["bench"]}});
    for (const auto& [key, value] : row.items()) {
      if (!value.is_object())
        outer.back()[key] = value;
      else if (std::find(inner.begin(), inner.end(), key) == inner.end())
        inner.push_back(key);
    }
  }
  std::string out = html_table(outer);
  const std::vector<Measured> results = measured(rows);
  const std::vector<std::string> names = labels(results);
  for (const std::string& field : inner) {
    std::vector<Line> fields;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].line.contains(field) || !results[i].line[field].is_object()) continue;
      fields.push_back({{field, names[i]}});
      for (const auto& [name, value] : results[i].line[field].items())
        // `predict` gives a pair: predicted and measured
        fields.back()[name] = value.is_array() ? Line(value.dump()) : value;
    }
    if (!fields.empty()) out += html_table(fields);
  }
  return out;
}

// One table per bench.
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
  return text.empty() ? "" : "<p>" + escaped(text) + ".</p>\n";
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

std::string changes(const std::vector<Line>& lines) {
  const std::vector<Line> summary = only(lines, "compared"), changed = only(lines, "change");
  if (summary.empty()) return "";
  std::string out = "<p>" + escaped(comparison_text(summary[0])) + "</p>\n";
  return out + (changed.empty() ? "" : html_table(changed));
}

}  // namespace

std::string page(const std::vector<Line>& lines) {
  const std::vector<Line> runs = only(lines, "run");
  const Line run = runs.empty() ? Line::object() : runs.back();
  const std::string title = "tessera bench " + value_text(run.value("name", Line("")));
  const std::vector<Measured> results = measured(lines);
  const std::vector<Line> bars = only(lines, "bar");
  std::string out = "<p>" + escaped(circumstances_text(run)) + "</p>\n<p>" + escaped(common_label(results)) + "</p>\n";
  out += abbreviations(lines);
  out += html_section("Bars on speed", "", bars.empty() ? "" : tables(bars));
  out += html_section("What changed", "Beyond the noise of both runs.", changes(lines));
  out += html_section("Times", "Medians; whiskers reach from p10 to p90.", time_bars(results));
  out += html_section("As the work grows", "", growth_charts(results));
  out += html_section(
      "Against the gather limit",
      "Bytes of rows a second. The dashed line is the limit that this machine reaches when it reads the same "
      "rows and does nothing else.",
      rooflines(results));
  out += html_section("Stages", "", stage_bars(results));
  std::vector<Line> others;
  for (const Line& line : lines) {
    if (!is(line, "run") && !is(line, "bar") && !is(line, "change") && !is(line, "compared")) others.push_back(line);
  }
  out += html_section("All figures", "", others.empty() ? "" : tables(others));
  std::string raw;
  for (const Line& line : lines) raw += line.dump(-1, ' ', false, Line::error_handler_t::replace) + "\n";
  out += html_details("The same as JSON lines", raw);
  return html_document(title, out);
}

void write_page(const std::string& path, const std::vector<Line>& lines) { write_html(path, page(lines)); }

}  // namespace tessera::cli
