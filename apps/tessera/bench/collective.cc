// tessera bench collective: compares transports, one operation at a time, over a range of sizes.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "bench/bench.h"
#include "bench/collective_raw.h"
#include "options.h"
#include "tessera/process_group.h"
#include "tessera/runtime.h"

namespace tessera::cli {
namespace po = boost::program_options;

namespace {

constexpr const char* kRaw = "raw";
constexpr double kBatchUs = 5000;  // time that a round spends on each operation, about
constexpr int kMaxCalls = 500;     // calls of an operation in a round, at most

struct CollectiveOptions {
  CommonOptions common;
  std::vector<std::string> backends, ops;
  std::vector<int64_t> sizes;
  int nproc = kNotAsked;  // once parsed: the number of ranks
  double timeout_s = 30;
  bool verify = true;
  bool bind = true;
};

// Sizes of the ranks' shares when n things are divided evenly.
std::vector<int64_t> even_counts(int64_t n, int world) {
  std::vector<int64_t> counts;
  for (int r = 0; r < world; ++r) counts.push_back(n * (r + 1) / world - n * r / world);
  return counts;
}

// Exact in float32, and different for each rank and index.
float sample(int64_t rank, int64_t i) { return static_cast<float>((rank * 131 + i * 7) % 1009); }

void expect(bool right, const std::string& what) {
  if (!right) fail(Code::kDataLoss, what, ": the result is wrong");
}

// One operation of one size, on any backend. Buffers hold the caller's input of `bytes`; for all_gather, its output.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void run() = 0;   // runs the operation once, on all ranks
  virtual void verify() {}  // fills the buffers, runs, and checks the result
};

class AllToAll : public Exchange {
 public:
  AllToAll(const ProcessGroup& group, int64_t n) : group_(group), send_counts_(even_counts(n, group.world_size())) {
    recv_counts_.assign(send_counts_.size(), send_counts_[group.rank()]);
    const int64_t received = send_counts_[group.rank()] * group.world_size();
    send_ = Tensor::zeros({n});
    recv_ = Tensor::zeros({received});
  }
  void run() override { group_.all_to_all_v(send_, send_counts_, recv_, recv_counts_, "bench").wait(); }
  void verify() override {
    for (int64_t i = 0; i < send_.numel(); ++i) send_.data<float>()[i] = sample(group_.rank(), i);
    run();
    int64_t before = 0;  // index in every rank's input at which this rank's block begins
    for (int r = 0; r < group_.rank(); ++r) before += send_counts_[r];
    const int64_t mine = send_counts_[group_.rank()];
    for (int64_t i = 0; i < recv_.numel(); ++i) {
      expect(recv_.data<float>()[i] == sample(static_cast<int>(i / mine), before + i % mine), "all_to_all");
    }
  }

 private:
  const ProcessGroup& group_;
  std::vector<int64_t> send_counts_, recv_counts_;
  Tensor send_, recv_;
};

// The input is all zeros, which stay zeros however often they are added.
class AllReduce : public Exchange {
 public:
  AllReduce(const ProcessGroup& group, int64_t n) : group_(group), data_(Tensor::zeros({n})) {}
  void run() override { group_.all_reduce(data_, ReduceOp::kSum, "bench").wait(); }
  void verify() override {
    for (int64_t i = 0; i < data_.numel(); ++i) data_.data<float>()[i] = sample(group_.rank(), i);
    run();
    for (int64_t i = 0; i < data_.numel(); ++i) {
      float sum = 0;
      for (int r = 0; r < group_.world_size(); ++r) sum += sample(r, i);
      expect(data_.data<float>()[i] == sum, "all_reduce");
    }
    data_.fill(0);
  }

 private:
  const ProcessGroup& group_;
  Tensor data_;
};

class ReduceScatter : public Exchange {
 public:
  ReduceScatter(const ProcessGroup& group, int64_t n)
      : group_(group), counts_(even_counts(n, group.world_size())), send_(Tensor::zeros({n})) {
    recv_ = Tensor::zeros({counts_[group.rank()]});
  }
  void run() override { group_.reduce_scatter_v(send_, counts_, recv_, ReduceOp::kSum, "bench").wait(); }
  void verify() override {
    for (int64_t i = 0; i < send_.numel(); ++i) send_.data<float>()[i] = sample(group_.rank(), i);
    run();
    int64_t before = 0;
    for (int r = 0; r < group_.rank(); ++r) before += counts_[r];
    for (int64_t i = 0; i < recv_.numel(); ++i) {
      float sum = 0;
      for (int r = 0; r < group_.world_size(); ++r) sum += sample(r, before + i);
      expect(recv_.data<float>()[i] == sum, "reduce_scatter");
    }
  }

