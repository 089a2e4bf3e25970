#include "bench/report/compare.h"

#include <cmath>
#include <fstream>
#include <map>

#include "bench/report/peers.h"
#include "command.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

constexpr double kLoud = 0.1;  // share of others above which a run is doubtful

// A name that two runs have in common, whatever else they contain.
std::string full_label(const Line& line) {
  std::string text;
  for (const auto& [key, value] : circumstances(line)) {
    if (key != "bench") text += (text.empty() ? "" : " ") + key + '=' + value_text(value);
  }
  return value_text(line["bench"]) + ' ' + text;
}

std::string verdict(const Measured& before, const Measured& after) {
  const double a = before.us(before.time.median), b = after.us(after.time.median);
  if (std::abs(b / a - 1) < kLeastChange) return "same";
  if (after.us(after.time.p25) > before.us(before.time.p75)) return "slower";
  if (after.us(after.time.p75) < before.us(before.time.p25)) return "faster";
  return "same";
}

const Line* run_of(const std::vector<Line>& lines) {
  for (const Line& line : lines) {
    if (line["bench"] == "run") return &line;
  }
  return nullptr;
}

void add(std::string* note, const std::string& more) { *note += (note->empty() ? "" : "; ") + more; }

std::string doubts(const std::vector<Line>& before, const std::vector<Line>& after) {
  std::string note;
  const Line *a = run_of(before), *b = run_of(after);
  if (without_peers(before).empty()) return "";
  if (a == nullptr || b == nullptr) return "the old result does not say on which machine it was measured";
  for (const char* key : {"cpu", "processors", "memory_gib", "isa"}) {
    const Line x = a->value(key, Line()), y = b->value(key, Line());
    if (!x.is_null() && x != y)
      add(&note, cat("another machine: ", key, " was ", value_text(x), " and is ", value_text(y)));
  }
  for (const auto& [name, run] : {std::pair{"old", a}, {"new", b}}) {
    const Line noise = run->value("others_percent", Line());
    if (noise.is_number() && noise.get<double>() > 100 * kLoud) {
      add(&note, cat("other programs used ", value_text(noise), " % of the processors during the ", name, " run"));
    }
  }
  return note;
}

}  // namespace

std::vector<Line> read_result(const std::string& path, const std::string& option) {
  std::ifstream file(path);
  if (!file) throw UsageError(option + ": cannot read " + path + ": name a file that tessera bench --json has printed");
  std::vector<Line> lines;
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    if (text.empty()) continue;
    Line line = Line::parse(text, nullptr, false);
    if (!line.is_object() || !line.contains("bench") || !line["bench"].is_string()) {
      throw UsageError(cat(option, ": ", path, ":", number, " is no line of a bench: name a file that tessera bench ",
                           "--json has printed"));
    }
    if (const std::string fault = is_peer(line) ? fault_of_peer(line) : ""; !fault.empty())
      throw UsageError(cat(option, ": ", path, ":", number, ": ", fault));
    lines.push_back(std::move(line));
  }
  if (measured(lines).empty()) {
    throw UsageError(option + ": " + path + " has no measurement: name a file that tessera bench --json has printed");
  }
  return lines;
}

std::vector<Line> compare(const std::vector<Line>& before, const std::vector<Line>& after) {
  std::map<std::string, Measured> old;
  for (Measured& m : measured(without_peers(before))) old.emplace(full_label(m.line), m);
  std::map<std::string, int> count;
  std::vector<Line> out;
  const auto show = [&](const std::string& of, const std::string& change, const Line& a, const Line& b) {
    ++count[change];
    if (change == "same") return;
    const bool both = a.is_number() && b.is_number();
    out.push_back({{"bench", "change"},
                   {"of", of},
                   {"change", change},
                   {"before_us", a},
                   {"after_us", b},
                   {"percent", both ? Line(100 * (b.get<double>() / a.get<double>() - 1)) : Line()}});
  };
  for (const Measured& m : measured(without_peers(after))) {
    const std::string of = full_label(m.line);
    const auto found = old.find(of);
    if (found == old.end()) {
      show(of, "new", Line(), m.us(m.time.median));
      continue;
    }
    const Measured& was = found->second;
    show(of, verdict(was, m), was.us(was.time.median), m.us(m.time.median));
    old.erase(found);
  }
  for (const auto& [of, m] : old) show(of, "gone", m.us(m.time.median), Line());
  Line summary{{"bench", "compared"}};
  for (const char* change : {"same", "faster", "slower", "new", "gone"}) summary[change] = count[change];
  summary["note"] = doubts(before, after);
  out.push_back(std::move(summary));
  return out;
}

}  // namespace tessera::cli
