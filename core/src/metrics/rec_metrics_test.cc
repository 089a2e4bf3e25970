#include "metrics/rec_metrics.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera {
namespace {

double value(const RecMetric& metric, const std::string& name) {
  for (const auto& [known, value] : metric.compute()) {
    if (known == name) return value;
  }
  ADD_FAILURE() << "there is no " << name;
  return 0;
}

using Batch = std::vector<double>;

TEST(RecMetrics, TheWindowHasTheNewestWholeBatches) {
  RecMetric mae("mae", 4);
  mae.update(Batch{1, 1, 1}, Batch{0, 0, 0}, {});
  mae.update(Batch{1}, Batch{1}, {});
  EXPECT_DOUBLE_EQ(value(mae, "window_mae"), 0.75);
  mae.update(Batch{0}, Batch{1}, {});  // five samples, so the first batch leaves
  EXPECT_DOUBLE_EQ(value(mae, "window_mae"), 0.5);
  EXPECT_DOUBLE_EQ(value(mae, "lifetime_mae"), 0.8);
  mae.update(Batch{0, 0, 0, 0, 0, 0}, Batch{0, 0, 0, 0, 0, 1}, {});  // larger than the window, and fills it alone
  EXPECT_DOUBLE_EQ(value(mae, "window_mae"), 1.0 / 6);
}

TEST(RecMetrics, SumsOfRanksAddUp) {
  RecMetric all("ne", 100), a("ne", 100), b("ne", 100);
  const Batch p{0.2, 0.7, 0.4, 0.9}, y{0, 1, 1, 1}, w{1, 2, 0.5, 3};
  all.update(p, y, w);
  a.update(std::span(p).first(1), std::span(y).first(1), std::span(w).first(1));
  b.update(std::span(p).subspan(1), std::span(y).subspan(1), std::span(w).subspan(1));
  std::vector<double> sums = a.lifetime_sums();
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += b.lifetime_sums()[i];
  EXPECT_DOUBLE_EQ(all.value_of(sums), value(all, "lifetime_ne"));
}

TEST(RecMetrics, AucOfTheNewestSamples) {
  RecMetric auc("auc", 3);
  auc.update(Batch{0.9, 0.1, 0.5}, Batch{0, 1, 1}, {});
  EXPECT_DOUBLE_EQ(value(auc, "window_auc"), 0);
  auc.update(Batch{0.2}, Batch{0}, {});  // the one at .9 leaves; .5 is above .2, .1 below
  EXPECT_DOUBLE_EQ(value(auc, "window_auc"), 0.5);
}

TEST(RecMetrics, Refusals) {
  EXPECT_THROW(RecMetric("nee", 10), Error);
  EXPECT_THROW(RecMetric("ne", 0), Error);
  EXPECT_THROW(RecMetric("gauc", 10), Error);
  EXPECT_THROW(RecMetric("ne", 10).update(Batch{1}, Batch{1, 0}, {}), Error);
}

}  // namespace
}  // namespace tessera
