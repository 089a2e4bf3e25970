#include "planner/search_space.h"

#include <algorithm>

#include "planner/constraints.h"
#include "planner/cost_model.h"

namespace tessera {

namespace {

using Combine = ParameterSharding::Combine;

// The sharders that TorchRec has, in its order, and where it offers them.
struct KnownSharder {
  const char* sharding_type;
  bool only_when_asked;
  bool cpu_bags, cpu_sequences, accelerator_bags, accelerator_sequences;  // under PlannerOptions::torchrec_limits
};
constexpr KnownSharder kKnownSharders[] = {
    {"data_parallel", false, true, true, true, true}, {"table_wise", false, true, true, true, true},
    {"column_wise", false, true, true, true, true},   {"table_column_wise", false, true, false, true, false},
    {"row_wise", false, false, true, true, true},     {"table_row_wise", false, false, false, true, false},
    {"grid_shard", true, false, false, true, false},
};

bool contains(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool within_limits(const KnownSharder& known, bool sequences, bool accelerator) {
  if (accelerator) return sequences ? known.accelerator_sequences : known.accelerator_bags;
  return sequences ? known.cpu_sequences : known.cpu_bags;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text.empty() ? "none" : text;
}

// Known ones in TorchRec's order; then, in the constraint's order, those that only the constraint knows.
std::vector<std::string> sharding_types_for(const PlannedTable& t, const PlannerOptions& options,
                                            const std::vector<std::string>& installed) {
  const std::vector<std::string>& asked = t.constraints->sharding_types;
  const bool sequences = t.module->kind == PlannerModule::Kind::kEmbeddingCollection;
  std::vector<std::string> types;
  for (const KnownSharder& known : kKnownSharders) {
    if (asked.empty() ? known.only_when_asked : !contains(asked, known.sharding_type)) continue;
    if (options.torchrec_limits && !within_limits(known, sequences, options.topology.accelerator())) continue;
    if (asked.empty() && !contains(installed, known.sharding_type)) continue;
    types.push_back(known.sharding_type);
  }
  for (const std::string& type : asked) {
    const bool known = std::any_of(std::begin(kKnownSharders), std::end(kKnownSharders),
                                   [&](const KnownSharder& k) { return k.sharding_type == type; });
    if (known || options.torchrec_limits || contains(types, type)) continue;
    types.push_back(type);
  }
  if (options.torchrec_limits) return types;
  for (const std::string& type : types) {
    if (contains(installed, type)) continue;
    throw PlannerError(PlannerError::Kind::kNoOption,
                       cat("table ", t.table->name, " asks for sharding type ", type,
                           ", and no such sharder is installed; there are ", list_of(installed)));
  }
  return types;
}

// Without costs: the caller adds them shape by shape.
ShardingOption option_of(const PlannedTable& t, const std::string& sharding_type, const char* compute_kernel,
                         const Layout& layout, const RankRules::OfTable& rules) {
  ShardingOption o;
  o.path = t.module->path;
  o.name = t.table->name;
  o.sharding_type = sharding_type;
  o.compute_kernel = compute_kernel;
  o.placement = layout.placement;
  o.combine = static_cast<Combine>(layout.combine);
  o.routed = layout.routed;
  o.is_pooled = t.module->kind == PlannerModule::Kind::kEmbeddingBagCollection;
  o.is_weighted = t.constraints->is_weighted;
  o.input_lengths = t.constraints->pooling_factors;
  o.allowed_ranks = rules.allowed;
  o.apart = rules.apart;
  return o;
}

void add_shards(ShardingOption& o, const Layout& layout, PricedShard priced, const CostModel& model) {
  Shard before;
  for (const tsr_rectangle& r : layout.rectangles) {
    Shard shard{r.rows, r.cols, r.row, r.col, {}, {}};
    if (!o.shards.empty() && before.rows == r.rows && before.cols == r.cols) {  // most shards are alike
      shard.storage = before.storage;
      shard.perf = before.perf;
    } else {
      priced.rows = r.rows;
      priced.cols = r.cols;
      shard.storage = model.storage(priced);
      shard.perf = model.perf(priced);
    }
    const double total = shard.perf.total();
    o.total_storage += shard.storage;
    o.total_perf += total;
    o.largest_perf = std::max(o.largest_perf, total);
    o.shards.push_back(shard);
    before = shard;
  }
}

bool offered(const KernelCost& kernel, const Layout& layout, const PlannedTable& t, const PlannerOptions& options) {
  const std::vector<std::string>& asked = t.constraints->compute_kernels;
  return kernel.accelerator == options.topology.accelerator() && kernel.infers == t.table->row_format.has_value() &&
         kernel.replicas == (layout.combine == TSR_COMBINE_REPLICA) &&
         (asked.empty() || contains(asked, kernel.compute_kernel));
}

[[noreturn]] void no_option(const PlannedTable& t, const RankRules::OfTable& rules, const PlannerOptions& options,
                            const std::vector<std::string>& installed) {
  std::string wishes;
  if (!t.constraints->sharding_types.empty()) wishes += " of types " + list_of(t.constraints->sharding_types);
  if (!t.constraints->compute_kernels.empty()) wishes += " with kernels " + list_of(t.constraints->compute_kernels);
  if (!rules.allowed.empty()) {
    wishes += cat(" on the ", std::count(rules.allowed.begin(), rules.allowed.end(), true), " ranks allowed");
  }
  if (!rules.apart.empty()) wishes += " apart from other tables";
  if (t.constraints->max_shards > 0) wishes += cat(" in at most ", t.constraints->max_shards, " shards");
  throw PlannerError(PlannerError::Kind::kNoOption,
                     cat("table ", t.table->name, " has no sharding", wishes, " on ", options.topology.compute_device,
                         "; the sharders installed are ", list_of(installed), ", so relax the table's constraints"));
}

}  // namespace

SearchSpace enumerate_options(const std::vector<PlannedTable>& tables, const PlannerOptions& options,
                              Sharders& sharders, const std::vector<std::string>& installed, const CostModel& model) {
  SearchSpace space;
  RankRules rules = rank_rules(tables, options.topology.world_size);
  for (size_t index = 0; index < tables.size(); ++index) {
    const PlannedTable& t = tables[index];
    const RankRules::OfTable& here = rules.tables[index];
    space.first.push_back(space.options.size());
    EmbeddingBagConfig table = *t.table;
    if (t.module->kind == PlannerModule::Kind::kEmbeddingCollection) table.pooling = PoolingType::kNone;
    const Workload work = workload_of(table, *t.constraints, static_cast<double>(options.batch_size));
    for (const std::string& type : sharding_types_for(t, options, installed)) {
      for (const Layout& layout :
           sharders.propose(type, table, {t.constraints->min_partition, t.constraints->max_shards})) {
        const bool anywhere = here.allowed.empty() && here.apart.empty();
        if (layout.placement == TSR_PLACE_EVERY_RANK && !anywhere) continue;
        if (t.constraints->max_shards > 0 && std::ssize(layout.rectangles) > t.constraints->max_shards) continue;
        for (const KernelCost& kernel : kernel_costs()) {
          if (!offered(kernel, layout, t, options)) continue;
          space.options.push_back(option_of(t, type, kernel.compute_kernel, layout, here));
          add_shards(space.options.back(), layout,
                     {table, *t.constraints, work, layout_cost(space.options.back().combine), kernel, 0, 0,
                      std::ssize(layout.rectangles)},
                     model);
        }
      }
    }
    if (space.options.size() == space.first.back()) no_option(t, here, options, installed);
  }
  space.first.push_back(space.options.size());
  space.together = std::move(rules.together);
  return space;
}

}  // namespace tessera
