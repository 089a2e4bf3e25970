// tessera bench read: reads the training samples of a job's data, from the files to batches.
#include <sys/resource.h>

#include <limits>

#include "bench/bench.h"
#include "data/reader_choice.h"
#include "options.h"
#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/error.h"
#include "tessera/runtime.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

struct ReadBench {
  CommonOptions common;
  std::string config;
  std::vector<std::string> overrides;
};

double used_by_process_s() {
  rusage usage{};
  (void)::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int run_read(const ReadBench& b) {
  Config config = load_config(b.config, b.overrides);
  const Runtime runtime({config.plugins.path, config.plugins.require, true, b.common.threads});
  config.data.reader = data::reader_of(runtime, config.data);
  const Stopwatch opening;
  const Dataset data = read_dataset(runtime, config);
  const double open_s = opening.us() / 1e6;
  if (data.train_rows() == 0) fail(Code::kInvalidArgument, b.config, ": the data has no training rows");
  std::vector<double> seconds, used;
  int64_t ids = 0;
  Report report(b.common);
  const auto print = [&] {
    const auto rows = static_cast<double>(data.train_rows());
    Line line{{"bench", "read"},
              {"reader", config.data.reader},
              {"rows", data.train_rows()},
              {"B", config.data.batch},
              {"streamed", data.train.streamed != nullptr}};
    add_times(&line, "s", seconds);
    line["cpu_s"] = percentiles(used).median;  // over all threads
    line["rows_per_cpu_s"] = rows / std::max(percentiles(used).median, std::numeric_limits<double>::min());
    line["ids"] = ids;
    line["open_s"] = open_s;
    report.line(line);
    seconds.clear();
    used.clear();
  };
  Rounds rounds(b.common);
  BatchReader reader(data.train, {.batch = config.data.batch, .shuffle = config.data.shuffle});
  for (int64_t epoch = 0; rounds.next(); ++epoch) {
    const Stopwatch watch;
    const double before = used_by_process_s();
    ids = 0;
    reader.start_epoch(epoch);
    for (Batch batch; reader.next(batch);) ids += batch.sparse.values().numel();
    seconds.push_back(watch.us() / 1e6);
    used.push_back(used_by_process_s() - before);
    if (rounds.print_each()) print();
  }
  if (!rounds.print_each()) print();
  return 0;
}

}  // namespace

BenchRun bench_read(const std::vector<std::string>& args, const CommonOptions& common) {
  ReadBench b;
  b.common = common;
  Options options("bench read", "--config FILE [OPTIONS]",
                  "Reads the training samples of a job's data into batches, one epoch per round. Data that fit "
                  "data.buffer_mib are read only once, before the first round: make it small to measure the reader.");
  auto add = options.add_options();
  add("config", po::value(&b.config)->value_name("FILE"), "the job");
  add("set", po::value(&b.overrides)->value_name("KEY=VALUE"), "change a key of the config; may be repeated");
  if (!parse(options, args, &b.common)) return {};
  if (b.config.empty()) throw UsageError("--config FILE is needed: the job whose data is read");
  return [b] { return run_read(b); };
}

}  // namespace tessera::cli
