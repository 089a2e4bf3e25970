// The core's own work in a step: ids on their way out and in, rows on their way back.
#include <cmath>

#include "calibrate/calibrate.h"
#include "data/random.h"
#include "tessera/sdk/cost.h"
#include "tessera/sharded_modules.h"

namespace tessera::cli {
namespace {

using Combine = ParameterSharding::Combine;

struct StageShape {
  int64_t tables, bags, pooling, dim;
  int64_t pieces;  // of each table's rows
  int64_t rows;
};

// Seconds of the stages of one step.
struct StageTrial {
  double route, unpack, combine, split, copy, data_parallel;
};

EmbeddingModuleShardingPlan plan_of(const std::vector<EmbeddingBagConfig>& tables, int64_t pieces, bool replicas) {
  EmbeddingModuleShardingPlan plan;
  for (const EmbeddingBagConfig& t : tables) {
    ParameterSharding cut;
    cut.sharding_type = replicas ? "data_parallel" : "row_wise";
    cut.compute_kernel = replicas ? "dense" : "fused";
    cut.combine = replicas ? Combine::kReplica : pieces > 1 ? Combine::kSum : Combine::kConcat;
    for (int64_t p = 0; p < pieces; ++p) {
      const int64_t first = t.num_embeddings * p / pieces, last = t.num_embeddings * (p + 1) / pieces;
      cut.shards.push_back({last - first, t.embedding_dim, first, 0, 0});
    }
    plan.add(t.name, std::move(cut));
  }
  return plan;
}

std::vector<KeyedJaggedTensor> batches_of(const StageShape& s, const std::vector<EmbeddingBagConfig>& tables) {
  constexpr int kBatches = 4;
  std::vector<KeyedJaggedTensor> out;
  data::Random random(7);
  std::vector<std::string> keys;
  for (const EmbeddingBagConfig& t : tables) keys.push_back(t.feature_names[0]);
  for (int b = 0; b < kBatches; ++b) {
    const Tensor ids = Tensor::empty({s.tables * s.bags * s.pooling}, DType::kInt64);
    const Tensor lengths = Tensor::empty({s.tables * s.bags}, DType::kInt32);
    for (int64_t& id : ids.span<int64_t>()) id = static_cast<int64_t>(random.below(static_cast<uint64_t>(s.rows)));
    for (int32_t& n : lengths.span<int32_t>()) n = static_cast<int32_t>(s.pooling);
    out.push_back(KeyedJaggedTensor::from_lengths_sync(keys, ids, lengths));
  }
  return out;
}

StageTrial measure_shape(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& alone, const std::string& kernel,
                         const StageShape& s, bool replicas, const Trials& trials) {
  std::vector<EmbeddingBagConfig> tables;
  for (int64_t t = 0; t < s.tables; ++t) {
    EmbeddingBagConfig c;
    c.name = cat("t", t);
    c.feature_names = {cat("f", t)};
    c.num_embeddings = s.rows;
    c.embedding_dim = s.dim;
    tables.push_back(std::move(c));
  }
  ShardedModuleOptions options;
  options.kernel = kernel;
  options.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.01})", 0};
  auto module =
      EmbeddingBagCollectionSharder(runtime, options).shard(tables, plan_of(tables, s.pieces, replicas), alone);
  const auto batches = batches_of(s, tables);
  Tensor grad = Tensor::empty({s.bags, s.tables * s.dim});
  grad.fill(1e-4);
  size_t next = 0;
  const std::vector<double> t = trials.times([&] {
    module.reset_stage_times();
    auto out = module.forward(batches[next++ % batches.size()]).wait();
    module.backward(out, grad);
    const StageTimes& times = module.stage_times();
    // Alone, an exchange is the copy that every rank makes of what it keeps.
    return std::vector<double>{times.route,
                               times.exchange_ids,
                               times.combine,
                               times.split,
                               (times.exchange_rows + times.exchange_gradients) / 2,
                               times.data_parallel};
  });
  return {t[0], t[1], t[2], t[3], t[4], t[5]};
}

