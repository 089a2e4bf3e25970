// TorchRec's sharding tutorial: two large and two small tables on two ranks, with each sharding type that it shows.
//
//   tessera launch -n 2 -- sharding_tutorial
//
// Every rank prints its plan as the tutorial prints it (planned for two GPUs of one host), then runs that plan on the
// CPU, forward and backward, and compares the sharded collection with the unsharded one.
#include <algorithm>
#include <cmath>
#include <iostream>

#include "tessera/embedding_modules.h"
#include "tessera/planner.h"
#include "tessera/process_group.h"
#include "tessera/sharded_modules.h"

namespace {

using namespace tessera;

std::vector<EmbeddingBagConfig> tutorial_tables() {
  std::vector<EmbeddingBagConfig> tables;
  for (const auto& [size, rows] : {std::pair{"large", 4096}, std::pair{"small", 1024}}) {
    for (int i = 0; i < 2; ++i) {
      EmbeddingBagConfig table;
      table.name = str_cat(size, "_table_", i);
      table.num_embeddings = rows;
      table.embedding_dim = 64;
      table.feature_names = {str_cat(size, "_table_feature_", i)};
      tables.push_back(table);
    }
  }
  return validated(std::move(tables));
}

ShardingPlan plan_for(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
                      const std::string& sharding_type) {
  PlannerOptions options;
  options.topology = Topology::of(2, 2, "cuda");
  options.torchrec_limits = true;
  options.cost_model = "torchrec";
  options.search = PlannerSearch::kTorchrec;
  for (const EmbeddingBagConfig& table : tables) {
    ParameterConstraints& constraints = options.constraints[table.name];
    constraints.sharding_types = {sharding_type};
    constraints.min_partition = 32;  // splits 64 columns into two shards
  }
  PlannerModule root;
  root.tables = tables;
  return EmbeddingShardingPlanner(runtime, options).plan({root}).plan;
}

// Bags of 0 to 3 ids, different on each rank.
KeyedJaggedTensor batch_of(const std::vector<EmbeddingBagConfig>& tables, int rank) {
  constexpr int kBatch = 8;
  std::vector<std::string> keys;
  std::vector<int64_t> values;
  std::vector<int32_t> lengths;
  for (const EmbeddingBagConfig& table : tables) {
    keys.push_back(table.feature_names.front());
    for (int sample = 0; sample < kBatch; ++sample) {
      lengths.push_back((sample + rank) % 4);
      for (int i = 0; i < lengths.back(); ++i) {
        values.push_back((1009 * (sample + 1) * (i + 3) + 17 * rank) % table.num_embeddings);
      }
    }
  }
  return KeyedJaggedTensor::from_lengths_sync(keys, Tensor::from(values), Tensor::from(lengths));
}

double largest_difference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) fail(Code::kInternal, "the outputs have different shapes");
  double worst = 0;
  for (int64_t i = 0; i < a.numel(); ++i) worst = std::max(worst, std::fabs(a.item(i) - b.item(i)));
  return worst;
}

// Runs the plan on the CPU: a forward pass, a backward pass that updates the tables, a forward pass over the updated
// rows. Returns the largest difference between the sharded and the unsharded collection's outputs.
double run(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables, const ShardingPlan& plan,
           const std::shared_ptr<ProcessGroup>& group) {
  const OptimizerSpec sgd = {"exact_sgd", R"({"learning_rate": 0.1})"};
  const KeyedJaggedTensor batch = batch_of(tables, group->rank());

  EmbeddingBagCollection unsharded(runtime, {.tables = tables, .optimizer = sgd, .seed = 1});
  const EmbeddingBagCollectionSharder sharder(runtime, {.optimizer = sgd, .seed = 1});
  ShardedEmbeddingBagCollection sharded = sharder.shard(tables, plan.at(""), group);
  auto output = sharded.forward(batch);
  double worst = largest_difference(output.wait().values.values(), unsharded.forward(batch).values());

  // Each rank's loss is the sum of its output; training uses the mean of the ranks' losses.
  Tensor ones = Tensor::empty(output.wait().values.values().shape());
  ones.fill(1);
  sharded.backward(output.wait(), ones);
  Tensor half = ones.clone();
  half.fill(1.0 / group->world_size());
  for (int rank = 0; rank < group->world_size(); ++rank) {  // the unsharded tables see the batches of all ranks
    EmbeddingContext context;
    unsharded.forward(batch_of(tables, rank), &context);
    unsharded.backward(std::move(context), half);
  }
  auto updated = sharded.forward(batch);
  const Tensor after = updated.wait().values.values();
  if (largest_difference(after, output.wait().values.values()) == 0) fail(Code::kInternal, "nothing was updated");
  return std::max(worst, largest_difference(after, unsharded.forward(batch).values()));
}

int tutorial() {
  const RankEnvironment where = RankEnvironment::from_environment();
  if (where.world_size != 2) fail(Code::kInvalidArgument, "start me with two ranks: tessera launch -n 2 -- ...");
  const Runtime runtime;
  const std::shared_ptr<ProcessGroup> group = ProcessGroup::connect(runtime, where);
  const std::vector<EmbeddingBagConfig> tables = tutorial_tables();
  for (const char* sharding_type : {"table_wise", "row_wise", "column_wise", "data_parallel"}) {
    const ShardingPlan plan = plan_for(runtime, tables, sharding_type);
    std::cout << str_cat("rank:", where.rank, ",sharding plan: ", plan.tutorial(""), "\n") << std::flush;
    const double difference = run(runtime, tables, plan, group);
    if (difference > 1e-5) fail(Code::kInternal, sharding_type, ": sharded and unsharded differ by ", difference);
    std::cout << str_cat("rank:", where.rank, ",", sharding_type,
                         ": sharded and unsharded agree before and after an update\n")
              << std::flush;
  }
  return 0;
}

}  // namespace

int main() {
  try {
    return tutorial();
  } catch (const std::exception& e) {
    std::cerr << "sharding_tutorial: " << e.what() << '\n';
    return 1;
  }
}
