#include "bench/report/plots.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "bench/report/charts.h"
#include "bench/report/svg.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

using namespace chart;

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

// A caption for each group that tells it from the others.
std::vector<std::string> captions(const std::vector<std::vector<Measured>>& groups) {
  std::vector<Measured> first;
  std::vector<std::string> contenders;
  for (const auto& group : groups) {
    first.push_back(group.front());
    for (const auto& [key, value] : circumstances(group.front().line)) {
      if (names_contender(key)) contenders.push_back(key);
    }
  }
  std::vector<std::string> names = labels(first, contenders);
  if (groups.size() == 1) names = {common_label(groups[0])};
  return names;
}

double number(const Measured& m, const char* key) {
  const auto found = m.line.find(key);
  return found != m.line.end() && found->is_number() ? found->get<double>() : 0;
}

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

// One line chart of time over `key`.
class GrowthChart {
 public:
  GrowthChart(std::string key, std::vector<std::vector<Measured>> series)
      : key_(std::move(key)), series_(std::move(series)) {
    std::vector<Measured> first;
    for (auto& points : series_) {
      std::sort(points.begin(), points.end(), [&](const Measured& a, const Measured& b) { return x(a) < x(b); });
      first.push_back(points.front());
      for (const Measured& m : points) {
        least_x_ = std::min(least_x_, x(m));
        most_x_ = std::max(most_x_, x(m));
        least_y_ = std::min(least_y_, m.us(m.time.p10));
        most_y_ = std::max(most_y_, m.us(m.time.p90));
      }
    }
    names_ = labels(first, {key_, "workload"});
    for (const std::string& name : names_) legend_ = std::min(std::max(legend_, text_width(name) + 30), kWidestLabel);
    least_y_ = std::pow(10.0, std::floor(std::log10(least_y_)));
    most_y_ = std::pow(10.0, std::ceil(std::log10(most_y_) + 1e-9));
  }

  std::string text() const {
    Svg svg(kWidth, kHeight + kTop + kAxis + 16, "time over " + key_);
    for (double y = least_y_; y <= most_y_ * 1.01; y *= 10) {
      svg.line(kLeft, place_y(y), right(), place_y(y), "grid");
      svg.text(kLeft - 8, place_y(y) + 4, time_text(y), "end", "axis");
    }
    std::set<double> xs;
    for (const auto& points : series_) {
      for (const Measured& m : points) xs.insert(x(m));
    }
    double last = -1e9;
    for (const double at : xs) {
      svg.line(place_x(at), kTop, place_x(at), kTop + kHeight, "grid");
      if (place_x(at) - last < text_width(number_text(at)) + 14) continue;
      svg.text(last = place_x(at), kTop + kHeight + 18, number_text(at), "middle", "axis");
    }
    svg.text((kLeft + right()) / 2, kTop + kHeight + 38, key_, "middle", "axis");
    for (size_t i = 0; i < series_.size(); ++i) draw(svg, i);
    return figure("Time over " + key_ + ", both logarithmic; vertical lines: p10 to p90", svg.str());
  }

 private:
  static constexpr double kHeight = 280, kLeft = 80;

  double x(const Measured& m) const { return number(m, key_.c_str()); }
  double right() const { return kWidth - legend_ - 20; }
  double place_x(double v) const {
    return kLeft + 12 + (right() - kLeft - 24) * std::log(v / least_x_) / std::log(most_x_ / least_x_);
  }
  double place_y(double v) const {
    return kTop + kHeight * (1 - std::log(v / least_y_) / std::log(most_y_ / least_y_));
  }

  void draw(Svg& svg, size_t i) const {
    std::string d;
    for (const Measured& m : series_[i]) {
      d += str_cat(d.empty() ? "M" : " L", place_x(x(m)), " ", place_y(m.us(m.time.median)));
    }
    svg.path(d, color(i), i >= kColors);
    for (const Measured& m : series_[i]) {
      const double at = place_x(x(m));
      svg.line(at, place_y(m.us(m.time.p10)), at, place_y(m.us(m.time.p90)), "whisker");
      svg.dot(at, place_y(m.us(m.time.median)), color(i),
              str_cat(names_[i], ", ", key_, " ", number_text(x(m)), ": ", time_text(m.us(m.time.median))));
    }
    const double y = kTop + 10 + 20 * static_cast<double>(i);
    svg.rect(right() + 16, y - 6, 14, 10, color(i));
    svg.text(right() + 36, y + 4, cut_to(names_[i], legend_ - 20));
  }

