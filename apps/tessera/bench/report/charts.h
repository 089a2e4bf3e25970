// Charts of pages: bars and curves, each as HTML with an inline image.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::cli {

namespace chart {
inline constexpr double kWidth = 860, kRow = 28, kTop = 14, kAxis = 34;
inline constexpr double kWidestLabel = 300, kValueRoom = 110;
}  // namespace chart

std::string figure(const std::string& caption, const std::string& image);

struct Bar {
  std::string label, value, tip;
  double length, low, high;  // whisker ends; equal: no whisker
  double mark = 0;           // position of a line across the row; 0: none
};
// Horizontal bars from 0, with an axis below.
std::string bar_chart(const std::string& caption, const std::vector<Bar>& bars,
                      const std::function<std::string(double)>& axis);

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending; a point whose y is not a number is left out
};
// Lines over one axis, both axes linear; many points become means of neighbours. Empty if no curve has a point.
std::string curve_chart(const std::string& caption, const std::string& x_name, const std::vector<Curve>& curves);

}  // namespace tessera::cli
