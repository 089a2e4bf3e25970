#include "bench/report/charts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/report/lines.h"
#include "bench/report/svg.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

using namespace chart;

// Round numbers from 0 to at least `most`, about five of them.
std::vector<double> ticks_to(double most) {
  const double rough = most / 5, ten = std::pow(10.0, std::floor(std::log10(rough)));
  const double step = ten * (rough <= ten ? 1 : rough <= 2 * ten ? 2 : rough <= 5 * ten ? 5 : 10);
  std::vector<double> ticks;
  for (int i = 0; static_cast<double>(i - 1) * step < most; ++i) ticks.push_back(i * step);
  return ticks;
}

// The area inside the axes.
struct Frame {
  double least_x = std::numeric_limits<double>::infinity(), most_x = -least_x, least_y = least_x, most_y = -least_x;
  double right = 0;

  static constexpr double kHeight = 260, kLeft = 80;
  void take(double x, double y) {
    least_x = std::min(least_x, x), most_x = std::max(most_x, x);
    least_y = std::min(least_y, y), most_y = std::max(most_y, y);
  }
  // Rounds both ends outward, and adds a margin if all values are equal.
  void widen(double step) {
    least_y = std::floor(least_y / step) * step;
    most_y = std::max(std::ceil(most_y / step) * step, least_y + step);
    if (most_x <= least_x) most_x = least_x + 1;
  }
  double place_x(double x) const { return kLeft + (right - kLeft) * (x - least_x) / (most_x - least_x); }
  double place_y(double y) const { return kTop + kHeight * (1 - (y - least_y) / (most_y - least_y)); }
};

// Drops values that are not numbers; if there are many points, averages neighbours.
std::vector<std::pair<double, double>> few(const std::vector<std::pair<double, double>>& points) {
  constexpr size_t kMost = 400;
  std::vector<std::pair<double, double>> numbers, out;
  std::copy_if(points.begin(), points.end(), std::back_inserter(numbers),
               [](const auto& p) { return std::isfinite(p.second); });
  const size_t together = (numbers.size() + kMost - 1) / kMost;
  for (size_t i = 0; i < numbers.size(); i += together) {
    const size_t end = std::min(i + together, numbers.size());
    double sum = 0;
    for (size_t k = i; k < end; ++k) sum += numbers[k].second;
    out.emplace_back(numbers[end - 1].first, sum / static_cast<double>(end - i));
  }
  return out;
}

void draw_axes(Svg& svg, const Frame& frame, double step, const std::string& x_name) {
  const double bottom = kTop + Frame::kHeight;
  for (double y = frame.least_y; y <= frame.most_y + step / 2; y += step) {
    svg.line(Frame::kLeft, frame.place_y(y), frame.right, frame.place_y(y), "grid");
    svg.text(Frame::kLeft - 8, frame.place_y(y) + 4, number_text(std::round(y / step) * step), "end", "axis");
  }
  for (const double x : ticks_to(frame.most_x)) {
    if (x < frame.least_x || x > frame.most_x) continue;
    svg.line(frame.place_x(x), kTop, frame.place_x(x), bottom, "grid");
    svg.text(frame.place_x(x), bottom + 18, number_text(x), "middle", "axis");
  }
  svg.text((Frame::kLeft + frame.right) / 2, bottom + 36, x_name, "middle", "axis");
}

void draw_curve(Svg& svg, const Frame& frame, const Curve& curve, size_t series) {
  constexpr size_t kMostDots = 60;
  std::string d;
  for (const auto& [x, y] : curve.points) d += str_cat(d.empty() ? "M" : " L", frame.place_x(x), " ", frame.place_y(y));
  svg.path(d, color(series), false);
  if (curve.points.size() <= kMostDots) {
    for (const auto& [x, y] : curve.points)
      svg.dot(frame.place_x(x), frame.place_y(y), color(series),
              str_cat(curve.name, " at ", number_text(x), ": ", number_text(y)));
  }
  const double y = kTop + 10 + 20 * static_cast<double>(series);
  svg.rect(frame.right + 16, y - 6, 14, 10, color(series));
  svg.text(frame.right + 36, y + 4, cut_to(curve.name, kWidestLabel - 60));
}

}  // namespace

std::string figure(const std::string& caption, const std::string& image) {
  return "<figure><figcaption>" + escaped(caption) + "</figcaption>\n" + image + "</figure>\n";
}

std::string bar_chart(const std::string& caption, const std::vector<Bar>& bars,
                      const std::function<std::string(double)>& axis) {
  double label = 60, most = 0;
  for (const Bar& b : bars) {
    label = std::min(std::max(label, text_width(b.label) + 12), kWidestLabel);
    most = std::max({most, b.length, b.high, b.mark});
  }
  const std::vector<double> ticks = ticks_to(most);
  const double scale = (kWidth - label - kValueRoom) / ticks.back();
  const double bottom = kTop + kRow * static_cast<double>(bars.size());
  Svg svg(kWidth, bottom + kAxis, caption);
  for (const double tick : ticks) {
    const double x = label + tick * scale;
    svg.line(x, kTop - 6, x, bottom, "grid");
    svg.text(x, bottom + 18, tick == 0 ? "0" : axis(tick), "middle", "axis");
  }
  for (size_t i = 0; i < bars.size(); ++i) {
    const Bar& b = bars[i];
    const double y = kTop + kRow * static_cast<double>(i), middle = y + kRow / 2 - 2;
    svg.text(label - 8, middle + 4, cut_to(b.label, label - 10), "end");
    svg.rect(label, y + 3, b.length * scale, kRow - 10, color(i), b.tip);
    if (b.high > b.low) {
      const double x0 = label + b.low * scale, x1 = label + b.high * scale;
      svg.line(x0, middle, x1, middle, "whisker");
      svg.line(x0, middle - 4, x0, middle + 4, "whisker");
      svg.line(x1, middle - 4, x1, middle + 4, "whisker");
    }
    if (b.mark > 0) svg.line(label + b.mark * scale, y - 1, label + b.mark * scale, y + kRow - 3, "limit");
    const double end = label + scale * std::max({b.length, b.high, b.mark});
    svg.text(end + 8, middle + 4, b.value, "start", "value");
  }
  return figure(caption, svg.str());
}

std::string curve_chart(const std::string& caption, const std::string& x_name, const std::vector<Curve>& curves) {
  std::vector<Curve> shown;
  Frame frame;
  double legend = 60;
  for (const Curve& curve : curves) {
    shown.push_back({curve.name, few(curve.points)});
    for (const auto& [x, y] : shown.back().points) frame.take(x, y);
    legend = std::min(std::max(legend, text_width(curve.name) + 40), kWidestLabel);
  }
  if (!(frame.least_x <= frame.most_x)) return "";
  const double range = frame.most_y - frame.least_y;
  const double step = ticks_to(range > 0 ? range : std::max(std::abs(frame.most_y), 1e-9))[1];
  frame.right = kWidth - legend - 20;
  frame.widen(step);
  Svg svg(kWidth, kTop + Frame::kHeight + kAxis + 14, caption);
  draw_axes(svg, frame, step, x_name);
  for (size_t i = 0; i < shown.size(); ++i) draw_curve(svg, frame, shown[i], i);
  return figure(caption, svg.str());
}

}  // namespace tessera::cli
