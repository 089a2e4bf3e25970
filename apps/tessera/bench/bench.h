// The common part of all benches: options, rounds, and the printing of results.
//
//   Options options("bench NAME", "[OPTIONS]");
//   options.add_options()("bytes", po::value(&bytes)->default_value(4096), "what it is, with its unit");
//   if (!parse(options, args, &common)) return {};  // --help
//   Report report(common);
//   run_rounds(common, [&] { for each backend: time it once, keep the sample },
//              [&] { report.line(... with percentiles(samples)); forget the samples });
#pragma once

#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bench/report/lines.h"
#include "command.h"
#include "stopwatch.h"

namespace tessera {
class ProcessGroup;
struct RankEnvironment;
}  // namespace tessera

namespace tessera::cli {

class Options;  // options.h

struct CommonOptions {
  int rounds = 9;
  int threads = 1;              // threads per rank
  bool json = false;            // print JSON lines instead of a table
  bool silent = false;          // print no line: another bench reads the record
  bool round_per_line = false;  // run one round per line of standard input and print its result at once
  std::string workload;         // name in a workload file, a field of every line; empty if there is none
  // descriptor that keeps lines for the page and the comparison (bench/report/record.h); -1: none
  int record = -1;

  // Seconds that ranks wait for each other. When a script alternates programs, this includes the other program's turns.
  double deadline_s(double usual) const { return round_per_line ? 86400 : usual; }
};

// A bench that has read its options: runs it and returns the exit status. Empty if only help was printed.
using BenchRun = std::function<int()>;

// One function per bench, in bench/*.cc. They read `args` and refuse impossible values; nothing is measured yet.
BenchRun bench_lookup(const std::vector<std::string>& args, const CommonOptions& common);
BenchRun bench_infer(const std::vector<std::string>& args, const CommonOptions& common);
BenchRun bench_collective(const std::vector<std::string>& args, const CommonOptions& common);
BenchRun bench_step(const std::vector<std::string>& args, const CommonOptions& common);
BenchRun bench_moves(const std::vector<std::string>& args, const CommonOptions& common);
BenchRun bench_search(const std::vector<std::string>& args, const CommonOptions& common);
BenchRun bench_predict(const std::vector<std::string>& args, const CommonOptions& common);
BenchRun bench_train(const std::vector<std::string>& args, const CommonOptions& common);
BenchRun bench_start(const std::vector<std::string>& args, const CommonOptions& common);
BenchRun bench_read(const std::vector<std::string>& args, const CommonOptions& common);
BenchRun bench_save(const std::vector<std::string>& args, const CommonOptions& common);
BenchRun bench_plan(const std::vector<std::string>& args, const CommonOptions& common);
BenchRun bench_scale(const std::vector<std::string>& args, const CommonOptions& common);

// Adds --rounds, --threads and --help to `options` and reads `args`; help also lists the session's options (session.h).
// Returns false if help was printed and nothing remains to be done. Throws UsageError for unknown options, wrong types,
// and rounds or threads below 1.
bool parse(Options& options, const std::vector<std::string>& args, CommonOptions* common);

// Throws UsageError that names an option whose value is less than 1 or more than `most`.
void require_range(std::initializer_list<std::pair<const char*, int64_t>> options,
                   int64_t most = std::numeric_limits<int64_t>::max());

// Splits "a,b,c". Throws UsageError that names `option` for an empty list or item.
std::vector<std::string> text_list(const std::string& option, const std::string& text);
// Throws UsageError if `join` is no value of --join, which is that of comm.join_exchanges.
void check_join(const std::string& join);
// Splits "4096,2097152" into whole numbers of at least `least`.
std::vector<int64_t> integer_list(const std::string& option, const std::string& text, int64_t least);

// --nproc was not given.
inline constexpr int kNotAsked = std::numeric_limits<int>::min();
// The number of ranks that a bench runs on: those that a launcher has started, otherwise `asked`, or `usual` if that is
// kNotAsked. Throws UsageError for an impossible number, and if a launcher has started a number of ranks other than
// `asked`.
int bench_ranks(int asked, int usual);
// Runs `body` once per rank: in this process if a launcher started it, otherwise in forked processes.
void run_bench(int ranks, double timeout_s, const std::function<void(const RankEnvironment&)>& body);

// Counts the rounds: --rounds of them, or one per line of standard input.
class Rounds {
 public:
  explicit Rounds(const CommonOptions& common) : common_(common) {}
  bool next();
  // Gives the same answer on all ranks of a group: rank 0 decides, the others follow.
  bool next_together(const ProcessGroup& group);
  bool print_each() const { return common_.round_per_line; }

 private:
  CommonOptions common_;
  int done_ = 0;
};

// Runs `round` in every round. Runs `print` after each round if their results are printed one by one, otherwise at the
// end.
void run_rounds(const CommonOptions& common, const std::function<void()>& round, const std::function<void()>& print);

// The largest value over all ranks.
double largest_over_ranks(const ProcessGroup& group, double mine);

// Prints each line at once (bench/report/lines.h defines its fields): as JSON, or as a row of a table. The table
// repeats its header whenever the columns change. Lines are also kept in the session's record.
class Report {
 public:
  explicit Report(const CommonOptions& common)
      : json_(common.json), silent_(common.silent), workload_(common.workload), record_(common.record) {}
  void line(const Line& of_bench);

 private:
  bool json_, silent_;
  std::string workload_;
  int record_;
  std::string columns_;
};

}  // namespace tessera::cli
