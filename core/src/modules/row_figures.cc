#include "modules/row_figures.h"

#include <algorithm>
#include <numeric>

namespace tessera {

RowFigures& RowFigures::operator+=(const RowFigures& other) {
  capacity += other.capacity;
  lookups += other.lookups;
  hits += other.hits;
  evictions += other.evictions;
  ages.resize(std::max(ages.size(), other.ages.size()));
  for (size_t k = 0; k < other.ages.size(); ++k) ages[k] += other.ages[k];
  return *this;
}

int64_t RowFigures::steps_of(double share) const {
  const auto rows = static_cast<double>(std::accumulate(ages.begin(), ages.end(), int64_t{0}));
  double seen = 0;
  for (size_t k = 0; k < ages.size() && rows > 0; ++k) {
    seen += static_cast<double>(ages[k]);
    if (seen >= share * rows) return int64_t{1} << k;
  }
  return 0;
}

nlohmann::ordered_json to_json(const RowFigures& figures) {
  std::vector<int64_t> ages = figures.ages;
  while (!ages.empty() && ages.back() == 0) ages.pop_back();
  return {{"capacity", figures.capacity},
          {"lookups", figures.lookups},
          {"hits", figures.hits},
          {"evictions", figures.evictions},
          {"ages", ages}};
}

RowFigures row_figures_from(const config::JsonObject& j) {
  constexpr int64_t kMost = int64_t{1} << 53;  // the largest integer that every JSON reader represents exactly
  constexpr size_t kMostAges = 62;
  RowFigures out{.capacity = j.within<int64_t>("capacity", 0, kMost),
                 .lookups = j.within<int64_t>("lookups", 0, kMost),
                 .hits = j.within<int64_t>("hits", 0, kMost),
                 .evictions = j.within<int64_t>("evictions", 0, kMost),
                 .ages = j.get<std::vector<int64_t>>("ages")};
  if (out.ages.size() > kMostAges ||
      std::any_of(out.ages.begin(), out.ages.end(), [](int64_t rows) { return rows < 0 || rows > kMost / 64; }))
    j.wrong_at("ages", " are not numbers of rows");
  return out;
}

}  // namespace tessera
