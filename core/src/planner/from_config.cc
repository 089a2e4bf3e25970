#include <algorithm>
#include <filesystem>

#include "planner/system_memory.h"
#include "tessera/abi/kernel.h"
#include "tessera/config.h"
#include "tessera/planner.h"

namespace tessera {

namespace {

ParameterConstraints constraints_of(const TableConfig& table) {
  ParameterConstraints c{.sharding_types = table.sharding, .compute_kernels = table.compute_kernels};
  if (c.compute_kernels.empty() && table.compute_kernel != "auto") {
    c.compute_kernels = {table.compute_kernel};
    // Data-parallel tables have no fused update, because their gradients are averaged first.
    if (table.compute_kernel == TSR_COMPUTE_FUSED) c.compute_kernels.emplace_back(TSR_COMPUTE_DENSE);
  }
  c.min_partition = table.min_partition;
  c.max_shards = table.max_shards;
  c.ranks.assign(table.ranks.begin(), table.ranks.end());
  c.forbidden_ranks.assign(table.forbidden_ranks.begin(), table.forbidden_ranks.end());
  c.keep_together = table.keep_together;
  c.keep_apart = table.keep_apart;
  const size_t inputs = std::max<size_t>(1, table.features.size());
  if (table.pooling_factor.size() == 1) {
    c.pooling_factors.assign(inputs, table.pooling_factor.front());
  } else if (table.pooling_factor.empty()) {
    c.pooling_factors.assign(inputs, 1.0);
  } else if (table.pooling_factor.size() == inputs) {
    c.pooling_factors = table.pooling_factor;
  } else {
    fail(Code::kInvalidArgument, "table ", table.name, ": pooling_factor has ", table.pooling_factor.size(),
         " numbers for ", inputs, " features; give one for each or one for all");
  }
  return c;
}

// The default folder of kernels that keep tables in files. It is on a disk even if /tmp is in memory.
constexpr const char* kFilesAt = "/var/tmp";

// Returns 0 if there is no such folder.
int64_t free_for_files() {
  std::error_code none;
  const std::filesystem::space_info space = std::filesystem::space(kFilesAt, none);
  return none ? 0 : static_cast<int64_t>(std::min<uintmax_t>(space.available, INT64_MAX));
}

std::string note(const char* memory, const std::string& is, int ranks) {
  return str_cat(memory, " is what ", is, ", in equal parts for ", ranks, " ranks: planner.", memory,
                 "_gib overrides it");
}

}  // namespace

PlannerOptions planner_options(const Config& config, const std::vector<TableConfig>& tables, int world_size,
                               int local_world_size, const ComputeDevice& device) {
  PlannerOptions out;
  const auto per_host =
      config.planner.local_world_size > 0 ? static_cast<int>(config.planner.local_world_size) : local_world_size;
  out.topology = Topology::of(world_size, per_host, device);
  const PlannerConfig& said = config.planner;
  const int sharers = out.topology.local_world_size;
  if (Topology::leaves_open(said.ddr_gib)) {
    const SystemMemory here = system_memory();
    out.topology.ddr_cap = here.available / sharers;
    out.topology.ddr_note = note("ddr", here.bound_by + " has left", sharers);
  }
  if (Topology::leaves_open(said.ssd_gib)) {
    out.topology.ssd_cap = free_for_files() / sharers;
    out.topology.ssd_note = note("ssd", str_cat("the disk of ", kFilesAt, " has free"), sharers);
  }
  out.topology.set_memory_gib(said.hbm_gib, said.ddr_gib, said.ssd_gib);
  out.search = planner_search_from(config.planner.search);
  out.time_limit_s = config.planner.time_limit_s;
  out.batch_size = std::max<int64_t>(1, (config.data.batch + world_size - 1) / world_size);
  out.cost_model = config.planner.cost_model;
  if (!config.planner.topology.empty()) {
    out.machine = load_machine(config.planner.topology);
    out.machine->check_fits(world_size, out.topology.local_world_size, device.id);
  }
  out.kernel = config.job.kernel_plugin;
  for (const TableConfig& table : tables) out.constraints[table.name] = constraints_of(table);
  return out;
}

std::vector<EmbeddingBagConfig> embedding_configs(const std::vector<TableConfig>& tables) {
  std::vector<EmbeddingBagConfig> out;
  for (const TableConfig& t : tables) {
    EmbeddingBagConfig c;
    c.name = t.name;
    c.num_embeddings = t.rows;
    c.any_id = t.any_id;
    c.use_index_dedup = t.use_index_dedup;
    c.embedding_dim = t.embedding_dim;
    c.feature_names = t.features;
    c.pooling = pooling_from(t.pooling);
    c.data_type = dtype_from(t.data_type);
    c.init_range = t.init_range;
    c.optimizer = {t.optimizer.name, t.optimizer.options, t.max_gradient};
    out.push_back(std::move(c));
  }
  return validated(std::move(out));
}

}  // namespace tessera
