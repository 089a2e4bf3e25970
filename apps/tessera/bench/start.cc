// tessera bench start: times `tessera train` as a process, from its start to the end of its first step.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "bench/bench.h"
#include "options.h"
#include "processes.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

struct StartBench {
  CommonOptions common;
  int64_t tables = 26, rows = 100000, dim = 64, batch = 128;
  std::string model = "dlrm";
  double timeout_s = 60;
};

// A temporary folder, removed with its content when this object is destroyed.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tessera-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      fail(Code::kUnavailable, "cannot make a folder ", name, ": ", system_error());
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

void write_config(const StartBench& b, const std::string& path, const std::string& report) {
  std::ofstream file(path);
  file << "[job]\ndevice = \"cpu\"\nthreads = " << b.common.threads << "\n[model]\nembedding_dim = " << b.dim << "\n";
  if (b.model == "dlrm") file << "type = \"dlrm\"\nbottom_mlp = [512, 256, " << b.dim << "]\ntop_mlp = [512, 256, 1]\n";
  file << "[data]\nreader = \"synthetic\"\ncolumns = " << b.tables << "\nrows = [" << b.rows << "]\nbatch = " << b.batch
       << "\nsamples = " << b.batch << "\ntest_samples = " << b.batch << "\n[report]\njson = \"" << report << "\"\n";
}

std::string last_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

// Replaces a forked process by this program with other arguments; its output goes to `log`.
[[noreturn]] void become_self(std::vector<std::string> args, const std::string& log) {
  args.insert(args.begin(), "tessera");
  std::vector<char*> raw;
  for (std::string& a : args) raw.push_back(a.data());
  raw.push_back(nullptr);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (out >= 0 && ::dup2(out, STDOUT_FILENO) >= 0 && ::dup2(out, STDERR_FILENO) >= 0)
    ::execv("/proc/self/exe", raw.data());
  ::_exit(127);
}

// Runs this program with other arguments and waits for it to end.
void run_self(const std::vector<std::string>& args, const std::string& log, double timeout_s) {
  Processes processes(1, Processes::kWithParent);
  if (processes.fork_rank(0)) become_self(args, log);
  const Deadline deadline = after(timeout_s);
  std::optional<int> status;
  while (!(status = processes.reap(0))) {
    if (seconds_until(deadline) <= 0)
      fail(Code::kDeadlineExceeded, "tessera train with one step was not done after ", timeout_s,
           " s: raise --timeout");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0)
    fail(Code::kUnavailable, "tessera train with one step failed: ", last_line_of(log));
}

// Seconds to write the tables' bytes into memory that is new to the process.
double touched(const StartBench& b) {
  const auto bytes = static_cast<size_t>(b.tables * b.rows * b.dim) * sizeof(float);
  const Stopwatch watch;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail(Code::kResourceExhausted, "no memory for tables of ", bytes, " bytes");
  (void)::madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);
  const double seconds = watch.us() / 1e6;
  ::munmap(memory, bytes);
  return seconds;
}

int run_start(const StartBench& b) {
  const Folder folder;
  write_config(b, folder.file("job.toml"), folder.file("report.json"));
  std::vector<std::string> train = {"train", "--config", folder.file("job.toml"), "--max-steps", "1"};
  if (b.model != "dlrm") train.insert(train.end(), {"--model", b.model});
  std::vector<double> firsts, wholes, floors;
  Report report(b.common);
  const auto print = [&] {
    Line line{{"bench", "start"}, {"T", b.tables}, {"E", b.rows},
              {"D", b.dim},       {"B", b.batch},  {"threads", b.common.threads}};
    if (b.model != "dlrm") line["model"] = b.model;
    add_times(&line, "s", firsts);
    line["until_exit_s"] = percentiles(wholes).median;
    line["floor_s"] = percentiles(floors).median;
    report.line(line);
    firsts.clear();
    wholes.clear();
    floors.clear();
  };
  const auto round = [&] {
    const Stopwatch watch;
    run_self(train, folder.file("log"), b.timeout_s);
    wholes.push_back(watch.us() / 1e6);
    std::ifstream file(folder.file("report.json"));
    firsts.push_back(nlohmann::json::parse(file).at("seconds_to_first_step").get<double>());
    const Stopwatch program;
    run_self({"plugins"}, folder.file("log"), b.timeout_s);
    floors.push_back(program.us() / 1e6 + touched(b));
  };
  run_rounds(b.common, round, print);
  return 0;
}

}  // namespace

BenchRun bench_start(const std::vector<std::string>& args, const CommonOptions& common) {
  StartBench b{.common = common};
  Options options(
      "bench start", "[OPTIONS]",
      "Starts `tessera train` with one step on synthetic data, again and again. The start of a process is known to "
      "10 ms.");
  auto add = options.add_options();
  add("tables", po::value(&b.tables)->default_value(b.tables), "number of tables");
  add("rows", po::value(&b.rows)->default_value(b.rows), "rows of each table");
  add("dim", po::value(&b.dim)->default_value(b.dim), "columns of each table");
  add("batch", po::value(&b.batch)->default_value(b.batch), "samples of the step");
  add("model", po::value(&b.model)->value_name("NAME")->default_value(b.model),
      "the model, one of `tessera model new --list`; dlrm has a product for each pair of tables");
  add("timeout", po::value(&b.timeout_s)->default_value(b.timeout_s), "deadline of one process in seconds");
  if (!parse(options, args, &b.common)) return {};
  require_range({{"--tables", b.tables}, {"--rows", b.rows}, {"--dim", b.dim}, {"--batch", b.batch}});
  if (!(b.timeout_s > 0)) throw UsageError("--timeout must be more than 0 seconds");
  return [b] { return run_start(b); };
}

}  // namespace tessera::cli
