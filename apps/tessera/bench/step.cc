// tessera bench step: measures forward + backward of a sharded EmbeddingBagCollection, stage by stage.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "bench/bench.h"
#include "bench/sharded_workload.h"
#include "options.h"
#include "tessera/sharded_modules.h"
#include "tessera/train_job.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

struct StepBench : ShardedBench {
  std::string optimizer = "exact_rowwise_adagrad", join = "auto";  // lists right after parsing
};

constexpr int kStepBatches = 16;

// Runs the exchanges of one step with nothing between them, along the same ways.
class BareExchange {
 public:
  BareExchange(const ProcessGroup& group, std::vector<StepExchange> exchanges)
      : group_(group), exchanges_(std::move(exchanges)) {
    const auto sum = [](const std::vector<int64_t>& v) { return std::accumulate(v.begin(), v.end(), int64_t{0}); };
    int64_t travels = 0;
    for (const StepExchange& e : exchanges_) {
      send_.push_back(Tensor::zeros({sum(e.sent)}, DType::kUInt8));
      recv_.push_back(Tensor::zeros({sum(e.received)}, DType::kUInt8));
      travels += send_.back().numel();
    }
    copied_ = Tensor::zeros({travels}, DType::kUInt8);
    copy_ = copied_.clone();
  }
  void run() const {
    for (size_t i = 0; i < exchanges_.size(); ++i) {
      const StepExchange& e = exchanges_[i];
      group_.all_to_all_v(send_[i], e.sent, recv_[i], e.received, e.name).wait();
    }
  }
  // Copies the bytes that this rank sends in a step, from memory to memory.
  void copy() const { std::copy_n(copied_.data<uint8_t>(), copied_.numel(), copy_.data<uint8_t>()); }
  int64_t messages() const { return messages_of(exchanges_, group_.rank()); }

 private:
  const ProcessGroup& group_;
  std::vector<StepExchange> exchanges_;
  std::vector<Tensor> send_, recv_;  // by exchange
  Tensor copied_, copy_;
};

// The subject of one result line: one sharder, transport, kernel and optimizer.
class StepSubject {
 public:
  // `b` is one alternative with one optimizer. The batches outlive this.
  StepSubject(const Runtime& runtime, const StepBench& b, std::shared_ptr<ProcessGroup> group,
              const std::vector<EmbeddingBagConfig>& tables, const std::vector<KeyedJaggedTensor>& batches)
      : b_(b), group_(std::move(group)), batches_(batches) {
    b_.workload.tables = static_cast<int64_t>(tables.size());
    b_.backend = group_->backend();
    ShardedModuleOptions options{.kernel = b_.kernel, .optimizer = {b_.optimizer, R"({"learning_rate": 0.01})", 0}};
    const auto plan =
        workload_plan(runtime, tables, b_.workload.sharding, Topology::of(b_.nproc, group_->local_world_size(), "cpu"));
    module_.emplace(EmbeddingBagCollectionSharder(runtime, options).shard(tables, plan, group_));
    gradient_ = Tensor::empty({b_.workload.batch, b_.workload.tables * b_.workload.dim});
    gradient_.fill(1e-4);
    for (int i = 0; i < kStepBatches; ++i) step();  // lets buffers reach their size
    bare_.emplace(*group_, module_->last_exchanges());
    messages_ = largest_over_ranks(*group_, static_cast<double>(bare_->messages()));
  }

  void round() {
    module_->reset_stage_times();
    group_->barrier();
    const Stopwatch watch;
    for (int i = 0; i < b_.steps_per_round; ++i) step();
    steps_.push_back(largest_over_ranks(*group_, watch.us() / b_.steps_per_round));
    const StageTimes& t = module_->stage_times();
    kernels_.push_back(largest_over_ranks(*group_, 1e6 * (t.lookup + t.update) / b_.steps_per_round));
    add_stages(t);
    group_->barrier();
    const Stopwatch bare_watch;
    for (int i = 0; i < b_.steps_per_round; ++i) bare_->run();
    exchanges_.push_back(largest_over_ranks(*group_, bare_watch.us() / b_.steps_per_round));
    const Stopwatch copy_watch;
    for (int i = 0; i < b_.steps_per_round; ++i) bare_->copy();
    copies_.push_back(largest_over_ranks(*group_, copy_watch.us() / b_.steps_per_round));
  }

