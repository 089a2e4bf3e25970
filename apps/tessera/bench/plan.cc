// tessera bench plan: measures planning time and balance, on tables as skewed as in production.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "bench/bench.h"
#include "options.h"
#include "planner/greedy/partitioner.h"
#include "planner/skewed_tables.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

struct Size {
  int tables = 0;
  int ranks = 0;
};

// Seconds that planning may take on one core.
struct Bar {
  Size size;
  double seconds;
};
constexpr Bar kBars[] = {{{1000, 128}, 1}, {{4000, 256}, 10}};

struct PlanBenchOptions {
  CommonOptions common;
  std::vector<Size> sizes;
  std::vector<std::string> devices;
  int local_world_size = 8;
  double fill = 0.5;
  uint32_t seed = 1;
  double torchrec_s = 0;
};

// Parses "1000x128".
Size size_from(const std::string& text) {
  Size size;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%dx%d%c", &size.tables, &size.ranks, &rest) != 2 || size.tables < 1 ||
      size.ranks < 1) {
    throw UsageError("--sizes: \"" + text + "\" is not TABLESxRANKS, such as 1000x128");
  }
  return size;
}

double busiest(const std::vector<double>& loads) { return *std::max_element(loads.begin(), loads.end()); }
double balance(const std::vector<double>& loads) {
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  return busiest(loads) * static_cast<double>(loads.size()) / sum;
}

// The busiest rank in the greedy partitioner's result for the options that a plan has chosen; unset if they do not fit.
std::optional<double> greedy_busiest(const PlanResult& result) {
  std::vector<const ShardingOption*> chosen;
  for (const size_t index : result.chosen) chosen.push_back(&result.space.options[index]);
  const greedy::Partition greedy = greedy::partition(chosen, result.topology, result.reserved.available);
  if (greedy.failure) return std::nullopt;
  return greedy.perf_rating;
}

json number_or_null(const std::optional<double>& value) { return value ? json(*value) : json(); }

class PlanBench {
 public:
  explicit PlanBench(const PlanBenchOptions& options) : options_(options), report_(options.common) {}

  void run() {
    for (const Size& size : options_.sizes) {
      for (const std::string& device : options_.devices) run_one(size, device);
    }
  }

 private:
  void run_one(const Size& size, const std::string& device) {
    SkewedTables tables;
    tables.count = size.tables;
    tables.fill = options_.fill;
    tables.seed = options_.seed;
    tables.topology = Topology::of(size.ranks, std::min(options_.local_world_size, size.ranks), device);
    const auto [modules, planner_options] = tables.make();
    const EmbeddingShardingPlanner planner(runtime_, planner_options);
    std::optional<PlanResult> result;
    std::vector<double> seconds;
    Rounds rounds(options_.common);
    while (rounds.next()) {
      result.reset();
      const Stopwatch watch;
      result = planner.plan(modules);
      seconds.push_back(watch.us() / 1e6);
      if (rounds.print_each()) print(size, device, *result, {seconds.back()}, std::nullopt);
    }
    if (rounds.print_each()) return;
    print(size, device, *result, seconds, torchrec_busiest(modules, planner_options));
  }

  // The result of TorchRec's search when it is given the same time.
  std::optional<double> torchrec_busiest(const std::vector<PlannerModule>& modules, PlannerOptions options) const {
    if (options_.torchrec_s <= 0) return std::nullopt;
    options.search = PlannerSearch::kTorchrec;
    options.time_limit_s = options_.torchrec_s;
    try {
      return EmbeddingShardingPlanner(runtime_, options).plan(modules).perf_rating;
    } catch (const PlannerError&) {
      return std::nullopt;
    }
  }

  void print(const Size& size, const std::string& device, const PlanResult& result, const std::vector<double>& seconds,
             const std::optional<double>& torchrec) {
    const auto* bar = std::find_if(std::begin(kBars), std::end(kBars), [&](const Bar& b) {
      return b.size.tables == size.tables && b.size.ranks == size.ranks;
    });
    const double mean = std::accumulate(result.rank_perf.begin(), result.rank_perf.end(), 0.0) /
                        static_cast<double>(result.rank_perf.size());
    const std::optional<double> greedy = greedy_busiest(result);
    Line line{
        {"bench", "plan"}, {"tables", size.tables}, {"ranks", size.ranks}, {"device", device}, {"fill", options_.fill}};
    add_times(&line, "s", seconds);
    line.update({{"bar_s", bar == std::end(kBars) ? json() : json(bar->seconds)},
                 {"busiest_ms", busiest(result.rank_perf)},
                 {"balance", balance(result.rank_perf)},
                 {"greedy_balance", greedy ? json(*greedy / mean) : json()},
                 {"torchrec_busiest_ms", number_or_null(torchrec)}});
    report_.line(line);
  }

  const PlanBenchOptions& options_;
  Runtime runtime_;
  Report report_;
};

// Returns false if help was printed.
bool parse_plan(const std::vector<std::string>& args, PlanBenchOptions* options) {
  std::string sizes, devices;
  Options description(
      "bench plan", "[OPTIONS]",
      "Plans tables with the sizes and pooling skew of facebookresearch/dlrm_datasets on one core. balance is the "
      "largest load of a rank divided by the mean; greedy_balance is what TorchRec's greedy partitioner reaches "
      "with the same options (empty: it finds no plan). bar_s is the bound of the median time.");
  description.add_options()("sizes", po::value(&sizes)->default_value("1000x128,4000x256"),
                            "numbers of tables and ranks, separated by commas")(
      "device", po::value(&devices)->default_value("cuda,cpu"), "cpu, cuda or hip, separated by commas")(
      "local-world-size", po::value(&options->local_world_size)->default_value(8), "ranks per host")(
      "fill", po::value(&options->fill)->default_value(0.5), "share of all memory that the tables' rows take")(
      "seed", po::value(&options->seed)->default_value(1), "seed of the tables")(
      "torchrec", po::value(&options->torchrec_s)->default_value(0),
      "also plan once with TorchRec's search, for this many seconds; 0: do not");
  if (!parse(description, args, &options->common)) return false;
  for (const std::string& size : text_list("--sizes", sizes)) options->sizes.push_back(size_from(size));
  options->devices = text_list("--device", devices);
  if (options->local_world_size < 1) throw UsageError("--local-world-size must be at least 1");
  if (!(options->fill > 0)) throw UsageError("--fill must be more than 0");
  return true;
}

}  // namespace

BenchRun bench_plan(const std::vector<std::string>& args, const CommonOptions& common) {
  PlanBenchOptions options{.common = common};
  if (!parse_plan(args, &options)) return {};
  return [options] {
    PlanBench(options).run();
    return 0;
  };
}

}  // namespace tessera::cli
