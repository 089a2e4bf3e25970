#include "bench/report/compare.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "bench/report/peers.h"
#include "command.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

constexpr double kLoud = 0.1;  // share of the processors used by other programs above which a run is doubtful

// A label that two runs have in common, whatever else they contain.
std::string full_label(const Line& line) {
  std::string text;
  for (const auto& [key, value] : circumstances(line)) {
    if (key != "bench") text += (text.empty() ? "" : " ") + key + '=' + value_text(value);
  }
  return value_text(line["bench"]) + ' ' + text;
}

struct Verdict {
  std::string change, test;
  bool by_ranks;
};

Verdict verdict(const Measured& before, const Measured& after) {
  const double a = before.us(before.time.median), b = after.us(after.time.median);
  Verdict v{"same", "quartiles", std::min(before.samples.size(), after.samples.size()) >= kRoundsToRank};
  bool apart =
      after.us(after.time.p25) > before.us(before.time.p75) || after.us(after.time.p75) < before.us(before.time.p25);
  if (v.by_ranks) {
    const auto in_us = [](const Measured& m) {
      std::vector<double> out;
      for (const double sample : m.samples) out.push_back(m.us(sample));
      return out;
    };
    const double p = rank_test(in_us(before), in_us(after));
    apart = p < kUnlikely;
    v.test = str_cat("ranks, p ", number_text(p));
  }
  if (apart && std::abs(b / a - 1) >= kLeastChange) v.change = b > a ? "slower" : "faster";
  return v;
}

const Line* run_of(const std::vector<Line>& lines) {
  for (const Line& line : lines) {
    if (line["bench"] == "run") return &line;
  }
  return nullptr;
}

void add(std::string* note, const std::string& more) { *note += (note->empty() ? "" : "; ") + more; }

Line others_percent(const std::vector<Line>& lines) {
  const Line* run = run_of(lines);
  return run == nullptr ? Line() : run->value("others_percent", Line());
}

std::string doubts(const std::vector<Line>& before, const std::vector<Line>& after) {
  std::string note;
  const Line *a = run_of(before), *b = run_of(after);
  if (without_peers(before).empty()) return "";
  if (a == nullptr || b == nullptr) return "the old result does not say on which machine it was measured";
  for (const char* key : {"cpu", "processors", "memory_gib", "isa"}) {
    const Line x = a->value(key, Line()), y = b->value(key, Line());
    if (!x.is_null() && x != y)
      add(&note, str_cat("another machine: ", key, " was ", value_text(x), " and is ", value_text(y)));
  }
  for (const auto& [name, run] : {std::pair{"old", a}, {"new", b}}) {
    const Line noise = run->value("others_percent", Line());
    if (noise.is_number() && noise.get<double>() > 100 * kLoud) {
      add(&note, str_cat("other programs used ", value_text(noise), " % of the processors during the ", name, " run"));
    }
  }
  return note;
}

}  // namespace

double rank_test(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<std::pair<double, bool>> all;
  for (const double x : a) all.emplace_back(x, true);
  for (const double x : b) all.emplace_back(x, false);
  std::sort(all.begin(), all.end());
  const auto n = static_cast<double>(a.size()), m = static_cast<double>(b.size()), both = n + m;
  // rank sum of a's samples, where equal times get the mean of their ranks; correction for ties
  double ranks = 0, ties = 0;
  for (size_t i = 0; i < all.size();) {
    size_t end = i;
    while (end < all.size() && all[end].first == all[i].first) ++end;
    const auto equal = static_cast<double>(end - i);
    for (; i < end; ++i) ranks += all[i].second ? static_cast<double>(end) - (equal - 1) / 2 : 0;
    ties += equal * (equal * equal - 1);
  }
  const double u = ranks - n * (n + 1) / 2;
  const double variance = n * m / 12 * (both + 1 - ties / (both * (both - 1)));
  if (!(variance > 0)) return 1;
  const double z = std::max(0.0, std::abs(u - n * m / 2) - 0.5) / std::sqrt(variance);
  return std::erfc(z / std::sqrt(2.0));
}

std::vector<Line> read_result(const std::string& path, const std::string& option) {
  std::ifstream file(path);
  if (!file) throw UsageError(option + ": cannot read " + path + ": name a file that tessera bench --json has printed");
  std::vector<Line> lines;
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    if (text.empty()) continue;
    const Line line = Line::parse(text, nullptr, /*allow_exceptions=*/false);  // discarded unless it is JSON
    if (!line.is_object() || !line.contains("bench") || !line["bench"].is_string()) {
      throw UsageError(str_cat(option, ": ", path, ":", number,
                               " is not a line of a bench: name a file that tessera bench ", "--json has printed"));
    }
    if (const std::string fault = is_peer(line) ? fault_of_peer(line) : ""; !fault.empty())
      throw UsageError(str_cat(option, ": ", path, ":", number, ": ", fault));
    lines.push_back(line);
  }
  if (measured(lines).empty()) {
    throw UsageError(option + ": " + path + " has no measurement: name a file that tessera bench --json has printed");
  }
  return lines;
}

std::vector<Line> compare(const std::vector<Line>& before, const std::vector<Line>& after) {
  std::map<std::string, Measured> old;
  for (Measured& m : measured(without_peers(before))) old.emplace(full_label(m.line), m);
  std::map<std::string, int> count, tests;
  std::vector<Line> out;
  const auto show = [&](const std::string& of, const std::string& change, const Line& a, const Line& b,
                        const Line& test = {}) {
    ++count[change];
    if (change == "same") return;
    const bool both = a.is_number() && b.is_number();
    out.push_back({{"bench", "change"},
                   {"of", of},
                   {"change", change},
                   {"before_us", a},
                   {"after_us", b},
                   {"percent", both ? Line(100 * (b.get<double>() / a.get<double>() - 1)) : Line()},
                   {"test", test}});
  };
  for (const Measured& m : measured(without_peers(after))) {
    const std::string of = full_label(m.line);
    const auto found = old.find(of);
    if (found == old.end()) {
      show(of, "new", Line(), m.us(m.time.median));
      continue;
    }
    const Measured& was = found->second;
    const Verdict v = verdict(was, m);
    ++tests[v.by_ranks ? "by_ranks" : "by_quartiles"];
    show(of, v.change, was.us(was.time.median), m.us(m.time.median), v.test);
    old.erase(found);
  }
  for (const auto& [of, m] : old) show(of, "gone", m.us(m.time.median), Line());
  Line summary{{"bench", "compared"}};
  for (const char* change : {"same", "faster", "slower", "new", "gone"}) summary[change] = count[change];
  for (const char* test : {"by_ranks", "by_quartiles"}) summary[test] = tests[test];
  summary["others_percent_before"] = others_percent(before);
  summary["others_percent_after"] = others_percent(after);
  summary["note"] = doubts(before, after);
  out.push_back(std::move(summary));
  return out;
}

}  // namespace tessera::cli