constexpr StageShape kShapes[] = {
    {1, 2048, 1, 16, 1, 4096}, {1, 1024, 16, 16, 1, 4096}, {64, 16, 1, 16, 1, 4096},   {1, 2048, 1, 128, 1, 4096},
    {16, 256, 4, 32, 1, 4096}, {1, 2048, 1, 16, 2, 4096},  {1, 1024, 16, 16, 2, 4096}, {32, 32, 2, 16, 2, 4096},
    {8, 512, 10, 64, 2, 4096}, {26, 64, 1, 16, 1, 4096},   {4, 8, 1, 16, 1, 4096},
};
constexpr StageShape kReplicaShapes[] = {
    {1, 64, 1, 16, 1, 256},
    {1, 64, 1, 16, 1, 8192},
    {1, 512, 4, 16, 1, 65536},
    {8, 128, 2, 32, 1, 4096},
};

StageFigures figures(const std::vector<double>& x) { return {x[0], x[1], x[2], x[3], x[4], x[5]}; }

}  // namespace

void measure_stages(const Runtime& runtime, const KernelFigures& kernel, const Trials& trials, Machine* machine) {
  const auto alone = ProcessGroup::connect(runtime, RankEnvironment{}, {});
  std::vector<std::vector<double>> ids, rows;  // call, run, bag, id, cut id, byte
  std::vector<double> route, unpack, combine, split, copy;
  for (const StageShape& s : kShapes) {
    const StageTrial t = measure_shape(runtime, alone, kernel.kernel, s, false, trials);
    const auto runs = static_cast<double>(s.tables * s.pieces), bags = runs * static_cast<double>(s.bags);
    const auto n = static_cast<double>(s.tables * s.bags * s.pooling), pieces = static_cast<double>(s.pieces);
    ids.push_back({1, runs, bags, s.pieces == 1 ? n : 0, s.pieces == 1 ? 0 : n, 0});
    const double full = static_cast<double>(s.tables * s.bags) *
                        (1 - std::pow(1 - 1 / pieces, static_cast<double>(s.pooling))) * pieces;
    rows.push_back({1, runs, bags, 0, 0, (pieces == 1 ? bags : full) * static_cast<double>(s.dim) * 4});
    route.push_back(t.route);
    unpack.push_back(t.unpack);
    combine.push_back(t.combine);
    split.push_back(t.split);
    copy.push_back(t.copy);
  }
  machine->route = figures(fit_nonnegative(ids, route));
  for (std::vector<double>& line : ids) line[3] = std::exchange(line[4], 0) + line[3];  // owners see no cuts
  machine->unpack = figures(fit_nonnegative(ids, unpack));
  machine->combine = figures(fit_nonnegative(rows, combine));
  machine->split = figures(fit_nonnegative(rows, split));
  for (std::vector<double>& line : rows) line[1] = line[2] = 0;
  machine->copy = figures(fit_nonnegative(rows, copy));

  std::vector<std::vector<double>> work;
  std::vector<double> rest;
  const tsr_machine raw = kernel.raw();
  for (const StageShape& s : kReplicaShapes) {
    const StageTrial t = measure_shape(runtime, alone, kernel.kernel, s, true, trials);
    const auto tables = static_cast<double>(s.tables), table_rows = static_cast<double>(s.rows);
    tsr_workload w{};
    w.rows = s.rows;
    w.dim = s.dim;
    w.ids = static_cast<double>(s.bags * s.pooling);
    w.bags = static_cast<double>(s.bags);
    w.runs = 1;
    w.distinct = -table_rows * std::expm1(-w.ids / table_rows);
    const double backward = sdk::estimate_by_figures(raw, w, static_cast<double>(s.dim * 4), 4).backward_seconds;
    work.push_back({1, tables, tables * w.distinct, 0, 0, tables * table_rows * static_cast<double>(s.dim + 1) * 4});
    rest.push_back(std::max(0.1 * t.data_parallel, t.data_parallel - tables * backward - kernel.call_backward));
  }
  machine->replica = figures(fit_nonnegative(work, rest));
}

}  // namespace tessera::cli
