// Compares the product with sums in doubles, and its gradients with differences. Checks that the cores have every row.
#include <cstdio>
#include <random>
#include <set>

#include "cores.h"

namespace {

using extras::TrainRow;
using extras::TrainShape;

int failures = 0;
void expect(bool right, const char* what, double got, double want) {
  if (right) return;
  ++failures;
  std::printf("%s: %.9g, not %.9g\n", what, got, want);
}

using Slices = std::array<std::vector<float>, 3>;

std::array<const float*, 3> view(const Slices& slices) {
  return {slices[0].data(), slices[1].data(), slices[2].data()};
}

// The formula of cores.h, element by element.
double element(const TrainShape& s, const Slices& g, int64_t at) {
  const int64_t r = s.rank, a = at / (s.d[1] * s.d[2]), b = at / s.d[2] % s.d[1], c = at % s.d[2];
  double sum = 0;
  for (int64_t p = 0; p < r; ++p) {
    for (int64_t q = 0; q < r; ++q) {
      sum += static_cast<double>(g[0][static_cast<size_t>(a * r + p)]) *
             g[1][static_cast<size_t>((p * s.d[1] + b) * r + q)] * g[2][static_cast<size_t>(q * s.d[2] + c)];
    }
  }
  return sum;
}

void compare(const TrainShape& shape) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  Slices slices, gradients;
  for (size_t k = 0; k < 3; ++k) {
    slices[k].resize(static_cast<size_t>(shape.width(static_cast<int>(k))));
    gradients[k].resize(slices[k].size());
    for (float& v : slices[k]) v = normal(random);
  }
  const auto dim = static_cast<size_t>(shape.dim);
  std::vector<float> values(dim), grad(dim);
  for (float& v : grad) v = normal(random);
  TrainRow row(shape);
  row.values(view(slices), values.data());
  for (size_t d = 0; d < dim; ++d) {
    const double want = element(shape, slices, static_cast<int64_t>(d));
    expect(std::abs(values[d] - want) <= 1e-4 * (1 + std::abs(want)), "an element", values[d], want);
  }
  row.gradients(view(slices), grad.data(), {gradients[0].data(), gradients[1].data(), gradients[2].data()});
  // A row is linear in each slice, so a difference equals the gradient.
  for (size_t k = 0; k < 3; ++k) {
    for (size_t i = 0; i < slices[k].size(); ++i) {
      Slices moved = slices;
      moved[k][i] += 1;
      double want = 0;
      for (size_t d = 0; d < dim; ++d) {
        const auto at = static_cast<int64_t>(d);
        want += grad[d] * (element(shape, moved, at) - element(shape, slices, at));
      }
      expect(std::abs(gradients[k][i] - want) <= 1e-3 * (1 + std::abs(want)), "a gradient", gradients[k][i], want);
    }
  }
}

void check_sizes(const TrainShape& shape) {
  expect(shape.d[0] * shape.d[1] * shape.d[2] == shape.dim, "columns",
         static_cast<double>(shape.d[0] * shape.d[1] * shape.d[2]), static_cast<double>(shape.dim));
  std::set<std::array<int64_t, 3>> seen;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const std::array<int64_t, 3> at = shape.slices_of(row);
    for (size_t k = 0; k < 3; ++k)
      expect(at[k] >= 0 && at[k] < shape.n[k], "a slice", static_cast<double>(at[k]), static_cast<double>(shape.n[k]));
    expect(seen.insert(at).second, "rows with the slices of another one", static_cast<double>(row), 0);
  }
}

}  // namespace

int main() {
  for (const int64_t rows : {1, 2, 7, 40, 1000, 4999}) {
    for (const int64_t dim : {1, 3, 8, 16, 17, 24}) check_sizes({rows, dim, 4});
  }
  for (const int64_t dim : {1, 5, 8, 12, 16, 64}) {
    for (const int64_t rank : {1, 2, 4, 7}) {
      for (const int64_t rows : {10, 50'000, 10'000'000}) compare({rows, dim, rank});
    }
  }
  const TrainShape users(53'424, 16, 8), large(10'000'000, 64, 8);
  expect(53'424 * 16 / users.values() >= 100, "times smaller", 53'424.0 * 16 / static_cast<double>(users.values()),
         100);
  expect(10'000'000 * 64 / large.values() >= 1000, "times smaller",
         10'000'000.0 * 64 / static_cast<double>(large.values()), 1000);
  std::printf("%d x %d by rank 8: %lld values, %lld times fewer\n", 53'424, 16, static_cast<long long>(users.values()),
              static_cast<long long>(53'424 * 16 / users.values()));
  std::printf("%d x %d by rank 8: %lld values, %lld times fewer\n", 10'000'000, 64,
              static_cast<long long>(large.values()), static_cast<long long>(10'000'000LL * 64 / large.values()));
  return failures == 0 ? 0 : 1;
}
