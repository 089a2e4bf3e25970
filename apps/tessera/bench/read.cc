// tessera bench read: reads the training samples of a job's data, from the files to batches.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "bench/bench.h"
#include "bench/report/circumstances.h"
#include "options.h"
#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/error.h"
#include "tessera/runtime.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

namespace fs = std::filesystem;

struct ReadBench {
  CommonOptions common;
  std::string config;
  std::vector<std::string> overrides;
  int64_t columns = 10, files = 1, samples = 10000;  // made data, without a config
};

// CSV files of numbers in a folder of their own, which goes with it, and the job that reads them. One column has ids,
// the others are dense.
class MadeFiles {
 public:
  explicit MadeFiles(const ReadBench& b) {
    std::string name = (fs::temp_directory_path() / "tessera_read_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) fail(Code::kUnavailable, "cannot make a folder: ", name);
    folder_ = name;
    for (int64_t f = 0; f < b.files; ++f) {
      std::ofstream out(folder_ / str_cat(1'000'000 + f, ".csv"));
      out << "label";
      for (int64_t c = 0; c < b.columns; ++c) out << ",c" << c;
      for (int64_t s = f * b.samples / b.files; s < (f + 1) * b.samples / b.files; ++s) {
        out << '\n' << s % 2;
        for (int64_t c = 0; c < b.columns; ++c) out << ',' << (s * 7 + c * 3) % 1000;
      }
      out << '\n';
      if (!out.flush()) fail(Code::kUnavailable, "cannot write to ", folder_.string());
    }
  }
  ~MadeFiles() { fs::remove_all(folder_, ignored_); }
  MadeFiles(const MadeFiles&) = delete;
  MadeFiles& operator=(const MadeFiles&) = delete;

  Config job(const ReadBench& b) const {
    std::string text = str_cat("data = {reader = \"csv\", path = \"", folder_.string(), "\"}\n");
    text += "[[column]]\nname = \"label\"\nas = \"label\"\n";
    text += "[[column]]\nname = \"c0\"\nids = \"vocabulary\"\n";
    for (int64_t c = 1; c < b.columns; ++c) text += str_cat("[[column]]\nname = \"c", c, "\"\nas = \"dense\"\n");
    return parse_config(text, "the made job", b.overrides);
  }

 private:
  fs::path folder_;
  std::error_code ignored_;
};

int run_read(const ReadBench& b) {
  const std::optional<MadeFiles> made = b.config.empty() ? std::make_optional<MadeFiles>(b) : std::nullopt;
  Config config = made ? made->job(b) : load_config(b.config, b.overrides);
  const Runtime runtime({config.plugins.path, config.plugins.require, true, b.common.threads});
  choose_reader(runtime, config);
  const Stopwatch opening;
  const Dataset data = read_dataset(runtime, config);
  const double open_s = opening.us() / 1e6;
  if (data.train_rows() == 0) fail(Code::kInvalidArgument, b.config, ": the data has no training rows");
  std::vector<double> seconds, used;
  int64_t ids = 0;
  Report report(b.common);
  const auto print = [&] {
    const auto rows = static_cast<double>(data.train_rows());
    Line line{
        {"bench", "read"},        {"reader", config.data.reader},     {"rows", data.train_rows()},
        {"B", config.data.batch}, {"columns", config.columns.size()}, {"streamed", data.train.streamed != nullptr}};
    add_times(&line, "s", seconds);
    line["cpu_s"] = percentiles(used).median;  // over all threads
    line["rows_per_cpu_s"] = rows / std::max(percentiles(used).median, std::numeric_limits<double>::min());
    line["ids"] = ids;
    line["open_s"] = open_s;
    report.line(line);
    seconds.clear();
    used.clear();
  };
  BatchReader reader(data.train, {.batch = config.data.batch, .shuffle = config.data.shuffle});
  int64_t epoch = 0;
  const auto round = [&] {
    const Stopwatch watch;
    const double before = used_by_us();
    ids = 0;
    reader.start_epoch(epoch++);
    for (Batch batch; reader.next(batch);) ids += batch.sparse.values().numel();
    seconds.push_back(watch.us() / 1e6);
    used.push_back(used_by_us() - before);
  };
  run_rounds(b.common, round, print);
  return 0;
}

}  // namespace

BenchRun bench_read(const std::vector<std::string>& args, const CommonOptions& common) {
  ReadBench b{.common = common};
  Options options("bench read", "[--config FILE] [OPTIONS]",
                  "Reads the training samples of a job's data into batches, one epoch per round. Data that fit "
                  "data.buffer_mib are read only once, before the first round: make it small to measure the reader. "
                  "Without --config, CSV files of numbers are made and removed.");
  auto add = options.add_options();
  add("config", po::value(&b.config)->value_name("FILE"), "the job");
  add("set", po::value(&b.overrides)->value_name("KEY=VALUE"), "change a key of the config; may be repeated");
  add("columns", po::value(&b.columns)->default_value(b.columns), "columns of made data, without --config");
  add("files", po::value(&b.files)->default_value(b.files), "files of made data");
  add("samples", po::value(&b.samples)->default_value(b.samples), "samples of made data");
  if (!parse(options, args, &b.common)) return {};
  for (const auto& [name, value] : {std::pair{"columns", b.columns}, {"files", b.files}, {"samples", b.samples}}) {
    if (value < 1) throw UsageError(str_cat("--", name, " must be at least 1"));
    if (!b.config.empty() && std::any_of(args.begin(), args.end(), [&, option = str_cat("--", name)](const auto& a) {
          return a == option || a.starts_with(option + "=");
        }))
      throw UsageError(str_cat("--", name, " is for made data, without --config"));
  }
  if (b.samples < b.files) throw UsageError("--samples must be at least --files");
  return [b] { return run_read(b); };
}

}  // namespace tessera::cli