 private:
  const ProcessGroup& group_;
  std::vector<int64_t> counts_;
  Tensor send_, recv_;
};

class AllGather : public Exchange {
 public:
  AllGather(const ProcessGroup& group, int64_t n)
      : group_(group), counts_(even_counts(n, group.world_size())), recv_(Tensor::zeros({n})) {
    send_ = Tensor::zeros({counts_[group.rank()]});
  }
  void run() override { group_.all_gather_v(send_, recv_, counts_, "bench").wait(); }
  void verify() override {
    for (int64_t i = 0; i < send_.numel(); ++i) send_.data<float>()[i] = sample(group_.rank(), i);
    run();
    int64_t at = 0;
    for (int r = 0; r < group_.world_size(); ++r) {
      for (int64_t i = 0; i < counts_[r]; ++i) expect(recv_.data<float>()[at++] == sample(r, i), "all_gather");
    }
  }

 private:
  const ProcessGroup& group_;
  std::vector<int64_t> counts_;
  Tensor send_, recv_;
};

// Moves only the bytes that an operation must move: both ways between two ranks, and a copy of the rank's own block.
class RawExchange : public Exchange {
 public:
  RawExchange(const RawSocket& socket, int rank, const std::string& op, int64_t n)
      : socket_(socket),
        rank_(rank),
        send_(Tensor::zeros({op == "all_reduce" ? n : n / 2})),
        recv_(Tensor::zeros(send_.shape())) {
    if (op == "all_to_all" || op == "all_gather") own_ = Tensor::zeros(send_.shape());
  }
  void run() override {
    socket_.exchange(static_cast<const char*>(send_.raw()), static_cast<char*>(recv_.raw()), send_.bytes());
    if (own_.numel() > 0) std::memcpy(own_.raw(), send_.raw(), send_.bytes());
  }
  void verify() override {
    for (int64_t i = 0; i < send_.numel(); ++i) send_.data<float>()[i] = sample(rank_, i);
    recv_.fill(-1);
    run();
    for (int64_t i = 0; i < recv_.numel(); ++i) expect(recv_.data<float>()[i] == sample(1 - rank_, i), kRaw);
  }

 private:
  const RawSocket& socket_;
  int rank_;
  Tensor send_, recv_, own_;
};

using Maker = std::unique_ptr<Exchange> (*)(const ProcessGroup&, int64_t);
template <class E>
std::unique_ptr<Exchange> make(const ProcessGroup& group, int64_t n) {
  return std::make_unique<E>(group, n);
}
constexpr std::pair<const char*, Maker> kOps[] = {{"all_to_all", make<AllToAll>},
                                                  {"all_reduce", make<AllReduce>},
                                                  {"reduce_scatter", make<ReduceScatter>},
                                                  {"all_gather", make<AllGather>}};

Maker maker_of(const std::string& op) {
  for (const auto& [name, maker] : kOps) {
    if (op == name) return maker;
  }
  throw UsageError("unknown operation \"" + op + "\": all_to_all, all_reduce, reduce_scatter or all_gather");
}

// Binds each rank to a processor. If the scheduler left two ranks on one, the figures would mean nothing.
void bind_to_processor(const RankEnvironment& where) {
  const bool told = where.local_world_size > 0;
  const int ranks_here = told ? where.local_world_size : where.world_size;
  cpu_set_t allowed, own;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < ranks_here) return;
  int wanted = told ? where.local_rank : where.rank, processor = 0;
  while (!CPU_ISSET(processor, &allowed) || wanted-- > 0) ++processor;
  CPU_ZERO(&own);
  CPU_SET(processor, &own);
  sched_setaffinity(0, sizeof(own), &own);
}

// The backend, operation and size of one result line.
struct CollectiveSubject {
  std::string backend, op;
  int64_t bytes = 0;
  std::unique_ptr<Exchange> exchange;
  int calls = 1;                // calls per round
  std::vector<double> medians;  // median of each round
};

class Bench {
 public:
  Bench(const CollectiveOptions& options, const RankEnvironment& where)
      : options_(options), runtime_(RuntimeOptions{.threads = options.common.threads}), report_(options.common) {
    control_ = ProcessGroup::connect(runtime_, where, {.timeout_s = options.common.deadline_s(options.timeout_s)});
    for (const std::string& backend : options.backends) {
      if (backend == kRaw) {
        raw_ = std::make_unique<RawSocket>(*control_);
        groups_.push_back(nullptr);
      } else {
        groups_.push_back(ProcessGroup::connect(runtime_, where, {.backend = backend, .timeout_s = options.timeout_s}));
      }
    }
    if (options.bind) bind_to_processor(where);
  }

  void run() {
    for (int64_t bytes : options_.sizes) {
      for (const std::string& op : options_.ops) run_one(op, bytes);
    }
  }

