#include "planner/chooser.h"

#include <algorithm>
#include <cmath>

namespace tessera {

namespace {

std::array<double, 3> bytes_of(const Storage& s) {
  return {static_cast<double>(s.hbm), static_cast<double>(s.ddr), static_cast<double>(s.ssd)};
}

}  // namespace

Chooser::Choice Chooser::choice_of(const SearchSpace& space, size_t option) {
  const ShardingOption& o = space.options[option];
  Choice c{option, o.total_perf, o.largest_perf, bytes_of(o.total_storage), {}};
  for (const Shards::Run& run : o.shards.runs()) {
    const auto bytes = bytes_of(run.first.storage);
    for (size_t m = 0; m < kMemories; ++m) c.of_shard[m] = std::max(c.of_shard[m], bytes[m]);
  }
  return c;
}

bool Chooser::worse(const Choice& a, const Choice& b) {
  if (a.sum < b.sum || a.largest < b.largest) return false;
  for (size_t m = 0; m < kMemories; ++m) {
    if (a.bytes[m] < b.bytes[m] || a.of_shard[m] < b.of_shard[m]) return false;
  }
  return true;
}

bool Chooser::has_room(const ShardingOption& option) const {
  for (const Shards::Run& run : option.shards.runs()) {
    bool found = false;
    for (size_t r = 0; r < rooms_.size() && !found; ++r) {
      found = run.first.storage.fits_in(rooms_[r]) && (option.allowed_ranks.empty() || option.allowed_ranks[r]);
    }
    if (!found) return false;
  }
  return true;
}

// Adds the table's options, without those that are worse than another in every way. It keeps the first of equal
// options. An option is only compared with options of its placement that have no more shards, because others may fit
// elsewhere.
void Chooser::add_table(const SearchSpace& space, size_t table) {
  const size_t begin = choices_.size();
  for (size_t i = space.first[table]; i < space.first[table + 1]; ++i) {
    const ShardingOption& o = space.options[i];
    if (!has_room(o)) continue;
    const Choice c = choice_of(space, i);
    const auto comparable = [&](const Choice& other) {
      const ShardingOption& p = space.options[other.option];
      return p.placement == o.placement && p.shards.size() <= o.shards.size();
    };
    const bool beaten = std::any_of(choices_.begin() + static_cast<std::ptrdiff_t>(begin), choices_.end(),
                                    [&](const Choice& other) { return comparable(other) && worse(c, other); });
    if (!beaten) choices_.push_back(c);
  }
  if (choices_.size() == begin && without_room_ == space.tables()) without_room_ = table;
}

Chooser::Chooser(const SearchSpace& space, const std::vector<Storage>& rooms, Budget& budget)
    : rooms_(rooms), budget_(budget), without_room_(space.tables()) {
  for (size_t t = 0; t < space.tables(); ++t) {
    first_.push_back(choices_.size());
    add_table(space, t);
  }
  first_.push_back(choices_.size());
  budget_.spend(static_cast<int64_t>(space.options.size()));
  for (const Storage& room : rooms) {
    const Bytes bytes = bytes_of(room);
    for (size_t m = 0; m < kMemories; ++m) all_[m] += bytes[m];
  }
  picked_.resize(space.tables());
}

double Chooser::cost(const Choice& c) const {
  return c.sum + price_[0] * c.bytes[0] + price_[1] * c.bytes[1] + price_[2] * c.bytes[2];
}

void Chooser::pick(double most_ms) {
  used_ = {};
  for (size_t t = 0; t < picked_.size(); ++t) {
    size_t best = first_[t];
    double least = cost(choices_[best]);
    double excess = std::max(choices_[best].largest - most_ms, 0.0);
    for (size_t i = first_[t] + 1; i < first_[t + 1]; ++i) {
      const double more = std::max(choices_[i].largest - most_ms, 0.0);
      const double price = cost(choices_[i]);
      if (more > excess || (more == excess && price >= least)) continue;
      best = i;
      excess = more;
      least = price;
    }
    picked_[t] = best;
    for (size_t m = 0; m < kMemories; ++m) used_[m] += choices_[best].bytes[m];
  }
  budget_.spend(static_cast<int64_t>(choices_.size()));
}

void Chooser::find_prices(double most_ms, double share) {
  constexpr double kLowest = 1e-18, kHighest = 1e6;
  constexpr int kHalvings = 24;
  price_ = {};
  pick(most_ms);
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t m = 0; m < kMemories; ++m) {
      if (!too_much(m, share)) continue;
      double low = std::max(price_[m], kLowest), high = low;
      do {
        high *= 64;
        price_[m] = high;
        pick(most_ms);
      } while (too_much(m, share) && high < kHighest);
      if (too_much(m, share)) continue;
      for (int i = 0; i < kHalvings && high / low > 1.001 && !budget_.over(); ++i) {
        const double middle = std::sqrt(low * high);
        price_[m] = middle;
        pick(most_ms);
        (too_much(m, share) ? low : high) = middle;
      }
      price_[m] = high;
      pick(most_ms);
    }
  }
}

std::vector<size_t> Chooser::choose(double most_ms, double share) {
  find_prices(most_ms, share);
  std::vector<size_t> out(picked_.size());
  for (size_t t = 0; t < out.size(); ++t) out[t] = choices_[picked_[t]].option;
  return out;
}

double Chooser::best_limit(double share) {
  std::vector<double> limits;
  for (const Choice& c : choices_) limits.push_back(c.largest);
  std::sort(limits.begin(), limits.end());
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  // The mean load of a rank falls as the limit rises; this bisection finds where they cross.
  size_t low = 0, high = limits.size() - 1;
  while (low < high && !budget_.over()) {
    const size_t middle = (low + high) / 2;
    find_prices(limits[middle], share);
    double sum = 0;
    for (const size_t i : picked_) sum += choices_[i].sum;
    if (sum / static_cast<double>(rooms_.size()) > limits[middle]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return limits[low];
}

std::vector<size_t> Chooser::alternatives(size_t table) const {
  std::vector<const Choice*> sorted;
  for (size_t i = first_[table]; i < first_[table + 1]; ++i) sorted.push_back(&choices_[i]);
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Choice* a, const Choice* b) { return cost(*a) < cost(*b); });
  std::vector<size_t> out;
  for (const Choice* c : sorted) out.push_back(c->option);
  return out;
}

}  // namespace tessera
