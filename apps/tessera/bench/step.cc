// tessera bench step: forward + backward of a sharded EmbeddingBagCollection, and where the time goes.
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/bench.h"
#include "bench/sharded_workload.h"
#include "tessera/sharded_modules.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

struct StepBench : ShardedBench {
  std::string optimizer = "exact_rowwise_adagrad";
};

constexpr int kBatches = 16;

// The exchanges of one step with nothing between them.
class BareExchange {
 public:
  BareExchange(const ProcessGroup& group, StepTraffic traffic) : group_(group), traffic_(std::move(traffic)) {
    const auto sum = [](const std::vector<int64_t>& v) { return std::accumulate(v.begin(), v.end(), int64_t{0}); };
    header_counts_.assign(group.world_size(), 32);
    header_ = Tensor::zeros({32 * group.world_size()}, DType::kUInt8);
    header_in_ = header_.clone();
    ids_ = Tensor::zeros({sum(traffic_.ids_sent)}, DType::kUInt8);
    ids_in_ = Tensor::zeros({sum(traffic_.ids_received)}, DType::kUInt8);
    rows_ = Tensor::zeros({sum(traffic_.rows_sent)});
    rows_in_ = Tensor::zeros({sum(traffic_.rows_received)});
  }
  void run() const {
    group_.all_to_all_v(header_, header_counts_, header_in_, header_counts_, "header").wait();
    group_.all_to_all_v(ids_, traffic_.ids_sent, ids_in_, traffic_.ids_received, "ids").wait();
    group_.all_to_all_v(rows_, traffic_.rows_sent, rows_in_, traffic_.rows_received, "rows").wait();
    group_.all_to_all_v(rows_in_, traffic_.rows_received, rows_, traffic_.rows_sent, "gradients").wait();
  }

 private:
  const ProcessGroup& group_;
  StepTraffic traffic_;
  std::vector<int64_t> header_counts_;
  Tensor header_, header_in_, ids_, ids_in_, rows_, rows_in_;
};

double largest_over_ranks(const ProcessGroup& group, double value) {
  const Tensor t = Tensor::scalar(value);
  if (group.world_size() > 1) group.all_reduce(t, ReduceOp::kMax, "bench").wait();
  return t.item();
}

json result_line(const StepBench& b, const std::vector<double>& steps, const std::vector<double>& kernels,
                 const std::vector<double>& exchanges) {
  const Percentiles step = percentiles(steps);
  const double kernel = percentiles(kernels).median, exchange = percentiles(exchanges).median;
  return {{"bench", "step"},
          {"world", b.nproc},
          {"T", b.workload.tables},
          {"rows", b.workload.rows},
          {"D", b.workload.dim},
          {"B", b.workload.batch},
          {"L", b.workload.pooling},
          {"sharding", b.workload.sharding},
          {"optimizer", b.optimizer},
          {"kernel", b.kernel},
          {"backend", b.backend},
          {"threads", b.common.threads},
          {"median_us", step.median},
          {"p10_us", step.p10},
          {"p90_us", step.p90},
          {"kernel_us", kernel},
          {"exchange_us", exchange},
          {"overhead_us", step.median - kernel - exchange},
          {"samples_per_s", 1e6 * static_cast<double>(b.nproc * b.workload.batch) / step.median}};
}

void run_rank(StepBench b, const RankEnvironment& where) {
  const Runtime runtime({{}, {}, true, b.common.threads});
  const auto group = ProcessGroup::connect(runtime, where, {b.backend, "{}", b.common.deadline_s(60)});
  const auto tables = workload_tables(b.workload);
  b.workload.tables = static_cast<int64_t>(tables.size());
  b.backend = group->backend();
  ShardedModuleOptions options;
  options.kernel = b.kernel;
  options.optimizer = {b.optimizer, R"({"learning_rate": 0.01})", 0};
  const auto plan =
      workload_plan(runtime, tables, b.workload.sharding, Topology::of(b.nproc, group->local_world_size(), "cpu"));
  auto module = EmbeddingBagCollectionSharder(runtime, options).shard(tables, plan, group);
  const auto batches = workload_batches(tables, b.workload, group->rank(), kBatches);
  Tensor grad = Tensor::empty({b.workload.batch, static_cast<int64_t>(tables.size()) * b.workload.dim});
  grad.fill(1e-4);
  size_t next = 0;
  const auto step = [&] {
    auto out = module.forward(batches[next++ % batches.size()]).wait();
    module.backward(out, grad);
  };
  for (int i = 0; i < kBatches; ++i) step();  // buffers reach their size
  const BareExchange bare(*group, module.last_traffic());
  Rounds rounds(b.common);
  Report report(b.common);
  std::vector<double> steps, kernels, exchanges;
  while (rounds.next_together(*group)) {
    module.reset_stage_times();
    group->barrier();
    Stopwatch watch;
    for (int i = 0; i < b.steps_per_round; ++i) step();
    steps.push_back(largest_over_ranks(*group, watch.us() / b.steps_per_round));
    const StageTimes& t = module.stage_times();
    kernels.push_back(largest_over_ranks(*group, 1e6 * (t.lookup + t.update) / b.steps_per_round));
    group->barrier();
    Stopwatch bare_watch;
    for (int i = 0; i < b.steps_per_round; ++i) bare.run();
    exchanges.push_back(largest_over_ranks(*group, bare_watch.us() / b.steps_per_round));
    if (rounds.print_each() && group->rank() == 0) {
      report.line(result_line(b, {steps.back()}, {kernels.back()}, {exchanges.back()}));
    }
  }
  if (!rounds.print_each() && group->rank() == 0) report.line(result_line(b, steps, kernels, exchanges));
  group->barrier("end");
}

}  // namespace

int bench_step(const std::vector<std::string>& args) {
  StepBench b;
  po::options_description options("usage: tessera bench step [OPTIONS]");
  options.add_options()("optimizer", po::value(&b.optimizer)->default_value(b.optimizer), "a fused optimizer's id");
  b.steps_per_round = 50;
  if (!parse(options, args, &b)) return 0;
  run_bench(b.nproc, b.common.deadline_s(3600), [&](const RankEnvironment& where) { run_rank(b, where); });
  return 0;
}

}  // namespace tessera::cli
