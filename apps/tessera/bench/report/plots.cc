#include "bench/report/plots.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "tessera/error.h"

namespace tessera::cli {
namespace {

// The text of those circumstances for which `keep` is true.
std::string key_of(const Measured& m, const std::function<bool(const std::string&)>& keep) {
  std::string text;
  for (const auto& [key, value] : circumstances(m.line)) {
    if (keep(key)) text += key + '=' + value.dump() + ';';
  }
  return text;
}

// Groups in the order of their first members.
std::vector<std::vector<Measured>> grouped(const std::vector<Measured>& results,
                                           const std::function<std::string(const Measured&)>& key) {
  std::vector<std::vector<Measured>> groups;
  std::map<std::string, size_t> known;
  for (const Measured& m : results) {
    const auto [place, fresh] = known.emplace(key(m), groups.size());
    if (fresh) groups.emplace_back();
    groups[place->second].push_back(m);
  }
  return groups;
}

std::vector<std::vector<Measured>> by_workload(const std::vector<Measured>& results) {
  return grouped(results, [](const Measured& m) {
    return key_of(m, [](const std::string& key) { return !names_contender(key); });
  });
}

// A caption for each group that tells it from the others; `one` if there is no other.
std::vector<std::string> captions(const std::vector<std::vector<Measured>>& groups, const char* one) {
  std::vector<Measured> first;
  std::vector<std::string> contenders;
  for (const auto& group : groups) {
    first.push_back(group.front());
    for (const auto& [key, value] : circumstances(group.front().line)) {
      if (names_contender(key)) contenders.push_back(key);
    }
  }
  std::vector<std::string> names = labels(first, contenders);
  if (groups.size() == 1) names = {one};
  return names;
}

double number(const Measured& m, const char* key) {
  const auto found = m.line.find(key);
  return found != m.line.end() && found->is_number() ? found->get<double>() : 0;
}

PageParts chart(PageParts spec) { return {{"chart", std::move(spec)}}; }

// The stages of a line in microseconds; empty if it has none.
std::vector<std::pair<std::string, double>> stages_of(const Line& line) {
  std::vector<std::pair<std::string, double>> stages;
  if (line.contains("stages_us") && line["stages_us"].is_object()) {
    for (const auto& [name, us] : line["stages_us"].items()) {
      // `predict` gives a pair: predicted and measured
      const Line value = us.is_array() && !us.empty() ? us.back() : us;
      if (value.is_number()) stages.emplace_back(name, value.get<double>());
    }
  } else if (line["bench"] == "step") {
    for (const char* name : {"kernel", "exchange", "overhead"}) {
      const Line us = line.value(std::string(name) + "_us", Line());
      if (us.is_number()) stages.emplace_back(name, std::max(us.get<double>(), 0.0));
    }
  }
  return stages;
}

// One line chart of time over `key`; each series has the results of one line.
PageParts growth_chart(const std::string& key, std::vector<std::vector<Measured>> series) {
  std::vector<Measured> first;
  for (auto& points : series) {
    std::sort(points.begin(), points.end(),
              [&](const Measured& a, const Measured& b) { return number(a, key.c_str()) < number(b, key.c_str()); });
    first.push_back(points.front());
  }
  const std::vector<std::string> names = labels(first, {key, "workload"});
  PageParts lines = PageParts::array();
  for (size_t i = 0; i < series.size(); ++i) {
    PageParts line = {{"name", names[i]}, {"points", PageParts::array()}};
    for (const Measured& m : series[i]) {
      line["points"].push_back({number(m, key.c_str()), m.us(m.time.median)});
      line["low"].push_back(m.us(m.time.p10));
      line["high"].push_back(m.us(m.time.p90));
    }
    lines.push_back(line);
  }
  return chart({{"kind", "lines"},
                {"title", "Time over " + key + ", both logarithmic; whiskers: p10 to p90"},
                {"log", true},
                {"unit", "us"},
                {"x", key},
                {"series", lines}});
}

}  // namespace

PageParts time_bars(const std::vector<Measured>& results) {
  const auto groups = by_workload(results);
  const auto names = captions(groups, "Median time");
  PageParts out = PageParts::array();
  for (size_t g = 0; g < groups.size(); ++g) {
    PageParts bars = {{"kind", "bars"}, {"title", names[g]}, {"unit", "us"}, {"labels", labels(groups[g])}};
    for (const Measured& m : groups[g]) {
      const double median = m.us(m.time.median), low = m.us(m.time.p10), high = m.us(m.time.p90);
      bars["values"].push_back(median);
      bars["low"].push_back(low);
      bars["high"].push_back(high);
      bars["tips"].push_back(
          str_cat("median ", time_text(median), ", p10 ", time_text(low), ", p90 ", time_text(high)));
    }
    out.push_back(chart(bars));
  }
  return out;
}

PageParts growth_charts(const std::vector<Measured>& results) {
  PageParts out = PageParts::array();
  std::vector<std::string> keys{"bytes", "B", "L", "T", "E", "D", "tables", "threads", "world"};
  for (const Measured& m : results) {
    const std::string grows = m.line.value("grows", "");
    if (!grows.empty() && std::find(keys.begin(), keys.end(), grows) == keys.end()) keys.push_back(grows);
  }
  for (const std::string& key : keys) {
    std::vector<Measured> with;
    for (const Measured& m : results) {
      if (number(m, key.c_str()) > 0) with.push_back(m);
    }
    auto series = grouped(with, [&](const Measured& m) {
      return key_of(m, [&](const std::string& k) { return k != key && k != "workload"; });
    });
    std::erase_if(series, [&](const std::vector<Measured>& points) {
      std::set<double> xs;
      for (const Measured& m : points) xs.insert(number(m, key.c_str()));
      return xs.size() < 2;
    });
    if (!series.empty()) out.push_back(growth_chart(key, std::move(series)));
  }
  return out;
}

PageParts rooflines(const std::vector<Measured>& results) {
  PageParts out = PageParts::array();
  const auto groups = by_workload(results);
  const auto names = captions(groups, "Bytes of rows");
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto is_limit = [](const Measured& m) { return m.line.value("pass", "") == "limit"; };
    const auto limit = std::find_if(groups[g].begin(), groups[g].end(), is_limit);
    if (limit == groups[g].end() || number(*limit, "gbps") <= 0) continue;
    const double roof = number(*limit, "gbps");
    PageParts bars = {{"kind", "bars"},
                      {"title", names[g]},
                      {"unit", "GB/s"},
                      {"labels", labels(groups[g])},
                      {"marks", {{roof, "limit"}}}};
    for (const Measured& m : groups[g]) {
      const double gbps = number(m, "gbps");
      const std::string share = number_text(std::round(100 * gbps / roof)) + " %";
      bars["values"].push_back(gbps);
      bars["texts"].push_back(number_text(std::round(10 * gbps) / 10) + " GB/s, " + share);
      bars["tips"].push_back(str_cat(number_text(gbps), " GB/s, ", share, " of the gather limit"));
    }
    out.push_back(chart(bars));
  }
  return out;
}

PageParts stage_bars(const std::vector<Measured>& results) {
  std::vector<Measured> with;
  std::vector<std::string> stages;  // in the order of first use, so that a stage keeps its colour
  for (const Measured& m : results) {
    const auto own = stages_of(m.line);
    if (own.empty()) continue;
    with.push_back(m);
    for (const auto& [name, us] : own) {
      if (std::find(stages.begin(), stages.end(), name) == stages.end()) stages.push_back(name);
    }
  }
  if (with.empty()) return PageParts::array();
  PageParts series = PageParts::array();
  for (const std::string& stage : stages) {
    std::vector<double> values;
    for (const Measured& m : with) {
      double value = 0;
      for (const auto& [name, us] : stages_of(m.line)) value += name == stage ? us : 0;
      values.push_back(value);
    }
    series.push_back({{"name", stage}, {"values", values}});
  }
  return PageParts::array({chart({{"kind", "stacks"},
                                  {"title", "Time of a step by stage"},
                                  {"unit", "us"},
                                  {"labels", labels(with)},
                                  {"series", series}})});
}

}  // namespace tessera::cli
