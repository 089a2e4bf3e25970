#include "weights.h"

#include <dnnl.h>
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>

namespace tessera_dense {
namespace {

constexpr int64_t kTileRows = 64;  // rows of a matrix in a tile

[[noreturn]] void fail_without_memory() {
  tessera::sdk::fail(TSR_RESOURCE_EXHAUSTED, "no memory for a matrix product: free some, or raise ulimit -v");
}

// oneDNN generates code for products when the first one is made, and crashes if there is no memory for it.
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

void multiply(const Product& p) {
  if (p.m == 0 || p.n == 0 || p.k == 0) return;  // nothing to add
  check(dnnl_sgemm(p.trans_a, p.trans_b, p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc));
}

void prepare_products() {
  static const bool written = write_code();
  if (!written) fail_without_memory();
}

Weights::Weights(tessera::sdk::Host host, Precision precision)
    : host_(host), free_(precision == Precision::kBfloat16 || has_isa(dnnl_cpu_isa_avx512_core)) {
  if (precision == Precision::kBfloat16) bf16_ = std::make_unique<Bf16Products>(host);
  if (precision == Precision::kInt8) int8_ = std::make_unique<Int8Products>(host);
}

void Weights::add(int64_t in, int64_t out) {
  prepare_products();
  // Each tile reads x again, so there are as few as the threads allow.
  const int64_t share = (out + host_.num_threads() - 1) / host_.num_threads();
  const int64_t rows = bf16_ || !free_ ? kTileRows : std::max<int64_t>((share + 15) / 16 * 16, 16);
  for (int64_t first = 0, last, place = 0; first < out; first = last, ++place) {
    last = std::min(out, first + rows);
    if (free_ && !bf16_ && out - last == 1) last = out;  // oneDNN adds a single row up in another order
    tiles_.push_back({shapes_.size(), first, last, place});
  }
  // The threads begin in different parts of the list, so each gets its share of every matrix.
  std::stable_sort(tiles_.begin(), tiles_.end(), [](const Tile& a, const Tile& b) { return a.place < b.place; });
  shapes_.push_back({in, out});
  offsets_.push_back(size_);
  size_ += in * out;
  values_ += in + out;
}

int64_t Weights::block(int64_t batch) const {
  constexpr int64_t kProductsOfAValue = 4;  // this many take as long as reading and writing a value
  const int64_t least = bf16_ ? 128 : 64, unit = bf16_ ? Bf16Products::kSumUnit : 16;
  const auto in_units = [unit](int64_t rows) { return (rows + unit - 1) / unit * unit; };
  if (!free_) return std::max(least, in_units(kProductsWorthAThread / size_));
  const int64_t rows = std::max(least, kProductsWorthAThread / (size_ + kProductsOfAValue * values_));
  const auto most = static_cast<uint64_t>(std::max<int64_t>(batch / rows, 1));
  const auto blocks = static_cast<int64_t>(std::bit_floor(most));  // a power of two, so that threads end together
  int64_t size = in_units(std::max<int64_t>((batch + blocks - 1) / blocks, 1));
  while (batch > size && batch % size == 1) size += unit;
  return size;
}

void Weights::prepare(const Loops& loops, std::span<const float* const> w) { prepare(loops, w, false); }
void Weights::prepare_rounded(const Loops& loops, std::span<const float* const> w) { prepare(loops, w, true); }

void Weights::prepare(const Loops& loops, std::span<const float* const> w, bool only_rounded) {
  constexpr int64_t kFloatsWorthThreads = 64 << 10;
  if (int8_) pack_int8(w);
  if (only_rounded && !bf16_) return;
  given_.assign(w.begin(), w.end());
  if (bf16_) halves_.at_least(host_, size_);
  if (!only_rounded) transposed_.at_least(host_, size_);
  one_by_one(host_, static_cast<int64_t>(tiles_.size()), size_ >= kFloatsWorthThreads, [&](int64_t i) {
    const Tile& t = tiles_[static_cast<size_t>(i)];
    const Shape& s = shapes_[t.matrix];
    const int64_t at = offsets_[t.matrix], from = t.first * s.in;
    if (to_bf16(t.matrix))
      loops.to_bf16(t.last * s.in - from, w[t.matrix] + from, halves_.data() + at + from);
    else if (!only_rounded && !to_int8(t.matrix))
      loops.transpose(s.out, s.in, t.first, t.last, w[t.matrix], transposed_.data() + at);
  });
}

// Packs the matrices in the first call, and later each matrix whose address has changed.
void Weights::pack_int8(std::span<const float* const> w) {
  packed_.resize(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    if (!to_int8(i) || packed_[i] == w[i]) continue;
    int8_->pack(i, shapes_[i].in, shapes_[i].out, w[i]);
    packed_[i] = w[i];
  }
}

void Weights::multiply(const Loops& loops, size_t i, int64_t rows, const float* x, float* y, int64_t stride) const {
  const auto [in, out] = shapes_[i];
  if (to_int8(i)) {
    int8_->multiply(i, rows, x, y, stride);
  } else if (to_bf16(i)) {
    bf16_->multiply_rows(loops, {false, true, false, 0, out, in, in, in, stride}, rows, x, halves_.data() + offsets_[i],
                         y);
  } else {
    check(dnnl_sgemm('N', 'N', rows, out, in, 1.0f, x, in, transposed_.data() + offsets_[i], out, 0.0f, y, stride));
  }
}

void Weights::multiply_back(const Loops& loops, size_t i, int64_t rows, const float* dy, float* dx, bool add) const {
  const auto [in, out] = shapes_[i];
  if (to_bf16(i)) {
    bf16_->multiply_rows(loops, {false, false, add, 0, in, out, out, in, in}, rows, dy, halves_.data() + offsets_[i],
                         dx);
  } else {
    check(dnnl_sgemm('N', 'N', rows, in, out, 1.0f, dy, out, given_[i], in, add ? 1.0f : 0.0f, dx, in));
  }
}

int64_t Weights::part(int64_t left) const {
  constexpr int64_t kDepth = 384;  // rows of the batch that oneDNN adds up at a time
  if (bf16_ || !free_) return left;
  const int64_t worth_threads = kGradientsWorthThreads / size_ / kDepth, for_all = host_.num_threads() / 2;
  const int64_t rows = kDepth * std::max({int64_t{1}, worth_threads, for_all});
  return left < 2 * rows ? left : rows;
}

void Weights::start_gradients(int64_t batch) {
  if (int8_)
    tessera::sdk::fail(TSR_UNIMPLEMENTED,
                       "precision = \"int8\" is only for predictions: train in float32, and pack the ",
                       "model with tessera quantize --dense int8");
  if (!bf16_) return;
  begins_.clear();
  int64_t size = 0;
  for (const Shape& s : shapes_) {
    begins_.push_back(size);
    if (s.rounds()) size += Bf16Products::packed_size(batch, s.in) + Bf16Products::sums_of(batch) * s.out;
  }
  rounded_.at_least(host_, size);
}

void Weights::take_rows(const Loops& loops, int64_t batch, int64_t begin, int64_t end,
                        std::span<const Gradient> all) const {
  constexpr int64_t kUnit = Bf16Products::kSumUnit;
  if (!bf16_) return;
  const int64_t rows = Bf16Products::sums_of(batch);
  for (int64_t first = begin; first < end; first += kUnit) {
    const int64_t count = std::min(kUnit, end - first);
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const Shape& s = shapes_[i];
      if (!s.rounds()) continue;
      Bf16* const x = rounded_.data() + begins_[i];
      bf16_->pack(loops, batch, s.in, first, all[i].x, x);
      // oneDNN is fast only if the rows of a tile are contiguous.
      for (int64_t column = 0; column < s.out; column += kTileRows) {
        const int64_t width = std::min(kTileRows, s.out - column);
        Bf16* tile = x + Bf16Products::packed_size(batch, s.in) + column * rows + first * width;
        for (int64_t row = first; row < first + count; ++row, tile += width)
          loops.to_bf16(width, all[i].dy + row * s.out + column, tile);
        std::fill_n(tile, (kUnit - count) * width, Bf16{0});
      }
    }
  }
}

void Weights::add_gradients(const Loops& loops, int64_t batch, std::span<const Gradient> all) const {
  one_by_one(host_, tiles(), batch * size_ >= kGradientsWorthThreads,
             [&](int64_t i) { add_tile(loops, batch, all, i); });
}

void Weights::add_tile(const Loops& loops, int64_t batch, std::span<const Gradient> all, int64_t tile) const {
  if (batch == 0) return;
  const OneThread alone;
  const Tile& t = tiles_[static_cast<size_t>(tile)];
  const auto [in, out] = shapes_[t.matrix];
  const Gradient& g = all[t.matrix];
  if (to_bf16(t.matrix)) {
    const Bf16* const x = rounded_.data() + begins_[t.matrix];
    const Bf16* const dy = x + Bf16Products::packed_size(batch, in);
    bf16_->add_products(t.last - t.first, in, batch, dy + t.first * Bf16Products::sums_of(batch), x,
                        g.w + t.first * in);
  } else {
    check(dnnl_sgemm('T', 'N', t.last - t.first, in, batch, 1.0f, g.dy + t.first, out, g.x, in, 1.0f,
                     g.w + t.first * in, in));
  }
  if (g.b) loops.sum_rows(batch, out, t.first, t.last, g.dy, g.b);
}

void mark_int8(Precision precision, std::vector<tessera::sdk::Parameter>& parameters) {
  for (tessera::sdk::Parameter& p : parameters)
    p.int8_rows = precision == Precision::kInt8 && p.shape.size() == 2 && Int8Products::rounds(p.shape[1], p.shape[0]);
}

}  // namespace tessera_dense
