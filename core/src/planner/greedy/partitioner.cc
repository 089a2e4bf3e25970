#include "planner/greedy/partitioner.h"

#include <algorithm>
#include <numeric>

#include "tessera/abi/sharder.h"

namespace tessera::greedy {

namespace {
constexpr size_t kNobody = SIZE_MAX;
}  // namespace

Partitioner::Partitioner(const Topology& topology, std::vector<Storage> available)
    : topology_(topology),
      available_(std::move(available)),
      at_(static_cast<size_t>(topology.world_size)),
      hosts_(static_cast<size_t>(topology.hosts())),
      host_load_(static_cast<size_t>(topology.hosts())),
      rank_total_(static_cast<size_t>(topology.world_size)) {
  TESSERA_CHECK(available_.size() == at_.size());
}

bool Partitioner::run(std::span<const ShardingOption* const> proposal) {
  proposal_ = proposal;
  for (size_t r = 0; r < at_.size(); ++r) at_[r] = Rank{available_[r], {}, 0};
  int groups = 0;
  for (const ShardingOption* option : proposal) {
    for (const int group : option->apart) groups = std::max(groups, group + 1);
  }
  owner_.assign(static_cast<size_t>(groups) * at_.size(), kNobody);
  failed_ = false;
  order_.clear();
  first_.assign(1, 0);
  for (const ShardingOption* option : proposal) first_.push_back(first_.back() + option->shards.size());
  ranks_.assign(first_.back(), 0);

  for (size_t t = 0; t < proposal.size(); ++t) {
    if (proposal[t]->placement != TSR_PLACE_EVERY_RANK) {
      order_.push_back(t);
    } else if (!place_uniform(t)) {
      return false;
    }
  }
  std::stable_sort(order_.begin(), order_.end(),
                   [&](size_t a, size_t b) { return proposal[b]->total_storage < proposal[a]->total_storage; });
  for (const size_t t : order_) {
    if (!place_table(t)) return false;
  }
  rate();
  return true;
}

bool Partitioner::place_table(size_t table) {
  switch (proposal_[table]->placement) {
    case TSR_PLACE_ANY_RANK:
      return place_on_any(table, 0, topology_.world_size);
    case TSR_PLACE_ONE_HOST:
    case TSR_PLACE_IN_HOST:
      return place_on_host(table);
    default:
      return place_on_hosts(table);
  }
}

bool Partitioner::fits(size_t table, const Storage& storage, int rank) const {
  const auto r = static_cast<size_t>(rank);
  const ShardingOption& option = *proposal_[table];
  return storage.fits_in(at_[r].free) && (option.allowed_ranks.empty() || option.allowed_ranks[r]) &&
         (option.apart.empty() || shares_with_none(table, rank));
}

bool Partitioner::shares_with_none(size_t table, int rank) const {
  return std::all_of(proposal_[table]->apart.begin(), proposal_[table]->apart.end(), [&](int group) {
    const size_t owner = owner_[static_cast<size_t>(group) * at_.size() + static_cast<size_t>(rank)];
    return owner == kNobody || owner == table;
  });
}

void Partitioner::put(size_t table, size_t shard, const Shards::Run& run, int rank) {
  const Shard& s = run.first;
  Rank& r = at_[static_cast<size_t>(rank)];
  r.free -= s.storage;
  r.perf += s.perf;
  r.load = r.perf.total();
  for (const int group : proposal_[table]->apart) {
    owner_[static_cast<size_t>(group) * at_.size() + static_cast<size_t>(rank)] = table;
  }
  ranks_[first_[table] + shard] = rank;
}

bool Partitioner::place_uniform(size_t table) {
  const Shards& shards = proposal_[table]->shards;
  TESSERA_CHECK(shards.size() % at_.size() == 0);
  for (const Shards::Run& run : shards.runs()) {
    for (size_t i = run.begin; i < run.begin + run.count; ++i) {
      const auto rank = static_cast<int>(i % at_.size());
      if (!fits(table, run.first.storage, rank)) {
        note_failure(table, i, rank, 1);
        return false;
      }
      put(table, i, run, rank);
    }
  }
  return true;
}

bool Partitioner::place_on_any(size_t table, int first_rank, int num_ranks) {
  const int local = topology_.local_world_size;
  for (const Shards::Run& run : proposal_[table]->shards.runs()) {
    for (size_t i = run.begin; i < run.begin + run.count; ++i) {
      int best = -1;
      for (int r = first_rank; r < first_rank + num_ranks; ++r) {
        const Rank& candidate = at_[static_cast<size_t>(r)];
        if (best >= 0) {
          const double least = at_[static_cast<size_t>(best)].load;
          if (candidate.load > least || (candidate.load == least && r % local >= best % local)) continue;
        }
        if (fits(table, run.first.storage, r)) best = r;
      }
      if (best < 0) {
        note_failure(table, i, first_rank, num_ranks);
        return false;
      }
      put(table, i, run, best);
    }
  }
  return true;
}

void Partitioner::sort_hosts() {
  const auto local = static_cast<size_t>(topology_.local_world_size);
  for (size_t h = 0; h < host_load_.size(); ++h) {
    double load = 0;
    for (size_t r = h * local; r < (h + 1) * local; ++r) load += at_[r].load;
    host_load_[h] = load;
  }
  std::iota(hosts_.begin(), hosts_.end(), 0);
  std::stable_sort(hosts_.begin(), hosts_.end(), [&](int a, int b) {
    return host_load_[static_cast<size_t>(a)] < host_load_[static_cast<size_t>(b)];
  });
}

bool Partitioner::covers(int host, const Storage& needed) const {
  const int local = topology_.local_world_size;
  Storage free;
  for (int r = host * local; r < (host + 1) * local; ++r) free += at_[static_cast<size_t>(r)].free;
  return needed.fits_in(free);
}

bool Partitioner::place_on_host(size_t table) {
  const ShardingOption& option = *proposal_[table];
  const int local = topology_.local_world_size;
  sort_hosts();
  for (const int host : hosts_) {
    if (!covers(host, option.total_storage)) {
      note_failure(table, 0, host * local, local);
      continue;
    }
    save(host * local, local);
    const bool placed = option.placement == TSR_PLACE_ONE_HOST ? place_in_order(table, std::span<const int>(&host, 1))
                                                               : place_on_any(table, host * local, local);
    if (placed) return true;
    restore(table, host * local);
  }
  return false;
}

bool Partitioner::place_on_hosts(size_t table) {
  const auto local = static_cast<size_t>(topology_.local_world_size);
  const size_t needed = proposal_[table]->shards.size() / local;
  sort_hosts();
  if (needed >= hosts_.size()) return place_in_order(table, hosts_);
  for (size_t first = 0; first + needed <= hosts_.size(); ++first) {
    save(0, topology_.world_size);
    if (place_in_order(table, std::span<const int>(hosts_).subspan(first, needed))) return true;
    restore(table, 0);
  }
  return false;
}

// Puts shard i on the i-th rank of these hosts; after the last rank it begins again at the first.
bool Partitioner::place_in_order(size_t table, std::span<const int> hosts) {
  const auto local = static_cast<size_t>(topology_.local_world_size);
  for (const Shards::Run& run : proposal_[table]->shards.runs()) {
    for (size_t i = run.begin; i < run.begin + run.count; ++i) {
      const int rank = hosts[i / local % hosts.size()] * topology_.local_world_size + static_cast<int>(i % local);
      if (!fits(table, run.first.storage, rank)) {
        note_failure(table, i, rank, 1);
        return false;
      }
      put(table, i, run, rank);
    }
  }
  return true;
}

void Partitioner::save(int first_rank, int num_ranks) {
  saved_.assign(at_.begin() + first_rank, at_.begin() + first_rank + num_ranks);
}

// Removes the table from the ranks where it has been put since save().
void Partitioner::restore(size_t table, int first_rank) {
  std::copy(saved_.begin(), saved_.end(), at_.begin() + first_rank);
  for (const int group : proposal_[table]->apart) {
    const auto owners = owner_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(group) * at_.size());
    std::replace(owners, owners + topology_.world_size, table, kNobody);
  }
}

