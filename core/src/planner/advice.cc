#include "planner/advice.h"

#include <algorithm>

#include "planner/balanced_search.h"
#include "planner/bundles.h"
#include "planner/reservation.h"
#include "planner/search_space.h"

namespace tessera {

namespace {

constexpr double kShareOfTrial = 0.2;  // share of the remaining budget that a trial may use
constexpr int64_t kPage = 4096;
constexpr int kHalvings = 8;
constexpr int64_t kMostMemory = INT64_MAX / 4;  // the most bytes that a trial adds to a rank
constexpr int kMostMoreHosts = 16;
constexpr size_t kMostTables = 64;  // the most tables that are relaxed one by one

// A constraint that can be dropped.
struct Wish {
  const char* name;  // its key in a config
  bool (*is_set)(const ParameterConstraints&);
  void (*drop)(ParameterConstraints&);
  bool lists_types = false;  // it lists sharding types, and one more may be enough
};

constexpr Wish kWishes[] = {
    {"ranks", [](const ParameterConstraints& c) { return !c.ranks.empty(); },
     [](ParameterConstraints& c) { c.ranks.clear(); }},
    {"forbidden_ranks", [](const ParameterConstraints& c) { return !c.forbidden_ranks.empty(); },
     [](ParameterConstraints& c) { c.forbidden_ranks.clear(); }},
    {"keep_together", [](const ParameterConstraints& c) { return !c.keep_together.empty(); },
     [](ParameterConstraints& c) { c.keep_together.clear(); }},
    {"keep_apart", [](const ParameterConstraints& c) { return !c.keep_apart.empty(); },
     [](ParameterConstraints& c) { c.keep_apart.clear(); }},
    {"max_shards", [](const ParameterConstraints& c) { return c.max_shards > 0; },
     [](ParameterConstraints& c) { c.max_shards = 0; }},
    {"sharding", [](const ParameterConstraints& c) { return !c.sharding_types.empty(); },
     [](ParameterConstraints& c) { c.sharding_types.clear(); }, true},
    {"kernel/kernels", [](const ParameterConstraints& c) { return !c.compute_kernels.empty(); },
     [](ParameterConstraints& c) { c.compute_kernels.clear(); }},
};

class Adviser {
 public:
  Adviser(const Runtime& runtime, const PlannerOptions& options, const std::vector<PlannerModule>& modules,
          Budget& budget)
      : runtime_(runtime), options_(options), modules_(modules), budget_(budget) {}

  std::string run() {
    if (options_.search != PlannerSearch::kBalanced && possible(options_)) {
      return "; it would fit with the balanced search";
    }
    for (const Wish& wish : kWishes) relax(wish);
    more_memory(&Storage::hbm, &Topology::hbm_cap, &Topology::hbm_caps);
    more_memory(&Storage::ddr, &Topology::ddr_cap, &Topology::ddr_caps);
    more_ranks();
    more_memory(&Storage::ssd, &Topology::ssd_cap, &Topology::ssd_caps);
    if (found_.empty()) {
      return budget_.over() ? "; the time limit ended the search for a change that helps"
                            : str_cat("; no single change helps: neither a constraint less, nor more memory, nor ",
                                      kMostMoreHosts, options_.topology.hosts() == 1 ? " more ranks" : " more hosts");
    }
    std::string text = "; it would fit ";
    for (size_t i = 0; i < found_.size(); ++i)
      text += (i == 0 ? "" : i + 1 == found_.size() ? ", or " : ", ") + found_[i];
    return text;
  }

 private:
  bool possible(const PlannerOptions& options) {
    if (budget_.over()) return false;
    try {
      options.topology.validate();
      SearchSpace space = enumerate_within(runtime_, options, modules_, budget_);
      if (!space.together.empty()) space = bundle(space).space;
      const std::vector<Storage> rooms = reserve_storage(modules_, options).per_rank;
      Budget part = Budget::share(budget_, kShareOfTrial);
      return can_be_partitioned({space, options.topology, rooms, options.max_grid_search_proposals}, part);
    } catch (const Error&) {
      return false;  // the changed options are invalid
    }
  }

  // Returns the tables with this constraint. The largest come first, because dropping theirs is most likely to help.
  std::vector<std::string> tables_with(const Wish& wish) const {
    std::vector<std::pair<double, std::string>> found;
    for (const PlannerModule& m : modules_) {
      for (const EmbeddingBagConfig& t : m.tables) {
        const auto c = options_.constraints.find(t.name);
        if (c == options_.constraints.end() || !wish.is_set(c->second)) continue;
        found.emplace_back(-static_cast<double>(t.num_embeddings) * static_cast<double>(t.embedding_dim), t.name);
      }
    }
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::string> names;
    for (auto& [size, name] : found) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    }
    return names;
  }

