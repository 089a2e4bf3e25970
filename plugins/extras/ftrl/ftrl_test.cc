// Compares the formula with a loop in doubles for many options, widths and steps. Also tests the start values of
// states, and refused options.
#include <cstdio>
#include <random>

#include "ftrl.h"

namespace {

int failures = 0;
void expect(bool right, const char* what, double got, double want) {
  if (right) return;
  ++failures;
  std::printf("%s: %.9g, not %.9g\n", what, got, want);
}

struct Hyper {
  double rate, power, start, l1, l2, beta;
  std::string json() const {
    char text[300];
    std::snprintf(text, sizeof(text),
                  R"({"learning_rate":%g,"learning_rate_power":%g,"initial_accumulator_value":%g,"l1":%g,"l2":%g,)"
                  R"("beta":%g})",
                  rate, power, start, l1, l2, beta);
    return text;
  }
};

// The formula of ftrl.h, element by element.
struct Plain {
  double w, n, z = 0;
  void update(const Hyper& h, double g) {
    const double p = -h.power, next = n + g * g;
    z += g - (std::pow(next, p) - std::pow(n, p)) / h.rate * w;
    n = next;
    const double curvature = std::pow(n, p) / h.rate + 2 * h.l2 + h.beta / h.rate;
    w = std::abs(z) <= h.l1 ? 0 : (std::copysign(h.l1, z) - z) / curvature;
  }
};

void compare(const Hyper& h, int64_t dim) {
  tessera::sdk::Options options(h.json().c_str());
  const extras::Ftrl ftrl(options);
  const auto states = ftrl.states();
  expect(states.size() == 2, "states", static_cast<double>(states.size()), 2);
  expect(states[0].start == h.start, "start of the accumulator", states[0].start, h.start);
  expect(states[1].start == 0, "start of linear", states[1].start, 0);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> weight(static_cast<size_t>(dim)), grad(weight.size());
  std::vector<float> n(weight.size(), static_cast<float>(h.start)), z(weight.size());
  std::vector<Plain> plain;
  for (float& w : weight) plain.push_back({w = normal(random), h.start});
  float* const rows[] = {n.data(), z.data()};
  for (int64_t step = 1; step <= 20; ++step) {
    for (float& g : grad) g = normal(random);
    const tsr_update update{sizeof(tsr_update), 0, h.rate, step};
    ftrl.update_row(update, dim, weight.data(), grad.data(), rows);
    for (size_t d = 0; d < weight.size(); ++d) {
      plain[d].update(h, grad[d]);
      const double want = plain[d].w;
      expect(std::abs(weight[d] - want) <= 2e-3 * std::abs(want) + 2e-4, "weight", weight[d], want);
      expect(std::abs(n[d] - plain[d].n) <= 1e-4 * plain[d].n, "accumulator", n[d], plain[d].n);
    }
  }
}

void refuses(const char* json) {
  try {
    tessera::sdk::Options options(json);
    const extras::Ftrl ftrl(options);
    ++failures;
    std::printf("%s is taken\n", json);
  } catch (const tessera::sdk::Failure&) {
  }
}

}  // namespace

int main() {
  for (const int64_t dim : {1, 3, 16, 33}) {
    compare({0.05, -0.5, 0.1, 0, 0, 0}, dim);
    compare({0.1, -0.5, 1, 0.3, 0.02, 0.5}, dim);
    compare({0.1, -0.3, 0.5, 0.1, 0, 1}, dim);
    compare({0.5, 0, 0.1, 0.5, 0.1, 0}, dim);
  }
  refuses(R"({"l1":-1})");
  refuses(R"({"learning_rate_power":0.5})");
  refuses(R"({"initial_accumulator_value":-0.1})");
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
