#include "planner/greedy/proposers.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <unordered_set>

#include "tessera/sdk/random.h"

namespace tessera::greedy {

namespace {

// The options of each table, ordered by a time. Options with equal times keep the search order.
using Ranking = std::vector<std::vector<size_t>>;

Ranking ranked_by(const SearchSpace& space, double ShardingOption::*time) {
  Ranking out(space.tables());
  for (size_t t = 0; t < out.size(); ++t) {
    out[t].resize(space.first[t + 1] - space.first[t]);
    std::iota(out[t].begin(), out[t].end(), space.first[t]);
    std::stable_sort(out[t].begin(), out[t].end(),
                     [&](size_t a, size_t b) { return space.options[a].*time < space.options[b].*time; });
  }
  return out;
}

// Lets each proposal pass only once. It recognises proposals by a 128-bit sum of their options' fingerprints.
class Unseen {
 public:
  explicit Unseen(const ProposalSink& sink) : sink_(sink) {}
  // Returns false if no more proposals are wanted.
  bool operator()(const std::vector<size_t>& proposal) {
    Key key{0, 0};
    for (const size_t option : proposal) {
      key.low += sdk::Random(option + 1).bits();
      key.high += sdk::Random(~static_cast<uint64_t>(option)).bits();
    }
    if (wanted_ && seen_.insert(key).second) wanted_ = sink_(proposal);
    return wanted_;
  }

 private:
  struct Key {
    uint64_t low, high;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const { return static_cast<size_t>(key.low ^ key.high); }
  };
  const ProposalSink& sink_;
  std::unordered_set<Key, Hash> seen_;
  bool wanted_ = true;
};

// Proposes all combinations. The last table's option changes fastest.
void grid_search(const Ranking& ranking, int64_t limit, Unseen& sink) {
  int64_t count = 1;
  for (const auto& options : ranking) {
    count *= static_cast<int64_t>(options.size());
    if (count > limit) return;
  }
  std::vector<size_t> digit(ranking.size(), 0);
  std::vector<size_t> proposal(ranking.size());
  for (int64_t i = 0; i < count; ++i) {
    for (size_t t = 0; t < ranking.size(); ++t) proposal[t] = ranking[t][digit[t]];
    if (!sink(proposal)) return;
    for (size_t t = ranking.size(); t-- > 0;) {
      if (++digit[t] < ranking[t].size()) break;
      digit[t] = 0;
    }
  }
}

// The memory that an option takes. Greedy first replaces the option that takes most.
using Appetite = std::array<int64_t, 4>;

Appetite appetite_of(const ShardingOption& option) {
  Appetite out{};
  for (const Shards::Run& run : option.shards.runs()) {
    out[0] = std::max(out[0], run.first.storage.hbm);
    out[2] = std::max(out[2], run.first.storage.ddr);
  }
  out[1] = option.total_storage.hbm;
  out[3] = option.total_storage.ddr;
  return out;
}

// Begins with every table's fastest option, and in each step moves one table to its next option.
void greedy(const SearchSpace& space, const Ranking& ranking, const std::vector<Appetite>& appetite, Unseen& sink) {
  std::vector<size_t> next(ranking.size(), 0);
  std::vector<size_t> proposal(ranking.size());
  for (size_t t = 0; t < ranking.size(); ++t) proposal[t] = ranking[t][0];
  for (size_t steps = space.options.size(); steps > 0; --steps) {
    if (!sink(proposal)) return;
    Appetite largest{};
    size_t moved = ranking.size();
    for (size_t t = 0; t < ranking.size(); ++t) {
      if (next[t] + 1 >= ranking[t].size() || appetite[proposal[t]] <= largest) continue;
      largest = appetite[proposal[t]];
      moved = t;
    }
    if (moved == ranking.size()) return;
    proposal[moved] = ranking[moved][++next[moved]];
  }
}

// Proposes one sharding type for all tables.
void uniform(const SearchSpace& space, const Ranking& by_largest_shard, Unseen& sink) {
  std::vector<std::string> types;
  for (const ShardingOption& o : space.options) {
    if (std::find(types.begin(), types.end(), o.sharding_type) == types.end()) types.push_back(o.sharding_type);
  }
  std::vector<size_t> proposal(by_largest_shard.size());
  for (const std::string& type : types) {
    bool complete = true;
    for (size_t t = 0; t < proposal.size() && complete; ++t) {
      const auto found = std::find_if(by_largest_shard[t].begin(), by_largest_shard[t].end(),
                                      [&](size_t o) { return space.options[o].sharding_type == type; });
      complete = found != by_largest_shard[t].end();
      if (complete) proposal[t] = *found;
    }
    if (complete && !sink(proposal)) return;
  }
}

}  // namespace

void propose_all(const SearchSpace& space, int64_t max_grid_search_proposals, const ProposalSink& sink) {
  const Ranking by_largest_shard = ranked_by(space, &ShardingOption::largest_perf);
  std::vector<Appetite> appetite(space.options.size());
  std::transform(space.options.begin(), space.options.end(), appetite.begin(), appetite_of);
  Unseen unseen(sink);
  grid_search(by_largest_shard, max_grid_search_proposals, unseen);
  greedy(space, by_largest_shard, appetite, unseen);
  greedy(space, ranked_by(space, &ShardingOption::total_perf), appetite, unseen);
  uniform(space, by_largest_shard, unseen);
}

}  // namespace tessera::greedy
