#include "planner/search_space.h"

#include <algorithm>
#include <map>
#include <memory>

#include "planner/compute_kernels.h"
#include "planner/cost_model.h"
#include "planner/planned_tables.h"
#include "planner/rank_rules.h"
#include "planner/sharders.h"
#include "planner/torchrec/formulas.h"
#include "planner/torchrec/limits.h"
#include "planner/workload.h"
#include "tessera/runtime.h"
#include "tessera/sdk/nearest.h"

namespace tessera {

namespace {

using Combine = ParameterSharding::Combine;

bool contains(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

std::string list_of(const std::vector<std::string>& names) { return names.empty() ? "none" : sdk::joined(names); }

// The table's sharding types under TorchRec's limits, in TorchRec's order.
std::vector<std::string> sharding_types_within_limits(const PlannedTable& t, const Topology& topology,
                                                      const std::vector<std::string>& installed) {
  const std::vector<std::string>& asked = t.constraints.sharding_types;
  const bool sequences = t.module->kind == PlannerModule::Kind::kEmbeddingCollection;
  std::vector<std::string> types;
  for (const torchrec::KnownSharder& known : torchrec::known_sharders()) {
    if (asked.empty() ? known.only_when_asked : !contains(asked, known.sharding_type)) continue;
    if (!torchrec::within_limits(known, sequences, topology.accelerator())) continue;
    if (asked.empty() && !contains(installed, known.sharding_type)) continue;
    types.push_back(known.sharding_type);
  }
  return types;
}

// The sharding types that the constraint lists, sorted; if it lists none, those that are offered to all tables.
std::vector<std::string> sharding_types_for(const PlannedTable& t, const std::vector<std::string>& installed,
                                            const std::vector<std::string>& offered) {
  if (t.constraints.sharding_types.empty()) return offered;
  std::vector<std::string> types = t.constraints.sharding_types;
  std::sort(types.begin(), types.end());
  types.erase(std::unique(types.begin(), types.end()), types.end());
  for (const std::string& type : types) {
    if (contains(installed, parse_component_name(type).id)) continue;
    throw PlannerError(PlannerError::Kind::kNoOption,
                       str_cat("table ", t.table->name, " asks for sharding type ", type,
                               ", but no such sharder is installed; there are ", list_of(installed)));
  }
  return types;
}

// On a single rank, most types leave a table whole and cost the same, and the first one wins. In TorchRec's order that
// is table_wise and not column_wise.
void in_torchrec_order(std::vector<std::string>& types) {
  const auto known = torchrec::known_sharders();
  const auto place = [&](const std::string& type) {
    return std::find_if(known.begin(), known.end(),
                        [&](const torchrec::KnownSharder& k) { return type == k.sharding_type; });
  };
  std::stable_sort(types.begin(), types.end(),
                   [&](const std::string& a, const std::string& b) { return place(a) < place(b); });
}

// Makes an option without shards; add_shards() adds them with their costs.
ShardingOption option_of(const PlannedTable& t, const std::string& sharding_type, const std::string& compute_kernel,
                         const Layout& layout, const RankRules::OfTable& rules) {
  return {.path = t.module->path,
          .name = t.table->name,
          .sharding_type = sharding_type,
          .compute_kernel = compute_kernel,
          .placement = layout.placement,
          .combine = static_cast<Combine>(layout.combine),
          .routed = layout.routed,
          .cookie = layout.cookie,
          .first_replicated = layout.first_replicated,
          .num_replicated = layout.num_replicated,
          .is_pooled = t.module->kind == PlannerModule::Kind::kEmbeddingBagCollection,
          .is_weighted = t.constraints.is_weighted,
          .input_lengths = t.constraints.pooling_factors,
          .allowed_ranks = rules.allowed,
          .apart = rules.apart};
}

// Adds the layout's shards with their costs. Returns why the compute kernel refuses one of them; empty if it does not.
std::string add_shards(ShardingOption& o, const Layout& layout, const PricedShard& split, const PricedShard& replicated,
                       const CostModel& model) {
  Shard before;
  for (size_t i = 0; i < layout.rectangles.size(); ++i) {
    const tsr_rectangle& r = layout.rectangles[i];
    Shard shard{r.rows, r.cols, r.row, r.col, {}, {}};
    const bool alike = i != layout.first_replicated && i != layout.first_replicated + layout.num_replicated;
    // Most shards have the size of the one before, and so its cost.
    if (!o.shards.empty() && alike && before.rows == r.rows && before.cols == r.cols) {
      shard.storage = before.storage;
      shard.perf = before.perf;
    } else {
      PricedShard priced = layout.is_replicated(i) ? replicated : split;
      priced.rows = r.rows;
      priced.cols = r.cols;
      ShardCost cost = model.cost(priced);
      if (!cost.refusal.empty()) return std::move(cost.refusal);
      shard.storage = cost.storage;
      shard.perf = cost.perf;
    }
    const double total = shard.perf.total();
    o.total_storage += shard.storage;
    o.total_perf += total;
    o.largest_perf = std::max(o.largest_perf, total);
    o.shards.push_back(shard);
    before = shard;
  }
  return "";
}

// True if the layout keeps the constraints on shards. A sharder may ignore them, but broken_constraints() would refuse
// the plan.
bool keeps(const ParameterConstraints& c, const Layout& layout, int64_t cols) {
  if (c.max_shards > 0 && std::ssize(layout.rectangles) > c.max_shards) return false;
  const int64_t least = std::min(c.min_partition, cols);
  return std::all_of(layout.rectangles.begin(), layout.rectangles.end(),
                     [&](const tsr_rectangle& r) { return r.cols >= least; });
}

[[noreturn]] void no_option(const PlannedTable& t, const RankRules::OfTable& rules, const PlannerOptions& options,
                            const std::vector<std::string>& installed, const std::string& refusals) {
  std::string wishes;
  if (!t.constraints.sharding_types.empty()) wishes += " of types " + list_of(t.constraints.sharding_types);
  if (!t.constraints.compute_kernels.empty()) wishes += " with kernels " + list_of(t.constraints.compute_kernels);
  if (!rules.allowed.empty()) {
    wishes += str_cat(" on the ", std::count(rules.allowed.begin(), rules.allowed.end(), true), " ranks allowed");
  }
  if (!rules.apart.empty()) wishes += " apart from other tables";
  if (t.constraints.max_shards > 0) wishes += str_cat(" in at most ", t.constraints.max_shards, " shards");
  const std::string none =
      str_cat("table ", t.table->name, " has no sharding", wishes, " on ", options.topology.compute_device);
  const std::string sharders = str_cat("the sharders installed are ", list_of(installed));
  throw PlannerError(PlannerError::Kind::kNoOption,
                     refusals.empty()
                         ? str_cat(none, t.table->any_id ? ", because ids of any_id have no ranges to split; " : "; ",
                                   sharders, ", so relax the table's constraints")
                         : str_cat(none, " that a kernel serves: ", refusals, " (", sharders, ")"));
}

// Half of the most memory of each kind that any rank has. A shard that fits leaves room for the input and other tables.
Storage half_a_room(const Topology& topology) {
  Storage room;
  for (int rank = 0; rank < topology.world_size; ++rank) {
    const Storage here = topology.memory(rank);
    room = {std::max(room.hbm, here.hbm), std::max(room.ddr, here.ddr), std::max(room.ssd, here.ssd)};
  }
  return {room.hbm / 2, room.ddr / 2, room.ssd / 2};
}

class Enumeration {
 public:
  Enumeration(const Runtime& runtime, const PlannerOptions& options, const std::vector<PlannedTable>& tables,
              Budget& budget)
      : options_(options),
        tables_(tables),
        budget_(budget),
        installed_(runtime.ids(TSR_SHARDER_KIND)),
        sharders_(runtime, options.topology),
        offered_(sharders_.offered()),
        kernels_(runtime, options.kernel, options.topology),
        rules_(rank_rules(tables, options.topology.world_size)),
        room_(half_a_room(options.topology)),
        tied_(tables.size()) {
    for (const PlannedTable& t : tables) {
      PricedTable& priced = priced_.emplace_back(PricedTable{*t.table, &t.constraints, {}});
      if (t.module->kind == PlannerModule::Kind::kEmbeddingCollection) priced.table.pooling = PoolingType::kNone;
      priced.work = workload_of(priced.table, t.constraints, static_cast<double>(options.batch_size));
    }
    model_ = make_cost_model(options, kernels_, priced_);
    for (const auto& group : rules_.together) {
      for (const size_t table : group) tied_[table] = true;
    }
  }

  SearchSpace run() {
    for (size_t t = 0; t < tables_.size(); ++t) add_table(t);
    space_.first.push_back(space_.options.size());
    space_.together = std::move(rules_.together);
    for (const auto& [type, rectangles] : proposed_) space_.sharders.push_back(type);
    space_.figures = model_->figures();
    return std::move(space_);
  }

 private:
  void add_table(size_t index) {
    const PlannedTable& t = tables_[index];
    const size_t first = space_.options.size();
    space_.first.push_back(first);
    find_kernels(index);
    std::vector<std::string> types = options_.torchrec_limits
                                         ? sharding_types_within_limits(t, options_.topology, installed_)
                                         : sharding_types_for(t, installed_, offered_);
    const bool alone = options_.topology.world_size == 1 && !options_.torchrec_limits;
    if (alone) in_torchrec_order(types);
    // The first table gets all types, to see how many layouts each sharder proposes.
    const bool hurried = index > 0 && !tied_[index] && budget_.over();
    if (hurried)
      std::stable_sort(types.begin(), types.end(),
                       [&](const std::string& a, const std::string& b) { return proposed_[a] < proposed_[b]; });
    for (size_t i = 0; i < types.size(); ++i) {
      if (hurried && something_fits(first)) {
        ++space_.narrowed;
        break;
      }
      add_type(index, types[i]);
    }
    if (space_.options.size() == first) no_option(t, rules_.tables[index], options_, installed_, refusals(index));
    const bool updated = !t.table->optimizer.name.empty();  // without an optimizer, only data-parallel options work
    if (alone && updated) leave_out_data_parallel(first);
  }

  // A single rank has no use for data-parallel tables, whose separate update would only cost time.
  void leave_out_data_parallel(size_t first) {
    const auto begin = space_.options.begin() + static_cast<std::ptrdiff_t>(first);
    const auto data_parallel = std::stable_partition(
        begin, space_.options.end(), [](const ShardingOption& o) { return o.combine != Combine::kDataParallel; });
    if (data_parallel != begin) space_.options.erase(data_parallel, space_.options.end());
  }

  // Sets table_kernels_ for a table. Under TorchRec's limits these are TorchRec's kernels, not those of the plugins.
  void find_kernels(size_t index) {
    const PricedTable& t = priced_[index];
    const std::vector<std::string>& asked = t.constraints->compute_kernels;
    refused_.clear();
    table_kernels_.clear();
    const auto offer = [&](const ComputeKernel& kernel) {
      if ((asked.empty() || contains(asked, kernel.name)) && model_->knows(kernel)) table_kernels_.push_back(&kernel);
    };
    if (!options_.torchrec_limits) {
      for (const ComputeKernel& kernel : kernels_.serving(t.table, asked)) offer(kernel);
      return;
    }
    for (const torchrec::KernelCost& kernel : torchrec::kernel_costs()) {
      const bool here = kernel.accelerator == options_.topology.accelerator();
      if (here && kernel.infers == t.table.row_format.has_value())
        offer(kernels_.named(t.table, kernel.compute_kernel));
    }
  }

  // The reasons why kernels do not serve the table; empty if something else is missing.
  std::string refusals(size_t index) {
    const bool cut = priced_[index].table.any_id && !table_kernels_.empty();  // there are kernels, but no layout
    if (options_.torchrec_limits || !refused_.empty() || cut) return refused_;
    std::vector<std::string> names = priced_[index].constraints->compute_kernels;
    if (names.empty()) names = {TSR_COMPUTE_FUSED, TSR_COMPUTE_DENSE};
    if (priced_[index].table.row_format) names = {TSR_COMPUTE_QUANT};
    std::string out;
    for (const std::string& name : names) {
      const std::string why = kernels_.why_not(priced_[index].table, name);
      if (!why.empty() && out.find(why) == std::string::npos) out += str_cat(out.empty() ? "" : "; ", why);
    }
    return out;
  }

  bool something_fits(size_t first) const {
    return std::any_of(space_.options.begin() + static_cast<std::ptrdiff_t>(first), space_.options.end(),
                       [&](const ShardingOption& o) {
                         for (size_t s = 0; s < o.shards.size(); ++s) {
                           if (!o.shards[s].storage.fits_in(room_)) return false;
                         }
                         return true;
                       });
  }

  void add_type(size_t index, const std::string& type) {
    // The units of the budget that a rectangle takes to be proposed, checked, priced and kept.
    constexpr int64_t kUnits = 20;
    const PlannedTable& t = tables_[index];
    const RankRules::OfTable& rules = rules_.tables[index];
    const EmbeddingBagConfig& table = priced_[index].table;
    const bool anywhere = rules.allowed.empty() && rules.apart.empty();
    int64_t proposed = 0;
    for (const Layout& layout :
         sharders_.propose(type, table, {t.constraints.min_partition, t.constraints.max_shards})) {
      proposed += std::ssize(layout.rectangles);
      if (layout.placement == TSR_PLACE_EVERY_RANK && !anywhere) continue;
      if (!keeps(t.constraints, layout, table.embedding_dim)) continue;
      for (const ComputeKernel* kernel : table_kernels_) {
        if (!kernel->holds(layout.combine == TSR_COMBINE_REPLICA)) continue;
        ShardingOption& option = space_.options.emplace_back(option_of(t, type, kernel->name, layout, rules));
        if (layout.combine != TSR_COMBINE_REPLICA && options_.topology.world_size > 1)
          option.distinct_ids =
              distinct_share(*t.table, !option.is_pooled, t.constraints, static_cast<double>(options_.batch_size));
        const auto pieces = static_cast<int64_t>(layout.rectangles.size() - layout.num_replicated);
        const PricedShard split{index, option.combine, *kernel, 0, 0, pieces};
        // Replicated rows need a kernel that hands their gradients out.
        const bool alone = layout.num_replicated == 0 || kernel->infers;
        const ComputeKernel& of_replicated = alone ? *kernel : kernels_.named(table, TSR_COMPUTE_DENSE);
        const PricedShard replicated{index, Combine::kDataParallel, of_replicated, 0, 0, pieces};
        std::string refusal = add_shards(option, layout, split, replicated, *model_);
        if (refusal.empty()) continue;
        space_.options.pop_back();
        refused_ = std::move(refusal);
      }
    }
    proposed_[type] = proposed;
    budget_.spend(kUnits * proposed);
  }

  const PlannerOptions& options_;
  const std::vector<PlannedTable>& tables_;
  Budget& budget_;
  const std::vector<std::string> installed_;
  Sharders sharders_;
  const std::vector<std::string> offered_;
  ComputeKernels kernels_;
  std::vector<PricedTable> priced_;
  std::vector<const ComputeKernel*> table_kernels_;  // for the table being added
  std::string refused_;                              // why a kernel refused one of its shards, if one did
  RankRules rules_;
  const Storage room_;
  std::vector<bool> tied_;  // for each table, true if it is kept together with others
  std::unique_ptr<CostModel> model_;
  std::map<std::string, int64_t> proposed_;  // by sharding type, the rectangles proposed for the last table that had it
  SearchSpace space_;
};

}  // namespace

SearchSpace enumerate_within(const Runtime& runtime, const PlannerOptions& options,
                             const std::vector<PlannerModule>& modules, Budget& budget) {
  const std::vector<PlannedTable> tables = tables_in_search_order(modules, options);
  return Enumeration(runtime, options, tables, budget).run();
}

SearchSpace enumerate(const Runtime& runtime, const PlannerOptions& options,
                      const std::vector<PlannerModule>& modules) {
  Budget endless(0);
  return enumerate_within(runtime, options, modules, endless);
}

}  // namespace tessera
