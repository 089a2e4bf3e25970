// tessera bench train: whole DLRM steps on synthetic data, one process per rank.
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "bench/bench.h"
#include "bench/sgemm.h"
#include "bench/sharded_workload.h"
#include "train/dlrm_trainer.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

using TrainBench = ShardedBench;

constexpr int kBatches = 8;
constexpr int64_t kDense = 13;

std::vector<Batch> make_batches(const std::vector<EmbeddingBagConfig>& tables, const TrainBench& b, int rank) {
  const auto sparse = workload_batches(tables, b.workload, rank, kBatches);
  std::vector<Batch> batches(kBatches);
  Uniform random(500 + static_cast<uint64_t>(rank));
  for (int i = 0; i < kBatches; ++i) {
    batches[i].sparse = sparse[i];
    batches[i].dense = Tensor::empty({b.workload.batch, kDense});
    batches[i].labels = Tensor::empty({b.workload.batch});
    batches[i].global_size = b.workload.batch * b.nproc;
    for (float& x : batches[i].dense.span<float>()) x = static_cast<float>(random.next());
    for (float& y : batches[i].labels.span<float>()) y = random.next() < 0.5 ? 0.0f : 1.0f;
  }
  return batches;
}

DlrmTrainerOptions trainer_options(const Runtime& runtime, const TrainBench& b, int local_ranks) {
  DlrmTrainerOptions o;
  o.tables = workload_tables(b.workload);
  o.dlrm.dense_inputs = kDense;
  o.dlrm.embedding_dim = b.workload.dim;
  o.dlrm.bottom_mlp = {512, 256, b.workload.dim};
  o.dlrm.top_mlp = {512, 256, 1};
  o.dense_optimizer = {"sgd", R"({"learning_rate": 0.01})"};
  o.parallel.sharded.kernel = b.kernel;
  o.parallel.sharded.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.01, "eps": 1e-8})", 0};
  ShardingPlan plan;
  plan.world_size = b.nproc;
  plan.local_world_size = local_ranks;
  plan.modules = {{Dlrm::kCollectionPath,
                   workload_plan(runtime, o.tables, b.workload.sharding, Topology::of(b.nproc, local_ranks, "cpu"))}};
  o.parallel.plan = std::move(plan);
  return o;
}

double seconds_of(const Stages& stages, std::initializer_list<const char*> names) {
  double sum = 0;
  for (const auto& [name, seconds] : stages) {
    for (const char* wanted : names) sum += name == wanted ? seconds : 0;
  }
  return sum;
}

// The products of the dense layers by themselves, and one time of them per round.
struct Products {
  DenseProducts work;
  std::vector<double> us;
  void time() {
    if (!work.available()) return;
    work.run();
    const Stopwatch watch;
    work.run();
    us.push_back(watch.us());
  }
};

json result_line(const TrainBench& b, const std::vector<double>& steps, const Stages& stages, double stage_steps,
                 const Products& products) {
  const Percentiles p = percentiles(steps);
  json out = {{"bench", "train"},
              {"world", b.nproc},
              {"T", b.workload.tables},
              {"rows", b.workload.rows},
              {"D", b.workload.dim},
              {"B", b.workload.batch},
              {"L", b.workload.pooling},
              {"sharding", b.workload.sharding},
              {"kernel", b.kernel},
              {"backend", b.backend},
              {"threads", b.common.threads},
              {"median_us", p.median},
              {"p10_us", p.p10},
              {"p25_us", p.p25},
              {"p75_us", p.p75},
              {"p90_us", p.p90},
              {"samples_per_s", 1e6 * static_cast<double>(b.nproc * b.workload.batch) / p.median}};
  const double dense_us = 1e6 * seconds_of(stages, {"dense forward", "dense backward"}) / stage_steps;
  out["dense_us"] = dense_us;
  out["rest_us"] = p.median - dense_us;
  if (!products.us.empty()) {
    const double sgemm_us = percentiles(products.us).median;
    out["dense_gflops"] = 1e-3 * products.work.flops() / dense_us;
    out["sgemm_gflops"] = 1e-3 * products.work.flops() / sgemm_us;
    out["dense_of_sgemm"] = sgemm_us / dense_us;
  }
  json table = json::object();
  for (const auto& [name, seconds] : stages) table[name] = 1e6 * seconds / stage_steps;
  out["stages_us"] = std::move(table);
  return out;
}

void run_rank(TrainBench b, const RankEnvironment& where) {
  const Runtime runtime({{}, {}, true, b.common.threads});
  const auto group = ProcessGroup::connect(runtime, where, {b.backend, "{}", b.common.deadline_s(60)});
  b.backend = group->backend();
  DlrmTrainerOptions options = trainer_options(runtime, b, group->local_world_size());
  const auto tables = options.tables;
  b.workload.tables = static_cast<int64_t>(tables.size());
  DlrmOptions dense = options.dlrm;
  dense.num_embeddings = b.workload.tables;
  Products products{DenseProducts(dense, b.workload.batch, b.common.threads), {}};
  DlrmTrainer trainer(runtime, group, std::move(options));
  const auto batches = make_batches(tables, b, group->rank());
  for (const Batch& batch : batches) trainer.step(batch);
  trainer.reset_stages();
  Rounds rounds(b.common);
  Report report(b.common);
  std::vector<double> steps;
  size_t next = 0;
  while (rounds.next_together(*group)) {
    group->barrier();
    Stopwatch watch;
    for (int i = 0; i < b.steps_per_round; ++i) trainer.step(batches[next++ % batches.size()]);
    const Tensor us = Tensor::scalar(watch.us() / b.steps_per_round);
    if (b.nproc > 1) group->all_reduce(us, ReduceOp::kMax, "bench").wait();
    steps.push_back(us.item());
    products.time();
    if (rounds.print_each() && group->rank() == 0) {
      report.line(result_line(b, {steps.back()}, trainer.stages(), b.steps_per_round, products));
      products.us.clear();
      trainer.reset_stages();
    }
  }
  if (!rounds.print_each() && group->rank() == 0) {
    report.line(result_line(b, steps, trainer.stages(),
                            static_cast<double>(steps.size() * static_cast<size_t>(b.steps_per_round)), products));
  }
  group->barrier("end");
}

}  // namespace

BenchRun bench_train(const std::vector<std::string>& args, const CommonOptions& common) {
  TrainBench b;
  b.common = common;
  po::options_description options("usage: tessera bench train [OPTIONS]");
  if (!parse(options, args, &b)) return {};
  return [b] {
    run_bench(b.nproc, b.common.deadline_s(3600), [&](const RankEnvironment& where) { run_rank(b, where); });
    return 0;
  };
}

}  // namespace tessera::cli
