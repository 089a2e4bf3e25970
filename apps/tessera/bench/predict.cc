// tessera bench predict: compares the cost model's step times with measured ones, on mixes of tables and on a job.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "bench/bench.h"
#include "bench/sharded_workload.h"
#include "calibrate/calibrate.h"
#include "calibration/synthetic_step.h"
#include "calibration/trials.h"
#include "options.h"
#include "plan/scale.h"
#include "spawn.h"
#include "tessera/train_job.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

constexpr double kDeadline = 900;
constexpr int kPredictBatches = 32, kBatchesOnHosts = 8;
// bound on a prediction's relative error, and the least difference at which plans must be ranked correctly
constexpr double kBar = 0.25;

struct PredictBench {
  CommonOptions common;
  std::string topology, config, mixes, network, plans, join = "auto";
  std::vector<std::string> set;
  bool quick = false;
};

// One model on a number of ranks, trained under several plans in turn.
struct Mix {
  const char* name;
  int ranks;  // kLaunched: those that a launcher has started, on several hosts
  SyntheticModel model;
  std::vector<std::string> plans;
};

constexpr int kLaunched = 0;
// The plan in which tables take the sharders of this list in turn, and the one of the planner.
const std::string kMixed = "mixed", kPlanned = "planned";
const std::vector<std::string> kInTurn = {"table_wise",    "row_wise",       "column_wise",
                                          "data_parallel", "table_row_wise", "grid_shard"};
const std::vector<std::string> kOnHosts = {"table_wise",    "row_wise",       "column_wise",
                                           "data_parallel", "table_row_wise", "table_column_wise",
                                           "grid_shard",    kMixed,           kPlanned};

const std::vector<std::string> kAlone = {"table_wise", "data_parallel"};
const std::vector<std::string> kTogether = {"table_wise", "row_wise", "column_wise", kPlanned};
const std::vector<std::string> kSmallTogether = {"table_wise", "row_wise", "column_wise", "data_parallel", kPlanned};

std::vector<Mix> all_mixes() {
  return {{"few large tables", 1, {4, 500000, 64, 512, 10}, {"table_wise"}},
          {"many small tables", 1, {64, 2000, 16, 256, 1}, kAlone},
          {"long bags, skewed", 1, {8, 200000, 32, 128, 50, 1.1}, {"table_wise"}},
          {"two ranks, even", 2, {8, 100000, 32, 256, 10}, kTogether},
          {"two ranks, many small", 2, {40, 5000, 16, 128, 2, 1.05}, kSmallTogether},
          {"two ranks, wide and skewed", 2, {3, 100000, 128, 256, 20, 1.2}, kTogether},
          {"hosts, wide", kLaunched, {16, 1000, 64, 256, 4}, kOnHosts},
          {"hosts, small messages", kLaunched, {16, 1000, 16, 32, 1}, kOnHosts},
          {"hosts, few tables", kLaunched, {4, 4000, 128, 128, 8}, kOnHosts}};
}

ShardingPlan plan_of(const Runtime& runtime, const std::string& name, const SyntheticStep& step) {
  const auto all = [&](const std::string& type) {
    const Topology& topology = step.planner().topology;
    constexpr int64_t kColumnShards = 4;
    const int64_t least = topology.hosts() > 1 ? step.model().dim / kColumnShards : 0;
    return workload_plan(runtime, step.module().tables, type, topology, least);
  };
  if (name == kPlanned) return EmbeddingShardingPlanner(runtime, step.planner()).plan({step.module()}).plan;
  if (name != kMixed) return step.plan_of(all(name));
  std::vector<EmbeddingModuleShardingPlan> by_type;
  for (const std::string& type : kInTurn) by_type.push_back(all(type));
  EmbeddingModuleShardingPlan mixed;
  for (size_t t = 0; t < step.module().tables.size(); ++t) {
    const std::string& table = step.module().tables[t].name;
    mixed.add(table, by_type[t % by_type.size()].at(table));
  }
  return step.plan_of(std::move(mixed));
}