 private:
  // Measures all backends on one operation and size, round by round.
  void run_one(const std::string& op, int64_t bytes) {
    std::vector<CollectiveSubject> subjects;
    for (size_t b = 0; b < groups_.size(); ++b) {
      const int64_t n = bytes / static_cast<int64_t>(sizeof(float));
      CollectiveSubject s{options_.backends[b], op, bytes, nullptr, 1, {}};
      s.exchange =
          groups_[b] ? maker_of(op)(*groups_[b], n) : std::make_unique<RawExchange>(*raw_, control_->rank(), op, n);
      if (options_.verify) s.exchange->verify();
      s.calls = calls_for(*s.exchange);
      subjects.push_back(std::move(s));
    }
    Rounds rounds(options_.common);
    while (rounds.next_together(*control_)) {
      for (CollectiveSubject& s : subjects) {
        const std::vector<double> times = time_round(s);
        s.medians.push_back(percentiles(times).median);
        if (rounds.print_each()) print(s, times);
      }
    }
    if (rounds.print_each()) return;
    for (const CollectiveSubject& s : subjects) print(s, s.medians);
  }

  std::vector<double> time_round(CollectiveSubject& s) {
    control_->barrier("bench");
    s.exchange->run();  // wakes all ranks
    std::vector<double> times;
    for (int call = 0; call < s.calls; ++call) {
      const Stopwatch watch;
      s.exchange->run();
      times.push_back(watch.us());
    }
    if (options_.verify) s.exchange->verify();
    return times;
  }

  // The number of calls that take about kBatchUs, the same on all ranks.
  int calls_for(Exchange& exchange) {
    for (int i = 0; i < 3; ++i) exchange.run();
    const Stopwatch watch;
    for (int i = 0; i < 3; ++i) exchange.run();
    const Tensor calls = Tensor::from<int32_t>({static_cast<int32_t>(
        std::clamp(kBatchUs * 3 / std::max(watch.us(), 0.1), 1.0, static_cast<double>(kMaxCalls)))});
    control_->broadcast(calls, 0, "bench").wait();
    return calls.data<int32_t>()[0];
  }

  void print(const CollectiveSubject& s, const std::vector<double>& times) {
    if (control_->rank() != 0) return;
    Line line{{"bench", "collective"},
              {"backend", s.backend},
              {"op", s.op},
              {"bytes", s.bytes},
              {"world", control_->world_size()}};
    add_times(&line, "us", times);
    line.update({{"algbw_gbps", static_cast<double>(s.bytes) / percentiles(times).median / 1e3},
                 {"verified", options_.verify}});
    report_.line(line);
  }

  const CollectiveOptions& options_;
  Runtime runtime_;
  Report report_;
  std::shared_ptr<ProcessGroup> control_;              // coordinates the rounds; not measured
  std::vector<std::shared_ptr<ProcessGroup>> groups_;  // per backend; null for "raw"
  std::unique_ptr<RawSocket> raw_;
};

// Returns false if help was printed.
bool parse_collective(const std::vector<std::string>& args, CollectiveOptions* options) {
  std::string backends, ops, sizes;
  bool no_verify = false, no_bind = false;
  Options description("bench collective", "[OPTIONS]");
  description.add_options()("backend", po::value(&backends)->default_value("tcp"),
                            "transports, separated by commas, with options as in tcp?shm=false; raw is a plain "
                            "duplex socket exchange between two ranks")(
      "op", po::value(&ops)->default_value("all_to_all,all_reduce,reduce_scatter,all_gather"), "operations")(
      "bytes", po::value(&sizes)->default_value("4096,2097152"),
      "sizes of each rank's input buffer in bytes (all_gather: of its output)")(
      "nproc", po::value(&options->nproc), "number of ranks to start (default: 2, or the launcher's ranks)")(
      "timeout", po::value(&options->timeout_s)->default_value(30), "deadline of each operation in seconds")(
      "no-verify", po::bool_switch(&no_verify), "do not check the results")(
      "no-bind", po::bool_switch(&no_bind),
      "do not bind ranks to processors (default: bind, if there is one for "
      "each)");
  if (!parse(description, args, &options->common)) return false;
  options->verify = !no_verify;
  options->bind = !no_bind;
  options->backends = text_list("--backend", backends);
  options->ops = text_list("--op", ops);
  options->sizes = integer_list("--bytes", sizes, 4);
  for (const std::string& op : options->ops) maker_of(op);
  options->nproc = bench_ranks(options->nproc, 2);
  return true;
}

}  // namespace

BenchRun bench_collective(const std::vector<std::string>& args, const CommonOptions& common) {
  CollectiveOptions options{.common = common};
  if (!parse_collective(args, &options)) return {};
  const bool raw = std::count(options.backends.begin(), options.backends.end(), kRaw) > 0;
  if (raw && options.nproc != 2) throw UsageError(str_cat("--backend raw is for 2 ranks, not ", options.nproc));
  return [options] {
    run_bench(options.nproc, options.common.deadline_s(3600),
              [&](const RankEnvironment& where) { Bench(options, where).run(); });
    return 0;
  };
}

}  // namespace tessera::cli