  std::string key_;
  std::vector<std::vector<Measured>> series_;
  std::vector<std::string> names_;
  double least_x_ = 1e300, most_x_ = 0, least_y_ = 1e300, most_y_ = 0, legend_ = 80;
};

}  // namespace

std::string time_bars(const std::vector<Measured>& results) {
  const auto groups = by_workload(results);
  const auto names = captions(groups);
  std::string out;
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::vector<std::string> contenders = labels(groups[g]);
    std::vector<Bar> bars;
    for (size_t i = 0; i < groups[g].size(); ++i) {
      const Measured& m = groups[g][i];
      const double median = m.us(m.time.median), low = m.us(m.time.p10), high = m.us(m.time.p90);
      bars.push_back(
          {contenders[i], time_text(median),
           str_cat(contenders[i], ": median ", time_text(median), ", p10 ", time_text(low), ", p90 ", time_text(high)),
           median, low, high});
    }
    out += bar_chart(names[g], bars, time_text);
  }
  return out;
}

std::string growth_charts(const std::vector<Measured>& results) {
  std::string out;
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
    if (!series.empty()) out += GrowthChart(key, std::move(series)).text();
  }
  return out;
}

std::string rooflines(const std::vector<Measured>& results) {
  std::string out;
  const auto groups = by_workload(results);
  const auto names = captions(groups);
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto is_limit = [](const Measured& m) { return m.line.value("pass", "") == "limit"; };
    const auto limit = std::find_if(groups[g].begin(), groups[g].end(), is_limit);
    if (limit == groups[g].end() || number(*limit, "gbps") <= 0) continue;
    const double roof = number(*limit, "gbps");
    const std::vector<std::string> contenders = labels(groups[g]);
    std::vector<Bar> bars;
    for (size_t i = 0; i < groups[g].size(); ++i) {
      const Measured& m = groups[g][i];
      const double gbps = number(m, "gbps");
      const std::string share = number_text(std::round(100 * gbps / roof)) + " %";
      bars.push_back({contenders[i], number_text(std::round(10 * gbps) / 10) + " GB/s, " + share,
                      str_cat(contenders[i], ": ", number_text(gbps), " GB/s, ", share, " of the gather limit"), gbps,
                      0, 0, roof});
    }
    out += bar_chart(names[g], bars, [](double x) { return number_text(x) + " GB/s"; });
  }
  return out;
}

std::string stage_bars(const std::vector<Measured>& results) {
  std::vector<Measured> with;
  std::vector<std::string> stages;  // in the order of first use, so that a stage keeps its colour
  double most = 0;
  for (const Measured& m : results) {
    const auto own = stages_of(m.line);
    if (own.empty()) continue;
    with.push_back(m);
    double sum = 0;
    for (const auto& [name, us] : own) {
      sum += us;
      if (std::find(stages.begin(), stages.end(), name) == stages.end()) stages.push_back(name);
    }
    most = std::max(most, sum);
  }
  if (with.empty() || most <= 0) return "";
  const std::vector<std::string> names = labels(with);
  double label = 60;
  for (const std::string& name : names) label = std::min(std::max(label, text_width(name) + 12), kWidestLabel);
  const double scale = (kWidth - label - kValueRoom) / most;
  Svg svg(kWidth, 2 * kTop + kRow * static_cast<double>(with.size()), "stages of a step");
  for (size_t i = 0; i < with.size(); ++i) {
    const double y = kTop + kRow * static_cast<double>(i);
    svg.text(label - 8, y + kRow / 2 + 2, cut_to(names[i], label - 10), "end");
    double x = label, sum = 0;
    for (const auto& [name, us] : stages_of(with[i].line)) {
      const auto series = static_cast<size_t>(std::find(stages.begin(), stages.end(), name) - stages.begin());
      svg.rect(x, y + 3, us * scale, kRow - 10, color(series), name + ": " + time_text(us));
      x += us * scale;
      sum += us;
    }
    svg.text(x + 8, y + kRow / 2 + 2, time_text(sum), "start", "value");
  }
  std::string legend = "<p class=\"legend\">";
  for (size_t s = 0; s < stages.size(); ++s) {
    legend += "<span><i style=\"background:" + color(s) + "\"></i>" + escaped(stages[s]) + "</span> ";
  }
  return figure("Time of a step by stage", svg.str() + legend + "</p>\n");
}

}  // namespace tessera::cli