// One plan's measurements over the rounds.
struct PredictSubject {
  std::string plan;
  std::unique_ptr<ModelTrainer> trainer;
  StepPrediction predicted;
  std::vector<double> us;  // microseconds per step, per round
};

PredictSubject subject_of(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group, const SyntheticStep& step,
                          const std::string& name) {
  const ShardingPlan plan = plan_of(runtime, name, step);
  return {name, step.trainer(runtime, group, "auto", plan), step.predicted(runtime, plan), {}};
}

json result_line(const char* mix, int ranks, const std::string& plan, double predicted_us,
                 const std::vector<double>& us) {
  json line{{"bench", "predict"}, {"mix", mix}, {"ranks", ranks}, {"plan", plan}, {"predicted_us", predicted_us}};
  add_times(&line, "us", us);
  line["off_percent"] = 100 * (predicted_us / percentiles(us).median - 1);
  return line;
}

json stages_of(const PredictSubject& s, double steps) {
  json out;
  const Stages measured = s.trainer->stages();
  for (const auto& [name, seconds] : s.predicted.stages[0]) {
    const auto found =
        std::find_if(measured.begin(), measured.end(), [&n = name](const auto& m) { return m.first == n; });
    out[name] = {std::round(1e7 * seconds) / 10, std::round(1e7 * found->second / steps) / 10};
  }
  return out;
}

PlannerOptions planner_options(const PredictBench& b, const ProcessGroup& group, const Machine& machine) {
  PlannerOptions out;
  out.topology = Topology::of(group.world_size(), group.local_world_size(), "cpu");
  out.machine = machine;
  out.joins = group.joins();
  if (!b.network.empty()) out.network = network_of(b.network, group.local_world_size());
  return out;
}

// The lines of one mix, from one rank.
std::string run_mix(const PredictBench& b, const Mix& m, const Machine& machine, const RankEnvironment& where) {
  const Runtime runtime({{}, {}, true, b.common.threads});
  CommConfig comm{.timeout_s = kDeadline, .join_exchanges = b.join};
  const auto group = ProcessGroup::connect(runtime, where, group_options(comm, Device{}));
  const int ranks = group->world_size();
  const SyntheticStep step(m.model, planner_options(b, *group, machine));
  const auto batches = step.batches(group->rank(), m.ranks == kLaunched ? kBatchesOnHosts : kPredictBatches);
  std::vector<PredictSubject> subjects;
  for (const std::string& plan : b.plans.empty() ? m.plans : text_list("--plans", b.plans))
    subjects.push_back(subject_of(runtime, group, step, plan));
  std::vector<int> steps;
  for (PredictSubject& s : subjects) {
    for (const Batch& batch : batches) s.trainer->step(batch);
    group->barrier("warm");
    const Stopwatch watch;
    for (int i = 0; i < 4; ++i) s.trainer->step(batches[static_cast<size_t>(i)]);
    const Tensor count = Tensor::scalar<int32_t>(static_cast<int32_t>(std::clamp(4 * 60e3 / watch.us(), 8.0, 400.0)));
    group->broadcast(count, 0, "steps").wait();
    steps.push_back(count.item());
    s.trainer->reset_stages();
  }
  size_t next = 0;
  for (int round = 0; round < b.common.rounds; ++round) {
    for (size_t i = 0; i < subjects.size(); ++i) {
      group->barrier("round");
      std::vector<double> each;
      for (int k = 0; k < steps[i]; ++k) {
        const Stopwatch watch;
        subjects[i].trainer->step(batches[next++ % batches.size()]);
        each.push_back(watch.us());
      }
      subjects[i].trainer->take_losses();
      subjects[i].us.push_back(largest_over_ranks(*group, median_of(std::move(each))));
    }
  }
  json lines = json::array();
  for (size_t i = 0; i < subjects.size(); ++i) {
    const StepPrediction& predicted = subjects[i].predicted;
    json line = result_line(m.name, ranks, subjects[i].plan, 1e6 * predicted.seconds, subjects[i].us);
    if (m.ranks == kLaunched)
      line.update({{"across_hosts_us", 1e6 * predicted.across_hosts}, {"bytes_across", predicted.bytes_across_hosts}});
    if (b.common.json) line["stages_us"] = stages_of(subjects[i], static_cast<double>(steps[i]) * b.common.rounds);
    lines.push_back(std::move(line));
  }
  group->barrier("end");
  return lines.dump();
}

