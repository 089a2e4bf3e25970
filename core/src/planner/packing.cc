#include "planner/packing.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "tessera/abi/sharder.h"

namespace tessera {

namespace {

constexpr int kRounds = 6;

// How hard a table is to place. Larger demands are placed earlier.
struct Demand {
  size_t failures = 0;      // earlier rounds in which it found no room
  bool everywhere = false;  // it has one shard on every rank, so there is no choice
  size_t barred = 0;        // number of ranks that it may not use
  double size = 0;          // its largest shard, relative to an even load or to a rank's memory
  bool operator<(const Demand& b) const {
    return std::tie(failures, everywhere, barred, size) < std::tie(b.failures, b.everywhere, b.barred, b.size);
  }
};

double part(int64_t bytes, double of) { return of > 0 ? static_cast<double>(bytes) / of : 0; }

struct Scale {
  double load = 0, hbm = 0, ddr = 0;  // an average rank's load and memory
};

Scale scale_of(const SearchSpace& space, const std::vector<Storage>& rooms, const std::vector<size_t>& options) {
  Scale scale;
  for (const size_t o : options) scale.load += space.options[o].total_perf;
  for (const Storage& room : rooms) {
    scale.hbm += static_cast<double>(room.hbm);
    scale.ddr += static_cast<double>(room.ddr);
  }
  const auto ranks = static_cast<double>(rooms.size());
  return {scale.load / ranks, scale.hbm / ranks, scale.ddr / ranks};
}

Demand demand_of(const ShardingOption& o, const Scale& scale) {
  Demand d{.everywhere = o.placement == TSR_PLACE_EVERY_RANK,
           .barred = static_cast<size_t>(std::count(o.allowed_ranks.begin(), o.allowed_ranks.end(), false)) +
                     (o.apart.empty() ? 0 : 1)};
  for (const Shards::Run& run : o.shards.runs()) {
    d.size = std::max({d.size, scale.load > 0 ? run.load / scale.load : 0, part(run.first.storage.hbm, scale.hbm),
                       part(run.first.storage.ddr, scale.ddr)});
  }
  return d;
}

}  // namespace

std::optional<Solution> pack(const SearchSpace& space, const std::vector<Storage>& rooms, const Chooser& chooser,
                             const std::vector<size_t>& options, Board::Prefer prefer, Board& board, Budget& budget,
                             PackingFailure& failure) {
  const Scale scale = scale_of(space, rooms, options);
  std::vector<Demand> demands;
  for (const size_t o : options) demands.push_back(demand_of(space.options[o], scale));
  std::vector<size_t> order(options.size());
  for (int round = 0; round < kRounds; ++round) {
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return demands[b] < demands[a]; });
    board.clear();
    bool complete = true;
    for (const size_t table : order) {
      if (board.place(table, options[table], prefer)) continue;
      failure = {options[table], board.failure()};
      ++demands[table].failures;
      complete = false;
      for (const size_t other : chooser.alternatives(table)) {
        if (other == options[table]) continue;
        complete = board.place(table, other, prefer);
        if (complete) break;
      }
      if (!complete || budget.over()) break;
    }
    if (complete) return board.solution();
    if (budget.over()) break;
  }
  return std::nullopt;
}

}  // namespace tessera
