#include "train/sorted_rows.h"

#include <algorithm>
#include <cmath>

#include "data/examples.h"

namespace tessera {
namespace {

// A difference is reported if it exceeds both limits: standard errors, and standard deviations of the label.
constexpr double kErrors = 5, kDeviations = 0.25;

struct Sums {
  double count = 0, sum = 0, squares = 0;
  double mean() const { return sum / count; }
};

Sums sums_of(const data::Examples& samples, size_t label) {
  Sums out{.count = static_cast<double>(samples.size())};
  for (int64_t i = 0; i < samples.size(); ++i) {
    const double value = samples.label(i, label);
    out.sum += value;
    out.squares += value * value;
  }
  return out;
}

}  // namespace

std::string sorted_rows_warning(const Dataset& data) {
  if (!data.test_is_last || data.train_rows() == 0 || data.test_rows() == 0) return "";
  const ExamplesPtr train = data.train.some(), test = data.test.some();
  for (size_t label = 0; label < data.labels.size() && train->size() > 0 && test->size() > 0; ++label) {
    const Sums a = sums_of(*train, label), b = sums_of(*test, label);
    const double count = a.count + b.count, mean = (a.sum + b.sum) / count;
    const double deviation = std::sqrt(std::max(0.0, (a.squares + b.squares) / count - mean * mean));
    const double apart = std::abs(a.mean() - b.mean());
    if (apart <= kErrors * deviation * std::sqrt(1 / a.count + 1 / b.count) || apart <= kDeviations * deviation)
      continue;
    return str_cat("the mean of \"", data.labels[label], "\" is ", a.mean(), " in the training rows and ", b.mean(),
                   " in the test, which is ", data.test_split,
                   ": the files may be sorted; data.test = \"random\" takes test rows from everywhere");
  }
  return "";
}

}  // namespace tessera
