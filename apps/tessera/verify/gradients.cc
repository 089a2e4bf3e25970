#include "verify/gradients.h"

#include <algorithm>
#include <cmath>

namespace tessera::cli::verify {
namespace {

// The slope of the loss along a direction from `start`, by finite differences, and how far it may be off: the loss is
// rounded, and it may have kinks or bend.
struct Slope {
  double value, off;
};
Slope slope(const LossOf& loss, Array& at, const std::vector<double>& start, const std::vector<double>& direction,
            double step) {
  double size = 0;
  const auto loss_at = [&](double distance) {
    for (size_t i = 0; i < start.size(); ++i) {
      if (direction[i] != 0) at.set(static_cast<int64_t>(i), start[i] + distance * direction[i]);
    }
    const Loss got = loss();
    size = std::max(size, got.size);
    return got.value;
  };
  const double up = loss_at(step), down = loss_at(-step), far_up = loss_at(2 * step), far_down = loss_at(-2 * step);
  const double middle = loss_at(0);
  const double near = (up - down) / (2 * step), far = (far_up - far_down) / (4 * step);
  const double rounding = 3e-7 * size / step;
  const double kink = std::abs(far_up - 2 * up + middle) + std::abs(far_down - 2 * down + middle);
  const double smooth = std::abs(up - 2 * middle + down);
  const double bend = std::abs(kink - 2 * smooth) / step;
  return {near + (near - far) / 3, rounding + std::abs(near - far) / 3 + bend};
}

constexpr double kOff = 0.004;  // part by which a gradient may be off

}  // namespace

std::vector<double> values_of(const Array& array) {
  std::vector<double> out;
  for (int64_t i = 0; i < array.size(); ++i) out.push_back(array.get(i));
  return out;
}

void compare_together(const LossOf& loss, Array& at, const std::vector<double>& gradient, const std::string& what) {
  Random random(static_cast<uint64_t>(at.size()));
  const std::vector<double> start = values_of(at);
  for (int part = 0; part < 3; ++part) {
    std::vector<double> direction = gradient;
    double squares = 0;
    for (double& d : direction) {
      if (part > 0 && random() % 2 == 0) d = 0;
      squares += d * d;
    }
    if (squares == 0) continue;
    const double length = std::sqrt(squares);
    for (double& d : direction) d /= length;
    const Slope want = slope(loss, at, start, direction, 4e-3);
    require(std::abs(length - want.value) <= kOff * length + want.off, "the gradient of ", what,
            part == 0 ? "" : ", of a random half of it", ", is ", length / want.value,
            " times the slope of the loss along it");
  }
}

void compare_gradient(const LossOf& loss, Array& at, const Array& gradient, const std::string& what, double times) {
  const std::vector<double> start = values_of(at);
  const int64_t stride = std::max<int64_t>(1, at.size() / 40);
  std::vector<double> direction(start.size(), 0.0);
  for (int64_t i = 0; i < at.size(); i += stride) {
    direction[static_cast<size_t>(i)] = 1;
    const Slope want = slope(loss, at, start, direction, 2e-3);
    direction[static_cast<size_t>(i)] = 0;
    const double got = gradient.get(i) / times;
    require(std::abs(got - want.value) <= 2e-3 + kOff * std::abs(want.value) + want.off, "the gradient of element ", i,
            " of ", what, " is ", got, ", but the loss changes by ", want.value, " there");
  }
  std::vector<double> all = values_of(gradient);
  for (double& g : all) g /= times;
  compare_together(loss, at, all, what);
}

}  // namespace tessera::cli::verify