// Writes a text to a temporary file that lives as long as this object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    char name[] = "/tmp/tessera-XXXXXX";
    const int fd = ::mkstemp(name);
    if (fd < 0) fail(Code::kUnavailable, "cannot make a file in /tmp: ", std::strerror(errno));
    path_ = name;
    const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::close(fd);
    if (!written) fail(Code::kUnavailable, "cannot write ", path_);
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Trains the job of a config for one epoch per round.
json run_config(const PredictBench& b, int ranks, const std::string& topology) {
  std::vector<std::string> set = b.set;
  if (!topology.empty()) set.push_back("planner.topology=\"" + topology + "\"");
  const Config config = load_config(b.config, set);
  std::vector<double> us;
  double predicted = 0;
  for (int round = 0; round < b.common.rounds; ++round) {
    const auto texts = run_in_ranks(ranks, ranks, kDeadline, [&](const RankEnvironment& where) {
      const Runtime runtime({config.plugins.path, config.plugins.require, true, b.common.threads});
      const auto group = ProcessGroup::connect(runtime, where, {config.comm.backend, "{}", config.comm.timeout_s});
      TrainJob job(runtime, config, {}, group);
      job.train({});
      const PlannedFigure step = job.report(job.evaluate()).plan_versus_actual.step_us;
      group->barrier("end");
      return json{step.predicted, step.measured}.dump();
    });
    const json step = json::parse(texts[0]);
    predicted = step[0];
    us.push_back(step[1]);
  }
  return result_line("config", ranks, "planned", predicted, us);
}

// Counts the lines that are within the bar. Of the pairs of plans of one mix that differ by more than the bar, counts
// those that are ranked in the right order.
json bars_of(const std::vector<json>& lines) {
  int within = 0, pairs = 0, right = 0;
  double worst = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const double off = std::abs(lines[i]["off_percent"].get<double>()) / 100;
    within += off <= kBar;
    worst = std::max(worst, off);
    for (size_t k = 0; k < i; ++k) {
      if (lines[k]["mix"] != lines[i]["mix"] || lines[k]["ranks"] != lines[i]["ranks"]) continue;
      const double a = lines[i]["median_us"], c = lines[k]["median_us"];
      if (std::max(a, c) <= (1 + kBar) * std::min(a, c)) continue;
      ++pairs;
      right += (a < c) == (lines[i]["predicted_us"].get<double>() < lines[k]["predicted_us"].get<double>());
    }
  }
  return {{"bench", "predict bars"},      {"lines", lines.size()}, {"within_25_percent", within},
          {"worst_percent", 100 * worst}, {"pairs_apart", pairs},  {"pairs_ranked_right", right}};
}

// The machine's figures for `ranks` ranks: read from the file, or measured now, because other load on a machine changes
// from minute to minute.
Machine machine_for(const PredictBench& b, int ranks) {
  if (!b.topology.empty()) return load_machine(b.topology);
  CalibrateOptions options{.nproc = ranks, .threads = b.common.threads, .quick = b.quick};
  return calibrated(options);
}

bool is_launched() { return RankEnvironment::from_environment().source != "single"; }

