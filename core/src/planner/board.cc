#include "planner/board.h"

#include <algorithm>
#include <limits>

#include "tessera/abi/sharder.h"

namespace tessera {

namespace {

constexpr size_t kNone = SIZE_MAX;
constexpr double kNever = std::numeric_limits<double>::infinity();

size_t apart_groups(const SearchSpace& space) {
  int groups = 0;
  for (const ShardingOption& o : space.options) {
    for (const int group : o.apart) groups = std::max(groups, group + 1);
  }
  return static_cast<size_t>(groups);
}

int64_t least_missing(const Storage& s) { return std::max({s.hbm, s.ddr, s.ssd}); }

}  // namespace

std::vector<double> rank_loads(const SearchSpace& space, const Solution& solution, int world_size) {
  std::vector<double> loads(static_cast<size_t>(world_size), 0.0);
  for (size_t t = 0; t < solution.options.size(); ++t) {
    for (const Shards::Run& run : space.options[solution.options[t]].shards.runs()) {
      for (size_t i = run.begin; i < run.begin + run.count; ++i) {
        loads[static_cast<size_t>(solution.ranks[t][i])] += run.load;
      }
    }
  }
  return loads;
}

Board::Board(const SearchSpace& space, const Topology& topology, const std::vector<Storage>& rooms, Budget& budget)
    : space_(space), topology_(topology), rooms_(rooms), budget_(budget) {
  clear();
}

void Board::clear() {
  const auto world = static_cast<size_t>(topology_.world_size);
  load_.assign(world, 0.0);
  free_ = rooms_;
  option_.assign(space_.tables(), kNone);
  ranks_.resize(space_.tables());
  pieces_.resize(world);
  for (auto& pieces : pieces_) pieces.clear();
  everywhere_.clear();
  owner_.assign(apart_groups(space_) * world, kNone);
  owned_.assign(owner_.size(), 0);
}

void Board::set(const Solution& solution) {
  clear();
  for (size_t t = 0; t < solution.options.size(); ++t) put(t, solution.options[t], solution.ranks[t]);
}

Solution Board::solution() const {
  Solution out{option_, ranks_, 0};
  const std::vector<double> loads = rank_loads(space_, out, topology_.world_size);
  out.rating = *std::max_element(loads.begin(), loads.end());
  return out;
}

bool Board::allowed(size_t table, int rank) const {
  const ShardingOption& o = option(table);
  const auto r = static_cast<size_t>(rank);
  if (!o.allowed_ranks.empty() && !o.allowed_ranks[r]) return false;
  return std::all_of(o.apart.begin(), o.apart.end(), [&](int group) {
    const size_t owner = owner_[static_cast<size_t>(group) * free_.size() + r];
    return owner == kNone || owner == table;
  });
}

bool Board::fits(size_t table, const Storage& storage, int rank) const {
  return storage.fits_in(free_[static_cast<size_t>(rank)]) && allowed(table, rank);
}

void Board::add(size_t table, size_t shard, const Shards::Run& run, int rank) {
  const auto r = static_cast<size_t>(rank);
  const ShardingOption& o = option(table);
  load_[r] += run.load;
  free_[r] -= run.first.storage;
  ranks_[table][shard] = rank;
  if (o.placement != TSR_PLACE_EVERY_RANK) pieces_[r].push_back({table, shard});
  for (const int group : o.apart) {
    const size_t at = static_cast<size_t>(group) * free_.size() + r;
    owner_[at] = table;
    ++owned_[at];
  }
}

void Board::remove(size_t table, size_t shard, const Shards::Run& run) {
  const auto r = static_cast<size_t>(ranks_[table][shard]);
  const ShardingOption& o = option(table);
  load_[r] -= run.load;
  free_[r] += run.first.storage;
  if (o.placement != TSR_PLACE_EVERY_RANK) {
    const auto found = std::find_if(pieces_[r].begin(), pieces_[r].end(),
                                    [&](const Piece& p) { return p.table == table && p.shard == shard; });
    *found = pieces_[r].back();
    pieces_[r].pop_back();
  }
  for (const int group : o.apart) {
    const size_t at = static_cast<size_t>(group) * free_.size() + r;
    if (--owned_[at] == 0) owner_[at] = kNone;
  }
  ranks_[table][shard] = -1;
}

void Board::put(size_t table, size_t option, const std::vector<int>& ranks) {
  option_[table] = option;
  ranks_[table].assign(ranks.size(), -1);
  for (const Shards::Run& run : space_.options[option].shards.runs()) {
    for (size_t i = run.begin; i < run.begin + run.count; ++i) add(table, i, run, ranks[i]);
  }
  budget_.spend(static_cast<int64_t>(ranks.size()));
  if (space_.options[option].placement == TSR_PLACE_EVERY_RANK) everywhere_.push_back(table);
}

void Board::take(size_t table) {
  for (const Shards::Run& run : option(table).shards.runs()) {
    for (size_t i = run.begin; i < run.begin + run.count; ++i) {
      if (ranks_[table][i] >= 0) remove(table, i, run);
    }
  }
  budget_.spend(static_cast<int64_t>(ranks_[table].size()));
  if (option(table).placement == TSR_PLACE_EVERY_RANK) std::erase(everywhere_, table);
  option_[table] = kNone;
  ranks_[table].clear();
}

bool Board::place(size_t table, size_t option, Prefer prefer) {
  const ShardingOption& o = space_.options[option];
  option_[table] = option;
  ranks_[table].assign(o.shards.size(), -1);
  failed_ = false;
  bool placed = false;
  switch (o.placement) {
    case TSR_PLACE_ANY_RANK:
      placed = place_anywhere(table, prefer, 0, topology_.world_size);
      break;
    case TSR_PLACE_EVERY_RANK:
      placed = place_everywhere(table);
      break;
    case TSR_PLACE_IN_HOST:
      placed = place_in_host(table, prefer);
      break;
    default:
      placed = place_in_order(table);
  }
  if (!placed) take(table);
  return placed;
}

bool Board::place_everywhere(size_t table) {
  const Shards& shards = option(table).shards;
  everywhere_.push_back(table);
  budget_.spend(topology_.world_size);
  for (const Shards::Run& run : shards.runs()) {
    for (size_t i = run.begin; i < run.begin + run.count; ++i) {
      const auto rank = static_cast<int>(i) % topology_.world_size;
      if (!fits(table, run.first.storage, rank)) {
        note_failure(table, i, run.first.storage, rank, 1);
        return false;
      }
      add(table, i, run, rank);
    }
  }
  return true;
}

bool Board::place_anywhere(size_t table, Prefer prefer, int first_rank, int num_ranks) {
  for (const Shards::Run& run : option(table).shards.runs()) {
    const Storage& storage = run.first.storage;
    const auto cost = [&](size_t r) {
      if (prefer == Prefer::kIdle) return load_[r];
      return -static_cast<double>(storage.hbm > 0 ? free_[r].hbm : free_[r].ddr);
    };
    for (size_t i = run.begin; i < run.begin + run.count; ++i) {
      int best = -1;
      double least = kNever;
      for (int r = first_rank; r < first_rank + num_ranks; ++r) {
        const double c = cost(static_cast<size_t>(r));
        if (c < least && fits(table, storage, r)) {
          least = c;
          best = r;
        }
      }
      budget_.spend(num_ranks);
      if (best < 0) {
        note_failure(table, i, storage, first_rank, num_ranks);
        return false;
      }
      add(table, i, run, best);
    }
  }
  return true;
}

// Tries every host, and takes the one whose busiest rank then has the least load.
bool Board::place_in_host(size_t table, Prefer prefer) {
  const int local = topology_.local_world_size;
  const Shards& shards = option(table).shards;
  std::vector<int> best;
  double least = kNever;
  for (int host = 0; host < topology_.hosts(); ++host) {
    const std::vector<double> before = load_;
    const bool placed = place_anywhere(table, prefer, host * local, local);
    if (placed) {
      double worst = 0;
      for (const int r : ranks_[table]) worst = std::max(worst, load_[static_cast<size_t>(r)]);
      if (worst < least) {
        least = worst;
        best = ranks_[table];
      }
    }
    for (const Shards::Run& run : shards.runs()) {
      for (size_t i = run.begin; i < run.begin + run.count; ++i) {
        if (ranks_[table][i] >= 0) remove(table, i, run);
      }
    }
    load_ = before;
  }
  if (best.empty()) return false;
  put(table, option_[table], best);
  return true;
}

// Returns the load of the busiest rank if shards [begin, end) are on the ranks of `host` in order; kNever if they do
// not fit.
double Board::cost_in_order(size_t table, size_t begin, size_t end, int host) const {
  const Shards& shards = option(table).shards;
  double worst = 0;
  for (size_t i = begin; i < end; ++i) {
    const Shards::Run& run = shards.run_of(i);
    const int rank = host * topology_.local_world_size + static_cast<int>(i - begin);
    if (!fits(table, run.first.storage, rank)) return kNever;
    worst = std::max(worst, load_[static_cast<size_t>(rank)] + run.load);
  }
  return worst;
}

// Places each local_world_size consecutive shards on the host whose busiest rank then has the least load. No host gets
// a second such group before every host has one.
bool Board::place_in_order(size_t table) {
  const Shards& shards = option(table).shards;
  const auto local = static_cast<size_t>(topology_.local_world_size);
  std::vector<int> used(static_cast<size_t>(topology_.hosts()), 0);
  for (size_t begin = 0; begin < shards.size(); begin += local) {
    const size_t end = std::min(begin + local, shards.size());
    const int turn = static_cast<int>(begin / local / used.size());
    int best = -1;
    double least = kNever;
    for (int host = 0; host < topology_.hosts(); ++host) {
      if (used[static_cast<size_t>(host)] > turn) continue;
      const double cost = cost_in_order(table, begin, end, host);
      if (cost < least) {
        least = cost;
        best = host;
      }
    }
    budget_.spend(topology_.world_size);
    if (best < 0) {
      for (size_t i = begin; i < end; ++i) {
        for (int host = 0; host < topology_.hosts(); ++host) {
          note_failure(table, i, shards.run_of(i).first.storage,
                       host * topology_.local_world_size + static_cast<int>(i - begin), 1);
        }
      }
      return false;
    }
    ++used[static_cast<size_t>(best)];
    for (size_t i = begin; i < end; ++i) {
      add(table, i, shards.run_of(i), best * topology_.local_world_size + static_cast<int>(i - begin));
    }
  }
  return true;
}

void Board::note_failure(size_t table, size_t shard, const Storage& storage, int first_rank, int num_ranks) {
  for (int r = first_rank; r < first_rank + num_ranks; ++r) {
    if (!allowed(table, r) && num_ranks > 1) continue;
    const Storage& free = free_[static_cast<size_t>(r)];
    const Storage missing{std::max<int64_t>(storage.hbm - free.hbm, 0), std::max<int64_t>(storage.ddr - free.ddr, 0),
                          std::max<int64_t>(storage.ssd - free.ssd, 0)};
    if (failed_ && least_missing(failure_.missing) <= least_missing(missing)) continue;
    failure_ = {table, shard, r, missing};
    failed_ = true;
  }
  if (!failed_) failure_ = {table, shard, -1, {}};
}

bool Board::movable(const Piece& piece) const { return option(piece.table).placement == TSR_PLACE_ANY_RANK; }

bool Board::can_move(const Piece& piece, int rank) const {
  return fits(piece.table, run_of(piece).first.storage, rank);
}

bool Board::can_swap(const Piece& a, const Piece& b) const {
  const Storage& sa = run_of(a).first.storage;
  const Storage& sb = run_of(b).first.storage;
  const int ra = rank_of(a), rb = rank_of(b);
  // A swap moves one piece after the other, so two tables of one apart group could meet on a rank.
  if (!option(a.table).apart.empty() && !option(b.table).apart.empty()) return false;
  Storage left = free_[static_cast<size_t>(rb)];
  left += sb;
  Storage right = free_[static_cast<size_t>(ra)];
  right += sa;
  return sa.fits_in(left) && sb.fits_in(right) && allowed(a.table, rb) && allowed(b.table, ra);
}

void Board::move(const Piece& piece, int rank) {
  const Shards::Run& run = run_of(piece);
  remove(piece.table, piece.shard, run);
  add(piece.table, piece.shard, run, rank);
}

void Board::swap(const Piece& a, const Piece& b) {
  const int ra = rank_of(a), rb = rank_of(b);
  const Piece first = a, second = b;  // copies, because the arguments may be elements of lists that change
  move(first, rb);
  move(second, ra);
}

}  // namespace tessera
