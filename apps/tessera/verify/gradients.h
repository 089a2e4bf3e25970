// Compares gradients with finite differences of a loss.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "verify/kernel_bed.h"

namespace tessera::cli::verify {

struct Loss {
  double value;
  double size;  // root of the sum of squares of its terms, which says how much rounding matters
};
using LossOf = std::function<Loss()>;

std::vector<double> values_of(const Array& array);

// Compares up to 40 elements of the gradient, which is `times` times as large, and then all together.
void compare_gradient(const LossOf& loss, Array& at, const Array& gradient, const std::string& what, double times);
// Walks along the gradient, all of it and random halves, so that many elements are compared together: a gradient that
// is 1 % off is noticed.
void compare_together(const LossOf& loss, Array& at, const std::vector<double>& gradient, const std::string& what);

}  // namespace tessera::cli::verify
