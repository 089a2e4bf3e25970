// Tables, plans and batches that `bench step` and `bench train` share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "tessera/data.h"
#include "tessera/embedding_configs.h"
#include "tessera/jagged_tensor.h"
#include "tessera/process_group.h"
#include "tessera/sharding.h"

namespace tessera::cli {

struct ShardedWorkload {
  int64_t tables = 26;  // ignored for criteo:CAP
  std::string rows =
      "criteo:100000";  // rows of every table; criteo:CAP means the 26 cardinalities of Criteo-Kaggle, at most CAP each
  int64_t dim = 16;
  int64_t batch = 256;  // batch size per rank
  int64_t pooling = 1;
  std::string sharding = "table_wise";
};

// The settings of a bench over ranks, and its workload.
struct ShardedBench {
  CommonOptions common;
  ShardedWorkload workload;                       // `sharding` is a list right after parsing
  std::string kernel = "auto", backend = "auto";  // lists right after parsing
  std::string dims = "16", batches = "256";       // lists
  int nproc = kNotAsked;                          // replaced by the number of ranks when parsed
  int steps_per_round = 10;
};

// Adds the options of both to `options`, reads `args` and refuses impossible values. Returns false if help was printed.
bool parse(Options& options, const std::vector<std::string>& args, ShardedBench* bench);

// One bench for each combination of --dim, --batch, --backend, --sharding and --kernel; the last varies fastest.
std::vector<ShardedBench> alternatives(const ShardedBench& bench);

// Runs the rounds of all subjects in turn, together on all ranks of `control`. Rank 0 prints each subject's
// take_line().
template <class Subject>
void run_rounds(const CommonOptions& common, const ProcessGroup& control,
                const std::vector<std::unique_ptr<Subject>>& subjects) {
  Rounds rounds(common);
  Report report(common);
  const auto print = [&] {
    for (const auto& subject : subjects) {
      const Line line = subject->take_line();
      if (control.rank() == 0) report.line(line);
    }
  };
  while (rounds.next_together(control)) {
    for (const auto& subject : subjects) subject->round();
    if (rounds.print_each()) print();
  }
  if (!rounds.print_each()) print();
}

// Tables t0, t1, ... with features f0, f1, ...; throws UsageError for impossible rows.
std::vector<EmbeddingBagConfig> workload_tables(const ShardedWorkload& w);

// A plan that gives every table to the sharder named in the workload; tables that do not use all ranks take turns.
// Column shards have at least `min_partition` columns; 0: as the sharder likes.
EmbeddingModuleShardingPlan workload_plan(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
                                          const std::string& sharding, const Topology& topology,
                                          int64_t min_partition = 0);

// `count` batches with uniform ids, different on each rank.
std::vector<KeyedJaggedTensor> workload_batches(const std::vector<EmbeddingBagConfig>& tables, const ShardedWorkload& w,
                                                int rank, int count);

}  // namespace tessera::cli
