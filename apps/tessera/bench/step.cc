// tessera bench step: forward + backward of a sharded EmbeddingBagCollection, and where the time goes.
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/bench.h"
#include "bench/sharded_workload.h"
#include "spawn.h"
#include "tessera/sharded_modules.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

struct StepBench {
  CommonOptions common;
  ShardedWorkload workload;
  std::string kernel = "auto", backend = "auto", optimizer = "exact_rowwise_adagrad";
  int nproc = 1;
  int steps_per_round = 50;
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
  const auto group = ProcessGroup::connect(runtime, where, {b.backend, "{}", 60});
  const auto tables = workload_tables(b.workload);
  b.workload.tables = static_cast<int64_t>(tables.size());
  b.backend = group->backend();
  ShardedModuleOptions options;
  options.kernel = b.kernel;
  options.optimizer = {b.optimizer, R"({"learning_rate": 0.01})", 0};
  const auto plan = workload_plan(runtime, tables, b.workload.sharding, Topology::of(b.nproc, b.nproc, "cpu"));
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
  auto add = options.add_options();
  add("nproc", po::value(&b.nproc)->default_value(b.nproc), "ranks, one process each");
  add("tables", po::value(&b.workload.tables)->default_value(b.workload.tables), "number of tables");
  add("rows", po::value(&b.workload.rows)->default_value(b.workload.rows), "rows of each table, or criteo:CAP");
  add("dim", po::value(&b.workload.dim)->default_value(b.workload.dim), "columns of each table");
  add("batch", po::value(&b.workload.batch)->default_value(b.workload.batch), "samples per rank");
  add("pooling", po::value(&b.workload.pooling)->default_value(b.workload.pooling), "ids per bag");
  add("sharding", po::value(&b.workload.sharding)->default_value(b.workload.sharding),
      "a sharder's id, for every table");
  add("optimizer", po::value(&b.optimizer)->default_value(b.optimizer), "a fused optimizer's id");
  add("kernel", po::value(&b.kernel)->default_value(b.kernel), "kernel plugin");
  add("backend", po::value(&b.backend)->default_value(b.backend), "collective plugin");
  add("steps", po::value(&b.steps_per_round)->default_value(b.steps_per_round), "steps per round");
  if (!parse(options, args, &b.common)) return 0;
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"--nproc", b.nproc},
                                    {"--tables", b.workload.tables},
                                    {"--dim", b.workload.dim},
                                    {"--batch", b.workload.batch},
                                    {"--pooling", b.workload.pooling},
                                    {"--steps", b.steps_per_round}}) {
    if (value < 1) throw UsageError(cat(name, " must be at least 1"));
  }
  workload_tables(b.workload);  // refuses --rows here rather than in every rank
  run_in_ranks(b.nproc, b.nproc, 3600, [&](const RankEnvironment& where) {
    run_rank(b, where);
    return std::string();
  });
  return 0;
}

}  // namespace tessera::cli
