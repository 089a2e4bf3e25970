#include "planner/reuse.h"

#include <algorithm>
#include <cmath>

#include "tessera/planner.h"

namespace tessera {

namespace {

// The mean time between two visits of a row is 1 / rate. If a table has only uniform rows, this share of them is
// touched in that time.
constexpr double kTouchedAlone = 1 - 0.36787944117144233;  // 1 - 1 / e
constexpr double kBandGrowth = 4;

double zipf_integral(double from, double to, double exponent) {
  if (exponent == 1) return std::log(to / from);
  return (std::pow(to, 1 - exponent) - std::pow(from, 1 - exponent)) / (1 - exponent);
}

}  // namespace

std::vector<PopularityBand> popularity_bands(int64_t rows, double exponent) {
  const auto all = static_cast<double>(rows);
  if (exponent <= 0 || rows <= 1) return {{all, 1.0}};
  std::vector<PopularityBand> bands;
  double total = 0;
  for (double first = 1; first <= all;) {
    const double last = std::min(std::floor(first * kBandGrowth), all + 1);  // [first, last)
    // The k-th term of the sum is close to the integral from k - 0.5 to k + 0.5.
    const double mass = zipf_integral(first - 0.5, last - 0.5, exponent);
    bands.push_back({last - first, mass});
    total += mass;
    first = last;
  }
  for (PopularityBand& b : bands) b.share /= total;
  return bands;
}

double zipf_exponent_of(int64_t rows, double ids, double distinct) {
  const auto expected = [&](double exponent) {
    double sum = 0;
    for (const PopularityBand& b : popularity_bands(rows, exponent)) sum += distinct_rows(b.rows, ids * b.share);
    return sum;
  };
  if (ids <= 0 || rows <= 1 || distinct >= expected(0)) return 0;
  double low = 0, high = 3;
  for (int i = 0; i < 30; ++i) {
    const double middle = (low + high) / 2;
    (expected(middle) > distinct ? low : high) = middle;
  }
  return low;
}

double distinct_rows(double rows, double n) { return rows <= 0 ? 0 : rows * -std::expm1(-n / rows); }

void ReuseModel::add_rows(double rows, double row_bytes, double rate) {
  if (!(rows > 0) || !(rate > 0)) return;
  // Groups of nearly the same rate are merged, so that thousands of tables take as little time as a few.
  const double bytes = rows * row_bytes;
  const auto same = std::find_if(groups_.begin(), groups_.end(),
                                 [&](const Group& g) { return g.rate < rate * 1.1 && rate < g.rate * 1.1; });
  if (same == groups_.end()) {
    groups_.push_back({bytes, rate});
  } else {
    same->rate = (same->rate * same->bytes + rate * bytes) / (same->bytes + bytes);
    same->bytes += bytes;
  }
}

double ReuseModel::touched(double steps) const {
  double bytes = 0;
  for (const Group& g : groups_) bytes += g.bytes * -std::expm1(-g.rate * steps);
  return bytes;
}

double ReuseModel::equivalent_bytes(double rate) const {
  const double steps = rate > 0 ? std::max(1.0, 1 / rate) : 1e18;
  return (every_step_ + touched(steps)) / kTouchedAlone;
}

}  // namespace tessera
