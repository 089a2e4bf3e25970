// tessera bench train: whole DLRM steps on synthetic data, one process per rank, alternatives in turn.
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/bench.h"
#include "bench/sgemm.h"
#include "bench/sharded_workload.h"
#include "data/random.h"
#include "options.h"
#include "tessera/model_trainer.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

using TrainBench = ShardedBench;  // once chosen from: one alternative

constexpr int kTrainBatches = 8;
constexpr double kLossTolerance = 1e-4;  // relative, between alternatives
constexpr int64_t kDense = 13;

std::vector<Batch> make_batches(const std::vector<EmbeddingBagConfig>& tables, const TrainBench& b, int rank) {
  const auto sparse = workload_batches(tables, b.workload, rank, kTrainBatches);
  std::vector<Batch> batches(kTrainBatches);
  data::Random random(500 + static_cast<uint64_t>(rank));
  for (int i = 0; i < kTrainBatches; ++i) {
    batches[i].sparse = sparse[i];
    batches[i].dense = Tensor::empty({b.workload.batch, kDense});
    batches[i].labels = Tensor::empty({b.workload.batch});
    batches[i].global_size = b.workload.batch * b.nproc;
    for (float& x : batches[i].dense.span<float>()) x = static_cast<float>(random.uniform());
    for (float& y : batches[i].labels.span<float>()) y = random.uniform() < 0.5 ? 0.0f : 1.0f;
  }
  return batches;
}

DlrmOptions model_of(const TrainBench& b) {
  DlrmOptions o;
  o.dense_inputs = kDense;
  o.embedding_dim = b.workload.dim;
  o.bottom_mlp = {512, 256, b.workload.dim};
  o.top_mlp = {512, 256, 1};
  return o;
}

ModelTrainerOptions trainer_options(const Runtime& runtime, const TrainBench& b, int local_ranks) {
  ModelTrainerOptions o;
  o.tables = workload_tables(b.workload);
  o.graph = dlrm_graph(model_of(b), o.tables);
  o.dense_optimizer = {"sgd", R"({"learning_rate": 0.01})"};
  o.parallel.sharded.kernel = b.kernel;
  o.parallel.sharded.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.01, "eps": 1e-8})", 0};
  ShardingPlan plan;
  plan.world_size = b.nproc;
  plan.local_world_size = local_ranks;
  plan.modules = {{kCollectionPath,
                   workload_plan(runtime, o.tables, b.workload.sharding, Topology::of(b.nproc, local_ranks, "cpu"))}};
  o.parallel.plan = std::move(plan);
  return o;
}

// Mean losses over all ranks' samples, of one step for each batch.
std::vector<double> losses_of(ModelTrainer& trainer, const ProcessGroup& group, const std::vector<Batch>& batches) {
  std::vector<double> losses;
  for (const Batch& batch : batches) {
    trainer.step(batch);
    const Tensor loss = Tensor::scalar(trainer.take_losses().back());
    if (group.world_size() > 1) group.all_reduce(loss, ReduceOp::kSum, "bench").wait();
    losses.push_back(loss.item() / static_cast<double>(batch.global_size));
  }
  return losses;
}

// An alternative: its trainer, and what its rounds took.
class TrainSubject {
 public:
  // batches outlive this. Does a step with each of them.
  TrainSubject(const Runtime& runtime, const TrainBench& b, std::shared_ptr<ProcessGroup> group,
               const std::vector<Batch>& batches)
      : b_(b), group_(std::move(group)), batches_(batches) {
    ModelTrainerOptions options = trainer_options(runtime, b_, group_->local_world_size());
    b_.backend = group_->backend();
    b_.workload.tables = static_cast<int64_t>(options.tables.size());
    DlrmOptions dense = model_of(b_);
    dense.num_embeddings = b_.workload.tables;
    products_ = std::make_unique<DenseProducts>(runtime, dense, b_.workload.batch);
    trainer_ = std::make_unique<ModelTrainer>(runtime, group_, std::move(options));
    losses_ = losses_of(*trainer_, *group_, batches_);
  }

