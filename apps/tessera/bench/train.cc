// tessera bench train: times whole steps of a DLRM, or of a job's model, one process per rank, alternatives in turn.
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/bench.h"
#include "bench/packed.h"
#include "bench/sgemm.h"
#include "bench/sharded_workload.h"
#include "bench/trained_model.h"
#include "options.h"
#include "tessera/trainer.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

// Options of the bench; alternatives() turns their lists into one alternative each.
struct TrainBench : ShardedBench {
  std::string model;                   // value of --model
  std::string precisions = "float32";  // a list right after parsing
};

// Relative difference allowed between alternatives. The first steps' losses in bfloat16 differ by less.
constexpr double kLossTolerance = 1e-4, kRoundedLossTolerance = 1e-2;

ModelTrainerOptions trainer_options(const Runtime& runtime, const TrainedModel& model, const TrainBench& b,
                                    int local_ranks) {
  ModelTrainerOptions o;
  o.tables = model.tables;
  o.graph = model.graph;
  o.dense_precision = b.precisions;
  o.dense_optimizer = {"sgd", R"({"learning_rate": 0.01})"};
  o.parallel.sharded.kernel = b.kernel;
  o.parallel.sharded.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.01, "eps": 1e-8})", 0};
  ShardingPlan plan{.world_size = b.nproc, .local_world_size = local_ranks};
  const Topology topology = Topology::of(b.nproc, local_ranks, "cpu");
  const ModelTables tables = split_by_pooling(o.tables);
  plan.modules = {{kCollectionPath, workload_plan(runtime, tables.pooled, b.workload.sharding, topology)}};
  if (!tables.sequences.empty())
    plan.modules.emplace_back(kSequencePath, workload_plan(runtime, tables.sequences, b.workload.sharding, topology));
  o.parallel.plan = std::move(plan);
  return o;
}

// Mean losses over all ranks' samples, one step per batch.
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

// One alternative: its trainer and the times of its rounds.
class TrainSubject {
 public:
  // `model` outlives this. The constructor does a step with each of the batches.
  TrainSubject(const Runtime& runtime, const TrainedModel& model, const TrainBench& b,
               std::shared_ptr<ProcessGroup> group)
      : b_(b), group_(std::move(group)), batches_(model.batches) {
    ModelTrainerOptions options = trainer_options(runtime, model, b_, group_->local_world_size());
    b_.backend = group_->backend();
    b_.workload.tables = static_cast<int64_t>(options.tables.size());
    const std::vector<MatrixProduct> products = products_of(runtime, model.graph);
    products_ = std::make_unique<DenseProducts>(runtime, products, model.pairs, b_.workload.batch);
    packed_.products = std::make_unique<PackedProducts>(runtime, products, b_.workload.batch, false);
    bf16_.products = std::make_unique<PackedProducts>(runtime, products, b_.workload.batch, true);
    trainer_ = std::make_unique<ModelTrainer>(runtime, group_, std::move(options));
    losses_ = losses_of(*trainer_, *group_, batches_);
  }

  void expect_losses(const std::vector<double>& expected) const {
    const double tolerance =
        trainer_->dense_precision().type == kFloat32Precision ? kLossTolerance : kRoundedLossTolerance;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::abs(losses_[i] - expected[i]) <= tolerance * std::abs(expected[i])) continue;
      fail(Code::kDataLoss, "train: ", b_.workload.sharding, " with kernel ", b_.kernel, " over ", b_.backend, " in ",
           b_.precisions, " has a loss of ", losses_[i], " in step ", i + 1, ", but the reference kernel has ",
           expected[i]);
    }
  }

  void round() {
    trainer_->step(next_batch());  // lets each alternative start with its own caches
    trainer_->reset_stages();
    group_->barrier();
    const Stopwatch watch;
    for (int i = 0; i < b_.steps_per_round; ++i) trainer_->step(next_batch());
    trainer_->take_losses();
    steps_.push_back(largest_over_ranks(*group_, watch.us() / b_.steps_per_round));
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
    of_sgemm_.push_back(share_of(sgemm_.back(), dense));
    packed_.round();
    bf16_.round();
    double limit = sgemm_.back();
    if (!packed_.us.empty()) limit = std::min(limit, packed_.us.back());
    if (trainer_->dense_precision().type == kBfloat16Precision && !bf16_.us.empty()) limit = bf16_.us.back();
    of_limit_.push_back(share_of(limit, dense));
  }

  // The times of all rounds since the last call.
  json take_line();

 private:
  // Products with packed weights, and their times per round.
  struct Packed {
    std::unique_ptr<PackedProducts> products;
    std::vector<double> us = {};
    void round() {
      if (!products->available()) return;
      products->run();
      const Stopwatch bare;
      products->run();
      us.push_back(bare.us());
    }
  };
  // The speed of the dense part as a share of that of products which took so long.
  double share_of(double products_us, double dense_us) const {
    return products_->dense_flops() / dense_us / (products_->flops() / products_us);
  }
  const Batch& next_batch() { return batches_[next_++ % batches_.size()]; }

  TrainBench b_;
  std::shared_ptr<ProcessGroup> group_;
  const std::vector<Batch>& batches_;
  std::unique_ptr<DenseProducts> products_;
  Packed packed_, bf16_;
  std::unique_ptr<ModelTrainer> trainer_;
  std::vector<double> losses_;  // of the first steps
  size_t next_ = 0;
  // Per round: microseconds per step, and the ratios.
  std::vector<double> steps_, dense_, sgemm_, of_sgemm_, of_limit_;
  std::vector<std::string> order_;  // order of the stages
  std::map<std::string, std::vector<double>> stages_;
};