  // The times of all rounds since the last call.
  json take_line() {
    const double step = percentiles(steps_).median;
    const double kernel = percentiles(kernels_).median, exchange = percentiles(exchanges_).median;
    json stages;
    for (auto& [name, samples] : stages_) {
      stages[name] = percentiles(samples).median;
      samples.clear();
    }
    json line{{"bench", "step"},           {"world", b_.nproc},
              {"T", b_.workload.tables},   {"rows", b_.workload.rows},
              {"D", b_.workload.dim},      {"B", b_.workload.batch},
              {"L", b_.workload.pooling},  {"sharding", b_.workload.sharding},
              {"optimizer", b_.optimizer}, {"kernel", b_.kernel},
              {"backend", b_.backend},     {"threads", b_.common.threads}};
    if (b_.join != "auto") line["join"] = b_.join;
    add_times(&line, "us", steps_);
    line.update({{"kernel_us", kernel},
                 {"exchange_us", exchange},
                 {"copy_us", percentiles(copies_).median},
                 {"messages", static_cast<int64_t>(messages_)},
                 {"overhead_us", step - kernel - exchange},
                 {"samples_per_s", 1e6 * static_cast<double>(b_.nproc * b_.workload.batch) / step},
                 {"stages_us", std::move(stages)}});
    for (auto* samples : {&steps_, &kernels_, &exchanges_, &copies_}) samples->clear();
    return line;
  }

 private:
  void step() {
    auto out = module_->forward(batches_[next_++ % batches_.size()]).wait();
    module_->backward(out, gradient_);
  }

  // Adds the times of this rank. The exchanges include waiting for other ranks.
  void add_stages(const StageTimes& t) {
    const auto add = [&](const char* name, double seconds) {
      stages_[name].push_back(1e6 * seconds / b_.steps_per_round);
    };
    add("route", t.route);
    add("exchange ids", t.exchange_ids);
    add("lookup", t.lookup);
    add("exchange rows", t.exchange_rows);
    add("combine", t.combine);
    add("split", t.split);
    add("exchange gradients", t.exchange_gradients);
    add("table update", t.update);
    add("data parallel", t.data_parallel);
  }

  StepBench b_;
  std::shared_ptr<ProcessGroup> group_;
  const std::vector<KeyedJaggedTensor>& batches_;
  std::optional<ShardedEmbeddingBagCollection> module_;
  std::optional<BareExchange> bare_;
  Tensor gradient_;
  size_t next_ = 0;
  double messages_ = 0;                                       // of the rank that sends most in a step
  std::vector<double> steps_, kernels_, exchanges_, copies_;  // microseconds per round
  std::map<std::string, std::vector<double>> stages_;         // the same per stage
};

void run_rank(const StepBench& b, const RankEnvironment& where) {
  const Runtime runtime({{}, {}, true, b.common.threads});
  const auto tables = [](const ShardedBench& one) { return workload_tables(one.workload); };
  std::map<std::pair<std::string, std::string>, std::shared_ptr<ProcessGroup>> groups;  // per backend and join
  std::map<int64_t, std::vector<KeyedJaggedTensor>> batches;                            // per batch size
  std::shared_ptr<ProcessGroup> control;  // coordinates the rounds; the first transport's group
  std::vector<std::unique_ptr<StepSubject>> subjects;
  for (const ShardedBench& one : alternatives(b)) {
    auto& of_size = batches[one.workload.batch];
    if (of_size.empty()) of_size = workload_batches(tables(one), one.workload, where.rank, kStepBatches);
    for (const std::string& join : text_list("--join", b.join)) {
      std::shared_ptr<ProcessGroup>& group = groups[{one.backend, join}];
      CommConfig comm{.backend = one.backend, .timeout_s = b.common.deadline_s(60), .join_exchanges = join};
      if (!group) group = ProcessGroup::connect(runtime, where, group_options(comm, Device{}));
      if (!control) control = group;
      for (const std::string& optimizer : text_list("--optimizer", b.optimizer)) {
        subjects.push_back(
            std::make_unique<StepSubject>(runtime, StepBench{one, optimizer, join}, group, tables(one), of_size));
      }
    }
  }
  run_rounds(b.common, *control, subjects);
  control->barrier("end");
}

}  // namespace

BenchRun bench_step(const std::vector<std::string>& args, const CommonOptions& common) {
  StepBench b;
  b.common = common;
  Options options("bench step", "[OPTIONS]");
  options.add_options()("optimizer", po::value(&b.optimizer)->default_value(b.optimizer),
                        "fused optimizers, separated by commas");
  options.add_options()("join", po::value(&b.join)->default_value(b.join),
                        "comm.join_exchanges: auto, always or never, or several, separated by commas");
  b.steps_per_round = 50;
  if (!parse(options, args, &b)) return {};
  (void)text_list("--optimizer", b.optimizer);  // throws for a list with an empty item
  for (const std::string& join : text_list("--join", b.join)) check_join(join);
  return [b] {
    run_bench(b.nproc, b.common.deadline_s(3600), [&](const RankEnvironment& where) { run_rank(b, where); });
    return 0;
  };
}

}  // namespace tessera::cli