  void expect_losses(const std::vector<double>& expected) const {
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::abs(losses_[i] - expected[i]) <= kLossTolerance * std::abs(expected[i])) continue;
      fail(Code::kDataLoss, "train: ", b_.workload.sharding, " with kernel ", b_.kernel, " over ", b_.backend,
           " has a loss of ", losses_[i], " in step ", i + 1, ", but the reference kernel has ", expected[i]);
    }
  }

  void round() {
    trainer_->step(next_batch());  // finds the caches as it leaves them itself
    trainer_->reset_stages();
    group_->barrier();
    const Stopwatch watch;
    for (int i = 0; i < b_.steps_per_round; ++i) trainer_->step(next_batch());
    trainer_->take_losses();
    const Tensor us = Tensor::scalar(watch.us() / b_.steps_per_round);
    if (b_.nproc > 1) group_->all_reduce(us, ReduceOp::kMax, "bench").wait();
    steps_.push_back(us.item());
    double dense = 0;
    for (const auto& [name, seconds] : trainer_->stages()) {
      const double stage_us = 1e6 * seconds / b_.steps_per_round;
      if (!stages_.contains(name)) order_.push_back(name);
      stages_[name].push_back(stage_us);
      if (name == "dense forward" || name == "dense backward") dense += stage_us;
    }
    dense_.push_back(dense);
    if (!products_->available()) return;
    products_->run();
    const Stopwatch bare;
    products_->run();
    sgemm_.push_back(bare.us());
    of_sgemm_.push_back(products_->dense_flops() / dense / (products_->flops() / sgemm_.back()));
  }

  // Of all rounds since the last one.
  json take_line();

 private:
  const Batch& next_batch() { return batches_[next_++ % batches_.size()]; }

  TrainBench b_;
  std::shared_ptr<ProcessGroup> group_;
  const std::vector<Batch>& batches_;
  std::unique_ptr<DenseProducts> products_;
  std::unique_ptr<ModelTrainer> trainer_;
  std::vector<double> losses_;  // of the first steps
  size_t next_ = 0;
  std::vector<double> steps_, dense_, sgemm_, of_sgemm_;  // of each round: microseconds of a step, and the ratio
  std::vector<std::string> order_;                        // of the stages
  std::map<std::string, std::vector<double>> stages_;
};

json TrainSubject::take_line() {
  const double step = percentiles(steps_).median, dense_us = percentiles(dense_).median;
  json out = {{"bench", "train"},
              {"world", b_.nproc},
              {"T", b_.workload.tables},
              {"rows", b_.workload.rows},
              {"D", b_.workload.dim},
              {"B", b_.workload.batch},
              {"L", b_.workload.pooling},
              {"sharding", b_.workload.sharding},
              {"kernel", b_.kernel},
              {"backend", b_.backend},
              {"threads", b_.common.threads}};
  add_times(&out, "us", steps_);
  out.update({{"samples_per_s", 1e6 * static_cast<double>(b_.nproc * b_.workload.batch) / step},
              {"dense_us", dense_us},
              {"rest_us", step - dense_us}});
  if (!sgemm_.empty()) {
    out["dense_gflops"] = 1e-3 * products_->dense_flops() / dense_us;
    out["sgemm_gflops"] = 1e-3 * products_->flops() / percentiles(sgemm_).median;
    out["dense_of_sgemm"] = percentiles(of_sgemm_).median;
  }
  out["loss"] = losses_.back();
  out["verified"] = true;
  for (const std::string& name : order_) out["stages_us"][name] = percentiles(stages_[name]).median;
  for (auto* samples : {&steps_, &dense_, &sgemm_, &of_sgemm_}) samples->clear();
  for (auto& [name, samples] : stages_) samples.clear();
  return out;
}

// What the first steps' losses must be: those of the plainest way to train.
std::vector<double> reference_losses(const Runtime& runtime, TrainBench b, const std::shared_ptr<ProcessGroup>& group,
                                     const std::vector<Batch>& batches) {
  b.kernel = "reference";
  b.workload.sharding = "table_wise";
  ModelTrainer trainer(runtime, group, trainer_options(runtime, b, group->local_world_size()));
  return losses_of(trainer, *group, batches);
}

void run_rank(const TrainBench& b, const RankEnvironment& where) {
  const Runtime runtime({{}, {}, true, b.common.threads});
  struct Input {
    std::vector<Batch> batches;
    std::vector<double> losses;
  };
  std::map<std::string, std::shared_ptr<ProcessGroup>> groups;  // by backend
  std::map<std::pair<int64_t, int64_t>, Input> inputs;          // by dim and batch
  std::shared_ptr<ProcessGroup> control;                        // for the rounds: the first transport's
  std::vector<std::unique_ptr<TrainSubject>> subjects;
  for (const TrainBench& one : alternatives(b)) {
    std::shared_ptr<ProcessGroup>& group = groups[one.backend];
    if (!group) group = ProcessGroup::connect(runtime, where, {one.backend, "{}", b.common.deadline_s(60)});
    if (!control) control = group;
    Input& input = inputs[{one.workload.dim, one.workload.batch}];
    if (input.batches.empty()) {
      input.batches = make_batches(workload_tables(one.workload), one, control->rank());
      input.losses = reference_losses(runtime, one, control, input.batches);
    }
    subjects.push_back(std::make_unique<TrainSubject>(runtime, one, group, input.batches));
    subjects.back()->expect_losses(input.losses);
  }
  run_rounds(b.common, *control, subjects);
  control->barrier("end");
}

}  // namespace

BenchRun bench_train(const std::vector<std::string>& args, const CommonOptions& common) {
  TrainBench b;
  b.common = common;
  Options options("bench train", "[OPTIONS]");
  if (!parse(options, args, &b)) return {};
  return [b] {
    run_bench(b.nproc, b.common.deadline_s(3600), [&](const RankEnvironment& where) { run_rank(b, where); });
    return 0;
  };
}

}  // namespace tessera::cli