bool parse_predict(const std::vector<std::string>& args, PredictBench* b) {
  Options options("bench predict", "[OPTIONS]");
  auto add = options.add_options();
  add("topology", po::value(&b->topology),
      "figures from tessera calibrate (default: they are measured before each mix)");
  add("mixes", po::value(&b->mixes),
      "numbers of the synthetic mixes: 1 to 6 (all of them by default), 0 for none, or 7 to 9 on the ranks that a "
      "launcher has started");
  add("network", po::value(&b->network), "under a launcher: network between hosts, as in tessera plan --network");
  add("plans", po::value(&b->plans),
      "plans of each mix, separated by commas: sharders, mixed or planned (default: all that suit the mix)");
  add("join", po::value(&b->join)->default_value(b->join), "comm.join_exchanges: auto, always or never");
  add("config", po::value(&b->config), "also measure this job, on 1 and 2 ranks, with one epoch per round");
  add("set", po::value(&b->set)->composing(), "change a key of the config, as in section.key=value; may be repeated");
  add("quick", po::bool_switch(&b->quick), "calibrate in a few seconds, with rougher figures");
  if (!parse(options, args, &b->common)) return false;
  if (b->common.round_per_line)
    throw UsageError("--round-per-line is not for predict: its rounds cannot be told apart");
  const bool launched = is_launched();
  if (b->mixes.empty()) b->mixes = launched ? "7,8,9" : "1,2,3,4,5,6";
  for (const int64_t mix : integer_list("--mixes", b->mixes, 0)) {
    if (mix > std::ssize(all_mixes()))
      throw UsageError(str_cat("--mixes has ", mix, "; there are 1 to ", all_mixes().size()));
    if (mix > 0 && (all_mixes()[static_cast<size_t>(mix - 1)].ranks == kLaunched) != launched)
      throw UsageError(str_cat("--mixes has ", mix,
                               launched ? ", which starts ranks itself: under a launcher choose 7, 8 or 9"
                                        : ", whose ranks a launcher has to start: choose 1 to 6"));
  }
  if (launched && !b->config.empty()) throw UsageError("--config starts ranks itself: leave it out under a launcher");
  if (!launched && !b->network.empty())
    throw UsageError("--network is for ranks on several hosts, which a launcher starts");
  check_join(b->join);
  if (!b->network.empty()) (void)network_of(b->network, 1);  // throws for nonsense
  return true;
}

// The mixes on the ranks of a launcher, of which this is one. Without --topology, what a rank's own work costs is
// typical, because ranks that are already there cannot calibrate alone.
int run_launched(const PredictBench& b) {
  const std::vector<Mix> mixes = all_mixes();
  const Machine machine = b.topology.empty() ? Machine::typical("cpu") : load_machine(b.topology);
  RankEnvironment where = RankEnvironment::from_environment();
  Report report(b.common);
  std::vector<json> lines;
  for (const int64_t number : integer_list("--mixes", b.mixes, 0)) {
    if (number == 0) continue;
    for (const json& line : json::parse(run_mix(b, mixes[static_cast<size_t>(number - 1)], machine, where))) {
      if (where.rank == 0) report.line(line);
      lines.push_back(line);
    }
  }
  if (where.rank == 0) report.line(bars_of(lines));
  return 0;
}

int run_predict(const PredictBench& b) {
  const std::vector<Mix> mixes = all_mixes();
  const std::vector<int64_t> wanted = integer_list("--mixes", b.mixes, 0);
  Report report(b.common);
  std::vector<json> lines;
  const auto show = [&](const json& line) {
    report.line(line);
    lines.push_back(line);
  };
  for (const int ranks : {1, 2}) {
    std::vector<const Mix*> here;
    for (const int64_t number : wanted) {
      if (number > 0 && mixes[static_cast<size_t>(number - 1)].ranks == ranks)
        here.push_back(&mixes[static_cast<size_t>(number - 1)]);
    }
    if (here.empty() && b.config.empty()) continue;
    for (const Mix* m : here) {
      const Machine machine = machine_for(b, ranks);
      const std::string text = run_in_ranks(
          ranks, ranks, kDeadline, [&](const RankEnvironment& where) { return run_mix(b, *m, machine, where); })[0];
      for (const json& line : json::parse(text)) show(line);
    }
    if (!b.config.empty()) {
      const TemporaryFile file(machine_for(b, ranks).json());
      show(run_config(b, ranks, file.path()));
    }
  }
  report.line(bars_of(lines));
  return 0;
}

}  // namespace

BenchRun bench_predict(const std::vector<std::string>& args, const CommonOptions& common) {
  PredictBench b{.common = common};
  if (!parse_predict(args, &b)) return {};
  return [b] { return is_launched() ? run_launched(b) : run_predict(b); };
}

}  // namespace tessera::cli
