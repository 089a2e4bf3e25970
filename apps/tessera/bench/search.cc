// tessera bench search: finds the best of many items, and compares with one pass over their vectors in memory.
#include <time.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "bench/bench.h"
#include "options.h"
#include "retrieval/item_index.h"
#include "tessera/tensor.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

struct SearchBench {
  CommonOptions common;
  int64_t items = 1000000, dim = 64, batch = 1, top_k = 10;
};

bool parse_search(const std::vector<std::string>& args, SearchBench* b) {
  Options options(
      "bench search", "[OPTIONS]",
      "Times the exact search of tessera serve --top-k, and reading the items' vectors once (read), in turn, in "
      "microseconds of one processor. The exit status is 1 if a score does not belong to its item.");
  auto add = options.add_options();
  add("items", po::value(&b->items)->default_value(b->items), "number of vectors of float32");
  add("dim", po::value(&b->dim)->default_value(b->dim), "values of each vector");
  add("batch", po::value(&b->batch)->default_value(b->batch), "queries of a search");
  add("top-k", po::value(&b->top_k)->default_value(b->top_k), "items that each query finds");
  if (!parse(options, args, &b->common)) return false;
  require_range({{"--items", b->items}, {"--dim", b->dim}, {"--batch", b->batch}, {"--top-k", b->top_k}},
                retrieval::ItemIndex::kMostItems);
  if (b->top_k > b->items) throw UsageError("--top-k is more than --items");
  return true;
}

double processor_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// Uses several sums, so that memory limits the time and not the additions.
uint64_t read_once(const std::vector<float>& values) {
  std::array<uint64_t, 8> sums{};
  std::array<uint64_t, 8> some{};
  constexpr size_t kAtOnce = sizeof(some) / sizeof(float);
  for (size_t i = 0; i + kAtOnce <= values.size(); i += kAtOnce) {
    std::memcpy(some.data(), &values[i], sizeof(some));
    for (size_t s = 0; s < sums.size(); ++s) sums[s] += some[s];
  }
  uint64_t all = 0;
  for (const uint64_t sum : sums) all ^= sum;
  return all;
}

int run_search(const SearchBench& b) {
  std::mt19937 random(1);
  const auto values = [&](int64_t count) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = static_cast<float>(random() % 2001) / 1000 - 1;
    return out;
  };
  const std::vector<float> vectors = values(b.items * b.dim), queries = values(b.batch * b.dim);
  const retrieval::ItemIndex index(Tensor::from<float>(vectors, {b.items, b.dim}));
  retrieval::ItemIndex::Scratch scratch;
  std::vector<int32_t> items(static_cast<size_t>(b.batch * b.top_k));
  std::vector<float> scores(items.size());
  std::vector<double> searched, read;
  uint64_t kept = 0;  // keeps the compiler from removing the reads
  Report report(b.common);
  const auto lines = [&] {
    for (auto& [op, samples] : {std::pair<const char*, std::vector<double>*>{"search", &searched}, {"read", &read}}) {
      Line line{{"bench", "search"}, {"op", op}, {"items", b.items}, {"D", b.dim}, {"B", b.batch}, {"k", b.top_k}};
      add_times(&line, "us", *samples);
      const double us = percentiles(*samples).median;
      line["gbps"] = static_cast<double>(b.items * b.dim) * sizeof(float) / us / 1e3;
      line["gflops"] = samples == &read ? 0 : 2.0 * static_cast<double>(b.items * b.dim * b.batch) / us / 1e3;
      report.line(line);
    }
    if (b.common.round_per_line) searched.clear(), read.clear();
  };
  const auto round = [&] {
    const double begin = processor_us();
    index.search(queries, b.top_k, scratch, items, scores);
    const double between = processor_us();
    kept += read_once(vectors);
    searched.push_back(between - begin);
    read.push_back(processor_us() - between);
  };
  run_rounds(b.common, round, lines);
  bool right = kept != 1;
  for (size_t i = 0; i < items.size(); ++i) {
    const auto query = queries.begin() + static_cast<int64_t>(i) / b.top_k * b.dim;
    double score = 0;
    for (int64_t c = 0; c < b.dim; ++c)
      score += static_cast<double>(vectors[static_cast<size_t>(items[i] * b.dim + c)]) * query[c];
    right = right && std::abs(score - scores[i]) < 1e-4 * static_cast<double>(b.dim);
  }
  return right ? 0 : 1;
}

}  // namespace

BenchRun bench_search(const std::vector<std::string>& args, const CommonOptions& common) {
  SearchBench b{.common = common};
  if (!parse_search(args, &b)) return {};
  return [b] { return run_search(b); };
}

}  // namespace tessera::cli