  void relax(const Wish& wish) {
    const std::vector<std::string> tables = tables_with(wish);
    if (tables.empty()) return;
    PlannerOptions all = options_;
    for (const std::string& name : tables) wish.drop(all.constraints[name]);
    if (!possible(all)) return;
    for (size_t i = 0; i < std::min(tables.size(), kMostTables); ++i) {
      PlannerOptions one = options_;
      wish.drop(one.constraints[tables[i]]);
      if (!possible(one)) continue;
      found_.push_back(smaller_than_dropping(wish, tables[i]));
      return;
    }
    found_.push_back(str_cat("without ", wish.name, " of the ", tables.size(), " tables that have it"));
  }

  // Returns the sharding types that the table could have without its constraint, the fastest first.
  std::vector<std::string> types_without_limits(const std::string& table) const {
    PlannerOptions all = options_;
    all.constraints[table].sharding_types.clear();
    const SearchSpace space = enumerate_within(runtime_, all, modules_, budget_);
    std::vector<const ShardingOption*> options;
    for (const ShardingOption& o : space.options) {
      if (o.name == table) options.push_back(&o);
    }
    std::stable_sort(options.begin(), options.end(), [](const ShardingOption* a, const ShardingOption* b) {
      return a->largest_perf < b->largest_perf;
    });
    std::vector<std::string> types;
    for (const ShardingOption* o : options) {
      if (std::find(types.begin(), types.end(), o->sharding_type) == types.end()) types.push_back(o->sharding_type);
    }
    return types;
  }

  // Describes the change. If the constraint lists sharding types and one more type is enough, it suggests that type.
  std::string smaller_than_dropping(const Wish& wish, const std::string& table) {
    if (wish.lists_types) {
      for (const std::string& type : types_without_limits(table)) {
        PlannerOptions more = options_;
        std::vector<std::string>& types = more.constraints[table].sharding_types;
        if (std::find(types.begin(), types.end(), type) != types.end()) continue;
        types.push_back(type);
        if (possible(more)) return str_cat("if table ", table, " may be ", type);
      }
    }
    return str_cat("without ", wish.name, " of table ", table);
  }

  void more_memory(int64_t Storage::*member, int64_t Topology::*cap, std::vector<int64_t> Topology::*caps) {
    int64_t largest = 0;
    for (int r = 0; r < options_.topology.world_size; ++r) {
      largest = std::max(largest, options_.topology.memory(r).*member);
    }
    const auto with = [&](int64_t more) {
      PlannerOptions out = options_;
      const auto add = [&](int64_t& bytes) { bytes = std::min(bytes, kMostMemory) + more; };
      add(out.topology.*cap);
      for (int64_t& c : out.topology.*caps) add(c);
      return out;
    };
    if (!possible(with(kMostMemory))) return;
    const int64_t first = std::max(kPage, largest / 64);
    int64_t high = first;
    while (high < kMostMemory && !possible(with(high))) high = high > kMostMemory / 4 ? kMostMemory : high * 4;
    if (budget_.over()) return;
    int64_t low = high > first ? high / 4 : 0;
    for (int i = 0; i < kHalvings && high - low > kPage; ++i) {
      const int64_t middle = low + (high - low) / 2;
      (possible(with(middle)) ? high : low) = middle;
    }
    Storage more;
    more.*member = high;
    found_.push_back(str_cat("with ", more.str(), " (", high, " bytes) more on every rank"));
  }

  void more_ranks() {
    const Topology& now = options_.topology;
    for (int more = 1; more <= kMostMoreHosts; more *= 2) {
      PlannerOptions out = options_;
      Topology& t = out.topology;
      if (now.hosts() == 1) t.local_world_size += more;
      t.world_size += now.hosts() == 1 ? more : more * now.local_world_size;
      for (std::vector<int64_t>* caps : {&t.hbm_caps, &t.ddr_caps, &t.ssd_caps}) {
        if (!caps->empty()) caps->resize(static_cast<size_t>(t.world_size), caps->back());
      }
      if (!possible(out)) continue;
      const int ranks = t.world_size - now.world_size;
      found_.push_back(str_cat("with ", ranks, " more rank", ranks == 1 ? "" : "s", " of the same size"));
      return;
    }
  }

  const Runtime& runtime_;
  const PlannerOptions& options_;
  const std::vector<PlannerModule>& modules_;
  Budget& budget_;
  std::vector<std::string> found_;
};

}  // namespace

std::string advice(const Runtime& runtime, const PlannerOptions& options, const std::vector<PlannerModule>& modules,
                   Budget& budget) {
  return Adviser(runtime, options, modules, budget).run();
}

}  // namespace tessera
