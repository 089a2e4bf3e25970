// Microbenchmarks of the inner loops, without a core, an ABI call or threads in between. Times are per row:
//   kernels_cpu_microbench --benchmark_filter=pool      TESSERA_ISA=avx2 for the other variant
// `ahead` is the prefetch distance in rows; 0 stands for the kernel's choice (rows_ahead).
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "cpu/entries.h"
#include "cpu/row_ops.h"
#include "quant/quant_ops.h"

namespace {

using namespace tessera_cpu;

constexpr int64_t kTableBytes = int64_t{256} << 20;  // larger than caches
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kBags = 2048, kPooling = 20;
constexpr size_t kBatches = 16;  // used in rotation, so that caches do not keep a batch's rows

// Zeros in huge pages, as the host provides them.
struct Free {
  void operator()(char* memory) const { std::free(memory); }
};
std::unique_ptr<char, Free> zeros(int64_t bytes) {
  const auto size = static_cast<size_t>((bytes + kHugePage - 1) / kHugePage * kHugePage);
  char* memory = static_cast<char*>(std::aligned_alloc(kHugePage, size));
  if (memory == nullptr) throw std::bad_alloc();
  (void)madvise(memory, size, MADV_HUGEPAGE);
  std::memset(memory, 0, size);
  return std::unique_ptr<char, Free>(memory);
}

// Bags of uniform ids over a table of rows of `row_bytes`.
struct Lookups {
  explicit Lookups(int64_t row_bytes, int64_t dim)
      : table(zeros(kTableBytes)),
        output(zeros(kBags * dim * 4)),
        ids(kBatches * kBags * kPooling),
        offsets(kBags + 1) {
    std::mt19937_64 random(1);
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(kTableBytes / row_bytes));
    for (size_t b = 0; b < offsets.size(); ++b) offsets[b] = static_cast<int64_t>(b) * kPooling;
  }
  void fill(int64_t row_bytes, int64_t dim, int64_t ahead, Pool* pool) const {
    pool->table = table.get();
    pool->row_bytes = row_bytes;
    pool->dim = dim;
    pool->offsets = offsets.data();
    pool->wide_offsets = true;
    pool->bags = kBags;
    pool->ids_end = offsets.back();
    pool->ahead = ahead == 0 ? rows_ahead(row_bytes) : ahead;
    pool->to_l2 = prefetch_to_l2();
    pool->storage = Storage::kFloat32;
    pool->output = output.get();
    pool->output_bytes = dim * 4;
  }

  const int64_t* next() { return ids.data() + (batch++ % kBatches) * kBags * kPooling; }

  size_t batch = 0;
  std::unique_ptr<char, Free> table, output;
  std::vector<int64_t> ids, offsets;
};

void count_rows(benchmark::State& state, int64_t rows, int64_t row_bytes) {
  state.SetItemsProcessed(state.iterations() * rows);
  state.SetBytesProcessed(state.iterations() * rows * row_bytes);
  state.counters["row"] = benchmark::Counter(
      static_cast<double>(rows), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

template <Storage kStorage>
void pool(benchmark::State& state) {
  const int64_t dim = state.range(0), row_bytes = dim * bytes_of(kStorage);
  Lookups lookups(row_bytes, dim);
  Pool p{};
  lookups.fill(row_bytes, dim, state.range(1), &p);
  const PoolFunction run = best_row_ops().pool(kStorage, true, false, dim);
  for (auto _ : state) {
    p.ids = lookups.next();
    run(p);
  }
  count_rows(state, p.ids_end, row_bytes);
}

template <sdk::RowFormat kFormat>
void quant_pool(benchmark::State& state) {
  const int64_t dim = state.range(0), row_bytes = sdk::row_bytes(kFormat, dim);
  Lookups lookups(row_bytes, dim);
  StoredPool p{};
  lookups.fill(row_bytes, dim, state.range(1), &p);
  p.data_bytes = row_bytes;
  const StoredPoolFunction run = best_quant_ops().pool(kFormat, true, dim);
  for (auto _ : state) {
    p.ids = lookups.next();
    run(p);
  }
  count_rows(state, p.ids_end, row_bytes);
}

// Measures the sort of backward, for n entries of a table of 2^bits rows.
void sort(benchmark::State& state) {
  const int64_t n = state.range(0);
  const int bits = static_cast<int>(state.range(1));
  std::mt19937_64 random(1);
  std::vector<PlainEntry> entries, work, other(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    entries.push_back({static_cast<uint32_t>(random() >> (64 - bits)), static_cast<uint32_t>(i)});
  }
  for (auto _ : state) {
    work = entries;
    benchmark::DoNotOptimize(sort_by_row(work.data(), other.data(), n, 0, bits));
  }
  count_rows(state, n, sizeof(PlainEntry));
}

const std::vector<std::vector<int64_t>> kDimsAndDistances = {{16, 32, 64, 128}, {0, 16, 32, 64, 128}};

}  // namespace

BENCHMARK(pool<Storage::kFloat32>)->ArgsProduct(kDimsAndDistances)->ArgNames({"dim", "ahead"});
BENCHMARK(pool<Storage::kFloat16>)->ArgsProduct(kDimsAndDistances)->ArgNames({"dim", "ahead"});
BENCHMARK(quant_pool<tessera::sdk::RowFormat::kInt8>)->ArgsProduct(kDimsAndDistances)->ArgNames({"dim", "ahead"});
BENCHMARK(quant_pool<tessera::sdk::RowFormat::kInt4>)->ArgsProduct(kDimsAndDistances)->ArgNames({"dim", "ahead"});
BENCHMARK(sort)->ArgsProduct({{32, 1280, 40960}, {14, 17, 20}})->ArgNames({"entries", "bits"});

BENCHMARK_MAIN();