json TrainSubject::take_line() {
  const double step = percentiles(steps_).median, dense_us = percentiles(dense_).median;
  json out = {{"bench", "train"}, {"world", b_.nproc}, {"T", b_.workload.tables}, {"B", b_.workload.batch}};
  if (b_.model.empty())
    out.update({{"rows", b_.workload.rows}, {"D", b_.workload.dim}, {"L", b_.workload.pooling}});
  else
    out["model"] = b_.model;
  out.update({{"sharding", b_.workload.sharding},
              {"kernel", b_.kernel},
              {"backend", b_.backend},
              {"dense_precision", trainer_->dense_precision().type},
              {"threads", b_.common.threads}});
  add_times(&out, "us", steps_);
  out.update({{"samples_per_s", 1e6 * static_cast<double>(b_.nproc * b_.workload.batch) / step},
              {"dense_us", dense_us},
              {"rest_us", step - dense_us}});
  if (!sgemm_.empty()) {
    out["dense_gflops"] = 1e-3 * products_->dense_flops() / dense_us;
    out["sgemm_gflops"] = 1e-3 * products_->flops() / percentiles(sgemm_).median;
    out["dense_of_sgemm"] = percentiles(of_sgemm_).median;
    if (!packed_.us.empty()) out["packed_gflops"] = 1e-3 * products_->flops() / percentiles(packed_.us).median;
    if (!bf16_.us.empty()) out["bf16_gflops"] = 1e-3 * products_->flops() / percentiles(bf16_.us).median;
    out["dense_of_limit"] = percentiles(of_limit_).median;
  }
  out["loss"] = losses_.back();
  out["verified"] = true;
  for (const std::string& name : order_) out["stages_us"][name] = percentiles(stages_[name]).median;
  for (auto* samples : {&steps_, &dense_, &sgemm_, &of_sgemm_, &of_limit_, &packed_.us, &bf16_.us}) samples->clear();
  for (auto& [name, samples] : stages_) samples.clear();
  return out;
}

// The expected losses of the first steps, from the plainest way to train.
std::vector<double> reference_losses(const Runtime& runtime, const TrainedModel& model, TrainBench b,
                                     const std::shared_ptr<ProcessGroup>& group) {
  b.kernel = "reference";
  b.precisions = kFloat32Precision;
  b.workload.sharding = "table_wise";
  ModelTrainer trainer(runtime, group, trainer_options(runtime, model, b, group->local_world_size()));
  return losses_of(trainer, *group, model.batches);
}

// One bench for each combination of the lists; --dense-precision varies fastest.
std::vector<TrainBench> all_alternatives(const TrainBench& b) {
  std::vector<TrainBench> all;
  for (const ShardedBench& chosen : alternatives(b)) {
    for (const std::string& precision : text_list("--dense-precision", b.precisions))
      all.push_back({chosen, b.model, precision});
  }
  return all;
}

void run_rank(const TrainBench& b, const RankEnvironment& where) {
  const Runtime runtime({{}, {}, true, b.common.threads});
  struct Input {
    TrainedModel model;
    std::vector<double> losses;
  };
  std::map<std::string, std::shared_ptr<ProcessGroup>> groups;  // per backend
  std::map<std::pair<int64_t, int64_t>, Input> inputs;          // per dim and batch size
  std::shared_ptr<ProcessGroup> control;                        // coordinates the rounds; the first transport's group
  std::vector<std::unique_ptr<TrainSubject>> subjects;
  for (const TrainBench& one : all_alternatives(b)) {
    std::shared_ptr<ProcessGroup>& group = groups[one.backend];
    if (!group) group = ProcessGroup::connect(runtime, where, {one.backend, "{}", b.common.deadline_s(60)});
    if (!control) control = group;
    Input& input = inputs[{one.workload.dim, one.workload.batch}];
    if (input.losses.empty()) {
      input.model = trained_model(runtime, one.model, one, control->rank());
      input.losses = reference_losses(runtime, input.model, one, control);
    }
    subjects.push_back(std::make_unique<TrainSubject>(runtime, input.model, one, group));
    subjects.back()->expect_losses(input.losses);
  }
  run_rounds(b.common, *control, subjects);
  control->barrier("end");
}

void check_tables_are_the_models(const TrainBench& b) {
  const ShardedBench usual;
  if (b.model.empty()) return;
  if (b.dims != usual.dims || b.workload.tables != usual.workload.tables || b.workload.rows != usual.workload.rows ||
      b.workload.pooling != usual.workload.pooling)
    throw UsageError("--tables, --rows, --dim and --pooling make tables, and --model has its own: leave them out");
}

}  // namespace

BenchRun bench_train(const std::vector<std::string>& args, const CommonOptions& common) {
  TrainBench b;
  b.common = common;
  Options options("bench train", "[OPTIONS]");
  options.add_options()("model", po::value(&b.model)->value_name("NAME|FILE"),
                        "train a model of tessera model new, or of a job's config with its own data, instead of a "
                        "DLRM")("dense-precision",
                                po::value(&b.precisions)->value_name("LIST")->default_value(b.precisions),
                                "types of the dense layers' products: float32, bfloat16 or auto, separated by commas");
  if (!parse(options, args, &b)) return {};
  check_tables_are_the_models(b);
  return [b] {
    run_bench(b.nproc, b.common.deadline_s(3600), [&](const RankEnvironment& where) { run_rank(b, where); });
    return 0;
  };
}

}  // namespace tessera::cli
