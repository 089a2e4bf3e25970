// The common part of all benches: options, rounds, and the printing of results.
//
//   Options options("bench NAME", "[OPTIONS]");
//   options.add_options()("bytes", po::value(&bytes)->default_value(4096), "what it is, with its unit");
//   if (!parse(options, args, &common)) return {};  // --help
//   Rounds rounds(common);
//   Report report(common);
//   while (rounds.next()) { for each backend: time it once, keep the sample; if (rounds.print_each()) report.line(...);
//   } if (!rounds.print_each()) report.line(... with percentiles(samples));
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "bench/report/lines.h"
#include "command.h"
#include "distributed/stopwatch.h"

namespace tessera {
class ProcessGroup;
struct RankEnvironment;
}  // namespace tessera

namespace tessera::cli {

class Options;  // options.h

struct CommonOptions {
  int rounds = 9;
  int threads = 1;              // of one rank
  bool json = false;            // JSON lines instead of a table
  bool round_per_line = false;  // one round for each line of standard input, printed at once
  std::string workload;         // of a workload file: a field of every line; empty: there is none
  int record = -1;              // where lines are kept for the page and the comparison: see bench/report/record.h

  // Seconds that ranks wait for each other: the other program's turns count where a script alternates.
  double deadline_s(double usual) const { return round_per_line ? 86400 : usual; }
};

// A bench that has read its options: runs and returns the exit status. Empty: help was printed.
using BenchRun = std::function<int()>;

// One bench each, in bench/*.cc. They read `args` and refuse what cannot be; nothing is measured yet.
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

// Adds --rounds, --threads and --help to `options` and reads `args`; help lists the session's options too (session.h).
// False: help was printed, nothing is to be done. UsageError for what cannot be: unknown options, wrong types, rounds
// or threads below 1.
bool parse(Options& options, const std::vector<std::string>& args, CommonOptions* common);

// "a,b,c"; UsageError for an empty list or item. `option` names it there.
std::vector<std::string> text_list(const std::string& option, const std::string& text);
// "4096,2097152": whole numbers of at least `least`.
std::vector<int64_t> integer_list(const std::string& option, const std::string& text, int64_t least);

// --nproc was not given.
inline constexpr int kNotAsked = std::numeric_limits<int>::min();
// The ranks that a bench runs on: those that a launcher has started, otherwise `asked`, or `usual` where that is
// kNotAsked. UsageError for a number that cannot be, and where a launcher has started others than were asked for.
int bench_ranks(int asked, int usual);
// Runs `body` as each of them: in this process, where a launcher has started it, otherwise in forked ones.
void run_bench(int ranks, double timeout_s, const std::function<void(const RankEnvironment&)>& body);

// Counts the rounds: --rounds of them, or one for each line of standard input.
class Rounds {
 public:
  explicit Rounds(const CommonOptions& common) : common_(common) {}
  bool next();
  // The same on all ranks of a group: rank 0 decides, the others follow.
  bool next_together(const ProcessGroup& group);
  bool print_each() const { return common_.round_per_line; }

 private:
  CommonOptions common_;
  int done_ = 0;
};

// Prints lines (bench/report/lines.h says what belongs into one), each at once: as JSON, or as a row of a table whose
// header comes first and whenever the columns change. Keeps them in the session's record.
class Report {
 public:
  explicit Report(const CommonOptions& common)
      : json_(common.json), workload_(common.workload), record_(common.record) {}
  void line(const Line& of_bench);

 private:
  bool json_;
  std::string workload_;
  int record_;
  std::string columns_;
};

}  // namespace tessera::cli
