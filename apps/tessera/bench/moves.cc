// tessera bench moves: moves rows between the wire and the output in one process, and compares with a plain copy.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "bench/bench.h"
#include "distributed/host_row_moves.h"
#include "options.h"
#include "tessera/runtime.h"
#include "tessera/tensor.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

struct MovesBench {
  CommonOptions common;
  int64_t tables = 26, dim = 64, batch = 2048, arrivals = 2;
};

bool parse_moves(const std::vector<std::string>& args, MovesBench* b) {
  b->common.threads = 2;
  Options options(
      "bench moves", "[OPTIONS]",
      "Times the core's own loops of a sharded step, on one thread and on --threads in turn: combine makes the "
      "pooled output from the rows that came back, split makes rows from its gradient, and memcpy copies the same "
      "rows. The exit status is 1 if a row is in the wrong place.");
  auto add = options.add_options();
  add("tables", po::value(&b->tables)->default_value(b->tables), "number of tables, each with one feature");
  add("dim", po::value(&b->dim)->default_value(b->dim), "columns of each table");
  add("batch", po::value(&b->batch)->default_value(b->batch), "samples of a step of a step");
  add("arrivals", po::value(&b->arrivals)->default_value(b->arrivals),
      "rows that come back for a bag, one from each rank that has rows of its table");
  if (!parse(options, args, &b->common)) return false;
  require_range({{"--tables", b->tables}, {"--dim", b->dim}, {"--batch", b->batch}, {"--arrivals", b->arrivals}},
                1 << 20);
  return true;
}

// A pooled output and the rows that it is made of. Each row holds its table's number.
class MovesRows {
 public:
  explicit MovesRows(const MovesBench& b) : b_(b) {
    for (int64_t i = 0; i < b.batch; ++i) bags_.push_back(static_cast<int32_t>(i));
    const int64_t width = b.tables * b.dim, of_run = b.batch * b.dim;
    packed_ = Tensor::empty({b.tables * b.arrivals * of_run});
    copied_ = packed_.clone();
    output_ = Tensor::zeros({b.batch * width});
    int64_t begin = 0;
    for (int64_t t = 0; t < b.tables; ++t) {
      moves_.add(RowTarget{b.batch, b.dim, t * b.dim, width});
      for (int64_t a = 0; a < b.arrivals; ++a, begin += of_run) {
        RowRun run{begin, b.dim, bags_.data(), b.batch};
        run.cols = b.dim;
        moves_.add(run);
        std::fill_n(packed_.data<float>() + begin, of_run, static_cast<float>(t + 1));
      }
    }
  }

  void combine(HostRowMoves& host) { host.combine(moves_, packed_.data<float>(), output_.data<float>()); }
  void split(HostRowMoves& host) { host.split(moves_, copied_.data<float>(), output_.data<float>()); }
  void copy(const Runtime& runtime) {
    constexpr int64_t kPiece = 64 << 10;
    const int64_t all = bytes(), pieces = runtime.threads() == 1 ? 1 : (all + kPiece - 1) / kPiece;
    runtime.parallel_for(pieces, [&](int64_t i) {
      const int64_t first = all * i / pieces, last = all * (i + 1) / pieces;
      std::memcpy(static_cast<char*>(copied_.raw()) + first, static_cast<const char*>(packed_.raw()) + first,
                  static_cast<size_t>(last - first));
    });
  }

  int64_t bytes() const { return packed_.bytes(); }
  // Checks the result after combine(), or after split() and combine(): sums of small whole numbers are exact.
  bool right(bool split) const {
    const float* value = split ? copied_.data<float>() : output_.data<float>();
    const int64_t rows = split ? b_.tables * b_.arrivals * b_.batch : b_.batch * b_.tables;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t table = split ? row / (b_.arrivals * b_.batch) : row % b_.tables;
      for (int64_t c = 0; c < b_.dim; ++c) {
        if (*value++ != static_cast<float>((table + 1) * b_.arrivals)) return false;
      }
    }
    return true;
  }

 private:
  MovesBench b_;
  std::vector<int32_t> bags_;
  RowMoves moves_;
  Tensor packed_, copied_, output_;
};

// The subject of one result line.
struct MovesSubject {
  const char* op;
  int threads;
  std::function<void()> run;
  bool verified = true;
  std::vector<double> samples = {};  // microseconds per round

  void round() {
    constexpr int kTimes = 5;
    const Stopwatch watch;
    for (int i = 0; i < kTimes; ++i) run();
    samples.push_back(watch.us() / kTimes);
  }
};

Line moves_line(const MovesBench& b, const MovesRows& rows, MovesSubject& s) {
  Line line{{"bench", "moves"},       {"op", s.op},          {"T", b.tables}, {"D", b.dim}, {"B", b.batch},
            {"arrivals", b.arrivals}, {"threads", s.threads}};
  add_times(&line, "us", s.samples);
  line["gbps"] = static_cast<double>(rows.bytes()) / percentiles(s.samples).median / 1e3;
  line["verified"] = s.verified;
  s.samples.clear();
  return line;
}

int run_moves(const MovesBench& b) {
  MovesRows rows(b);
  std::vector<std::unique_ptr<Runtime>> runtimes;
  std::vector<std::unique_ptr<HostRowMoves>> hosts;
  std::vector<MovesSubject> subjects;
  for (const int threads : {1, b.common.threads}) {
    if (threads == 1 && !runtimes.empty()) break;
    runtimes.push_back(std::make_unique<Runtime>(RuntimeOptions{.default_path = false, .threads = threads}));
    const Runtime* runtime = runtimes.back().get();
    HostRowMoves* host = hosts.emplace_back(std::make_unique<HostRowMoves>(Workers(runtime->host()))).get();
    const auto copy = [&rows, runtime] { rows.copy(*runtime); };
    const auto combine = [&rows, host] { rows.combine(*host); };
    const auto split = [&rows, host] { rows.split(*host); };
    copy();
    combine();
    const bool combined = rows.right(false);
    split();
    const bool divided = rows.right(true);
    subjects.push_back({"memcpy", threads, copy});
    subjects.push_back({"combine", threads, combine, combined});
    subjects.push_back({"split", threads, split, divided});
  }
  Report report(b.common);
  const auto round = [&] {
    for (MovesSubject& s : subjects) s.round();
  };
  run_rounds(b.common, round, [&] {
    for (MovesSubject& s : subjects) report.line(moves_line(b, rows, s));
  });
  return std::all_of(subjects.begin(), subjects.end(), [](const MovesSubject& s) { return s.verified; }) ? 0 : 1;
}

}  // namespace

BenchRun bench_moves(const std::vector<std::string>& args, const CommonOptions& common) {
  MovesBench b{.common = common};
  if (!parse_moves(args, &b)) return {};
  return [b] { return run_moves(b); };
}

}  // namespace tessera::cli
