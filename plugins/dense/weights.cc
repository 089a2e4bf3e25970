#include "weights.h"

#include <dnnl.h>
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>

namespace tessera_dense {
namespace {

[[noreturn]] void fail_without_memory() {
  tessera::sdk::fail(TSR_RESOURCE_EXHAUSTED, "no memory for a matrix product: free some, or raise ulimit -v");
}

// oneDNN generates the code of its products at the first one, and crashes if there is no memory for it.
bool write_code() {
  constexpr size_t kMost = size_t{16} << 20;
  void* const there = mmap(nullptr, kMost, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (there == MAP_FAILED) fail_without_memory();
  munmap(there, kMost);
  const float one = 1;
  float out = 0;
  return dnnl_sgemm('N', 'N', 1, 1, 1, 1.0f, &one, 1, &one, 1, 0.0f, &out, 1) == dnnl_success;
}

void check(dnnl_status_t status) {
  if (status == dnnl_out_of_memory) fail_without_memory();
  if (status != dnnl_success) tessera::sdk::fail(TSR_INTERNAL, "oneDNN: a product failed with status ", int{status});
}

}  // namespace

OneThread::OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
OneThread::~OneThread() { omp_set_num_threads(before_); }

void multiply(int64_t rows, int64_t in, int64_t out, const float* x, const float* transposed, float* y) {
  check(dnnl_sgemm('N', 'N', rows, out, in, 1.0f, x, in, transposed, out, 0.0f, y, out));
}

void multiply_back(int64_t rows, int64_t in, int64_t out, const float* grad_y, const float* w, float* grad_x) {
  check(dnnl_sgemm('N', 'N', rows, in, out, 1.0f, grad_y, out, w, in, 0.0f, grad_x, in));
}

void multiply(const Product& p) {
  if (p.m == 0 || p.n == 0 || p.k == 0) return;  // nothing to add
  check(dnnl_sgemm(p.trans_a, p.trans_b, p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc));
}

void prepare_products() {
  static const bool written = write_code();
  if (!written) fail_without_memory();
}

void Weights::add(int64_t in, int64_t out) {
  prepare_products();
  constexpr int64_t kRowsOfATile = 64;
  for (int64_t first = 0; first < out; first += kRowsOfATile)
    tiles_.push_back({shapes_.size(), first, std::min(out, first + kRowsOfATile)});
  shapes_.push_back({in, out});
  offsets_.push_back(size_);
  size_ += in * out;
}

int64_t Weights::block() const {
  constexpr int64_t kLeast = 64, kUnit = 16;
  return std::max(kLeast, (kProductsWorthAThread / size_ + kUnit - 1) / kUnit * kUnit);
}

void Weights::transpose(tessera::sdk::Host host, const Loops& loops, std::span<const float* const> w) {
  constexpr int64_t kFloatsWorthThreads = 64 << 10;
  transposed_.at_least(host, size_);
  one_by_one(host, static_cast<int64_t>(tiles_.size()), size_ >= kFloatsWorthThreads, [&](int64_t i) {
    const Tile& t = tiles_[static_cast<size_t>(i)];
    const Shape& s = shapes_[t.matrix];
    loops.transpose(s.out, s.in, t.first, t.last, w[t.matrix], transposed_.data() + offsets_[t.matrix]);
  });
}

void Weights::add_gradients(tessera::sdk::Host host, const Loops& loops, int64_t batch,
                            std::span<const Gradient> all) const {
  if (batch == 0) return;
  const bool worth_threads = batch * size_ >= 2 * kProductsWorthAThread;
  one_by_one(host, static_cast<int64_t>(tiles_.size()), worth_threads, [&](int64_t i) {
    const OneThread alone;
    const Tile& t = tiles_[static_cast<size_t>(i)];
    const auto [in, out] = shapes_[t.matrix];
    const Gradient& g = all[t.matrix];
    check(dnnl_sgemm('T', 'N', t.last - t.first, in, batch, 1.0f, g.dy + t.first, out, g.x, in, 1.0f,
                     g.w + t.first * in, in));
    if (g.b) loops.sum_rows(batch, out, t.first, t.last, g.dy, g.b);
  });
}

}  // namespace tessera_dense
