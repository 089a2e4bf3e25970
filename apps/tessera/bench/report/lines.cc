#include "bench/report/lines.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string_view>

#include "tessera/error.h"

namespace tessera::cli {
namespace {

bool is_time(const std::string& key) { return key.ends_with("_us") || key.ends_with("_s"); }

double number_of(const Line& line, const std::string& name, double otherwise) {
  const auto found = line.find(name);
  return found != line.end() && found->is_number() ? found->get<double>() : otherwise;
}

// Reads the percentiles that a line states.
Percentiles stated(const Line& line, const std::string& unit) {
  Percentiles p;
  p.median = number_of(line, "median_" + unit, 0);
  p.p10 = number_of(line, "p10_" + unit, p.median);
  p.p90 = number_of(line, "p90_" + unit, p.median);
  p.p25 = number_of(line, "p25_" + unit, p.p10);
  p.p75 = number_of(line, "p75_" + unit, p.p90);
  p.p99 = number_of(line, "p99_" + unit, p.p90);
  return p;
}

std::vector<double> stated_rounds(const Line& line, const std::string& unit) {
  std::vector<double> out;
  const Line all = line.value("rounds_" + unit, Line::array());
  for (const Line& one : all.is_array() ? all : Line::array()) {
    if (one.is_number() && one.get<double>() > 0) out.push_back(one.get<double>());
  }
  return out;
}

std::string identity(const Line& line) {
  std::string text;
  for (const auto& [key, value] : circumstances(line)) text += key + '=' + value.dump() + ';';
  return text;
}

// The circumstances that differ between the results.
std::set<std::string> differing(const std::vector<Measured>& results) {
  std::map<std::string, std::set<std::string>> values;
  std::map<std::string, size_t> count;
  for (const Measured& m : results) {
    for (const auto& [key, value] : circumstances(m.line)) {
      values[key].insert(value.dump());
      ++count[key];
    }
  }
  std::set<std::string> keys;
  for (const auto& [key, seen] : values) {
    if (seen.size() > 1 || count[key] < results.size()) keys.insert(key);
  }
  return keys;
}

// A number needs its name to be understood; a word does not.
std::string item(const std::string& key, const Line& value) {
  return value.is_string() ? value.get<std::string>() : key + ' ' + value_text(value);
}

}  // namespace

Percentiles percentiles(std::vector<double> samples) {
  TESSERA_CHECK(!samples.empty());
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double fraction) {
    const double place = fraction * static_cast<double>(samples.size() - 1);
    const size_t below = static_cast<size_t>(place), above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (place - static_cast<double>(below)) * (samples[above] - samples[below]);
  };
  return {at(0.5), at(0.1), at(0.25), at(0.75), at(0.9), at(0.99)};
}

void add_percentiles(Line* line, const std::string& unit, const std::vector<double>& samples) {
  const Percentiles p = percentiles(samples);
  for (const auto& [name, value] :
       {std::pair{"median_", p.median}, {"p10_", p.p10}, {"p25_", p.p25}, {"p75_", p.p75}, {"p90_", p.p90}})
    (*line)[name + unit] = value;
}

void add_rounds(Line* line, const std::string& unit, const std::vector<double>& rounds) {
  if (rounds.size() < 2) return;
  Line& list = (*line)["rounds_" + unit] = Line::array();
  for (const double round : rounds) list.push_back(std::stod(number_text(round)));
}

void add_times(Line* line, const std::string& unit, const std::vector<double>& samples) {
  add_percentiles(line, unit, samples);
  add_rounds(line, unit, samples);
}

bool names_contender(const std::string& key) {
  static constexpr std::array<std::string_view, 10> kKeys{
      "kernel", "pass", "optimizer", "backend", "sharding", "dtype", "device", "plan", "peer", "dense_precision"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

std::vector<std::pair<std::string, Line>> circumstances(const Line& line) {
  std::vector<std::pair<std::string, Line>> out;
  for (const auto& [key, value] : line.items()) {
    if (is_time(key)) break;
    if (key == "round") continue;
    out.emplace_back(key, value);
  }
  return out;
}

std::vector<Measured> measured(const std::vector<Line>& lines) {
  std::vector<Measured> results;
  std::map<std::string, size_t> known;
  for (const Line& line : lines) {
    const std::string unit = number_of(line, "median_us", 0) > 0 ? "us" : "s";
    if (!(number_of(line, "median_" + unit, 0) > 0)) continue;
    const auto [place, fresh] = known.emplace(identity(line), results.size());
    if (fresh) results.emplace_back();
    Measured& m = results[place->second];
    m.line = line;
    m.unit = unit;
    ++m.lines;
    m.rounds.push_back(line);
    if (m.lines == 1) {
      m.time = stated(line, unit);
      m.samples = stated_rounds(line, unit);
      continue;
    }
    m.samples.clear();
    for (const Line& round : m.rounds) m.samples.push_back(number_of(round, "median_" + unit, 0));
    m.time = percentiles(m.samples);
  }
  return results;
}

std::vector<std::string> labels(const std::vector<Measured>& results, const std::vector<std::string>& without) {
  std::set<std::string> keys = differing(results);
  for (const std::string& key : without) keys.erase(key);
  std::vector<std::string> out;
  for (const Measured& m : results) {
    std::string text;
    for (const auto& [key, value] : circumstances(m.line)) {
      // avoids "limit limit"
      const bool told = value == "none" || (value.is_string() && text == value.get<std::string>());
      if (keys.contains(key) && !told) text += (text.empty() ? "" : " ") + item(key, value);
    }
    out.push_back(text.empty() ? value_text(m.line["bench"]) : text);
  }
  return out;
}

std::string common_label(const std::vector<Measured>& results) {
  const std::set<std::string> keys = differing(results);
  std::string text;
  if (results.empty()) return text;
  for (const auto& [key, value] : circumstances(results[0].line)) {
    if (key != "bench" && !keys.contains(key)) text += (text.empty() ? "" : " · ") + item(key, value);
  }
  return text;
}

std::string time_text(double us) {
  char text[48];
  // From 999.5 on three digits are 1000, which %g writes as 1e+03.
  const char* unit = us < 999.5 ? "us" : us < 999.5e3 ? "ms" : "s";
  const double value = us < 999.5 ? us : us < 999.5e3 ? us / 1e3 : us / 1e6;
  std::snprintf(text, sizeof(text), value < 999.5 ? "%.3g %s" : "%.0f %s", value, unit);
  return text;
}

std::string number_text(double value) {
  char text[32];
  const bool whole = std::abs(value) >= 99999.5 && std::abs(value) < 1e15;  // %g would write 1e+05
  std::snprintf(text, sizeof(text), whole ? "%.0f" : "%.5g", value);
  return text;
}

std::string value_text(const Line& value) {
  if (value.is_number_float()) return number_text(value.get<double>());
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (!value.is_object()) return value.dump();
  std::string text;
  for (const auto& [key, inner] : value.items()) text += (text.empty() ? "" : ", ") + key + ' ' + value_text(inner);
  return text;
}

}  // namespace tessera::cli