void Partitioner::note_failure(size_t table, size_t shard, int first_rank, int num_ranks) {
  const Storage needed = proposal_[table]->shards.run_of(shard).first.storage;
  const std::vector<bool>& allowed = proposal_[table]->allowed_ranks;
  for (int r = first_rank; r < first_rank + num_ranks; ++r) {
    if (!allowed.empty() && !allowed[static_cast<size_t>(r)] && num_ranks > 1) continue;
    const Storage& free = at_[static_cast<size_t>(r)].free;
    const Storage missing{std::max<int64_t>(needed.hbm - free.hbm, 0), std::max<int64_t>(needed.ddr - free.ddr, 0),
                          std::max<int64_t>(needed.ssd - free.ssd, 0)};
    if (failed_ && failure_.table == table && failure_.missing <= missing) continue;
    failure_ = {table, shard, r, missing};
    failed_ = true;
  }
}

void Partitioner::rate() {
  std::fill(rank_total_.begin(), rank_total_.end(), 0.0);
  for (size_t t = 0; t < proposal_.size(); ++t) {
    for (const Shards::Run& run : proposal_[t]->shards.runs()) {
      for (size_t i = run.begin; i < run.begin + run.count; ++i) {
        rank_total_[static_cast<size_t>(ranks_[first_[t] + i])] += run.load;
      }
    }
  }
  rating_ = *std::max_element(rank_total_.begin(), rank_total_.end());
}

Partition partition(std::span<const ShardingOption* const> proposal, const Topology& topology,
                    const Storage& available) {
  Partitioner partitioner(topology, std::vector<Storage>(static_cast<size_t>(topology.world_size), available));
  Partition out;
  if (!partitioner.run(proposal)) {
    out.failure = partitioner.failure();
    return out;
  }
  for (size_t t = 0; t < proposal.size(); ++t) {
    const std::span<const int> ranks = partitioner.ranks(t);
    out.ranks.emplace_back(ranks.begin(), ranks.end());
  }
  out.perf_rating = partitioner.perf_rating();
  return out;
}

}  // namespace tessera::greedy
