// Makes tables whose sizes and pooling factors are as skewed as in production, for tests and `tessera bench plan`.
//
// The figures are from "locality_stats_2021.txt" of github.com/facebookresearch/dlrm_datasets (MIT licence): one batch
// of 65,536 samples for 856 tables has 887,017,990 ids of 128,435,723 different rows. Only these sums and the
// distribution of how often a row is used are published, not single tables. So a table's pooling factor and its number
// of rows are two independent draws from that distribution, scaled to the mean ids per sample and to the memory to be
// filled.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tessera/planner.h"

namespace tessera {

struct SkewedTables {
  int count = 856;
  double fill = 0.5;  // share of the memory of all ranks that the tables' rows take
  uint32_t seed = 1;
  Topology topology;
  int64_t batch_size = 512;  // per rank

  // The result is the same on every machine.
  std::pair<std::vector<PlannerModule>, PlannerOptions> make() const {
    constexpr double kIdsPerTable = 887017990.0 / 65536 / 856;
    constexpr int64_t kWidths[] = {16, 32, 64, 64, 128, 128, 256};
    std::mt19937 random(seed);
    PlannerModule module;
    PlannerOptions options{.topology = topology, .batch_size = batch_size};
    std::vector<double> rows;
    double bytes = 0;
    for (int t = 0; t < count; ++t) {
      EmbeddingBagConfig table;
      table.name = "t" + std::to_string(t);
      table.feature_names = {table.name};
      table.embedding_dim = kWidths[random() % std::size(kWidths)];
      rows.push_back(reuse(random));
      bytes += rows.back() * static_cast<double>(table.embedding_dim) * 4;
      options.constraints[table.name].pooling_factors = {kIdsPerTable / kMeanReuse * reuse(random)};
      module.tables.push_back(std::move(table));
    }
    const Storage memory = topology.memory(0);
    const double room = static_cast<double>(topology.accelerator() ? memory.hbm : memory.ddr) * topology.world_size;
    for (size_t t = 0; t < rows.size(); ++t) {
      module.tables[t].num_embeddings = std::max<int64_t>(1, static_cast<int64_t>(rows[t] * fill * room / bytes));
    }
    std::vector<PlannerModule> modules;
    modules.push_back(std::move(module));
    return {std::move(modules), std::move(options)};
  }

 private:
  static constexpr double kMeanReuse = 6.9;
  // Draws how often a row is used: 47.3 % of the rows up to once, 15.2 % up to twice, ... up to 512 times.
  static double reuse(std::mt19937& random) {
    constexpr double kShares[] = {0.473, 0.152, 0.139, 0.112, 0.072, 0.032, 0.011, 0.005, 0.002, 0.001};
    const auto uniform = [&] { return (static_cast<double>(random()) + 0.5) / 4294967296.0; };
    double share = uniform() * 0.999;
    size_t bucket = 0;
    while (bucket + 1 < std::size(kShares) && share >= kShares[bucket]) share -= kShares[bucket++];
    return std::exp2(static_cast<double>(bucket) - uniform());
  }
};

}  // namespace tessera
