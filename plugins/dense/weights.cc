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

void Weights::add(int64_t in, int64_t out, int64_t parts) {
  prepare_products();
  const int64_t all = parts * out, threads = host_.num_threads();
  // Each tile reads x again, so there are few: one for each part if there is one thread, and two for each thread to
  // end together.
  const int64_t shares = threads > 1 ? 2 * threads : 1, share = std::min(out, (all + shares - 1) / shares);
  const bool fixed = bf16_ || !free_;
  const int64_t rows = fixed ? kTileRows : (share + 15) / 16 * 16;
  for (int64_t part = 0; part < parts; ++part) {
    for (int64_t first = 0, last; first < out; first = last) {
      last = std::min(out, first + rows);
      if (!fixed && out - last == 1) last = out;  // oneDNN adds a single row up in another order
      tiles_.push_back({shapes_.size(), part, first, last, (part * out + first) * threads / all});
    }
  }
  std::stable_sort(tiles_.begin(), tiles_.end(), [](const Tile& a, const Tile& b) { return a.thread < b.thread; });
  shapes_.push_back({in, all, parts, parts_});
  offsets_.push_back(size_);
  parts_ += static_cast<size_t>(parts);
  size_ += in * all;
  values_ += in + all;
}

int64_t Weights::block(int64_t batch) const {
  constexpr int64_t kProductsOfAValue = 4;  // this many take as long as reading and writing a value
  const bool threads = host_.num_threads() > 1;
  const int64_t least = bf16_ || (free_ && !threads) ? 128 : 64, unit = bf16_ ? Bf16Products::kSumUnit : 16;
  const auto in_units = [unit](int64_t rows) { return (rows + unit - 1) / unit * unit; };
  if (!free_) return std::max(least, in_units(kProductsWorthAThread / size_));
  // While layers follow each other, other threads are awake and take less work.
  const int64_t products = threads && !bf16_ ? kProductsWorthAThread / 4 : kProductsWorthAThread;
  const int64_t rows = std::max(least, products / (size_ + kProductsOfAValue * values_));
  const auto most = static_cast<uint64_t>(std::max<int64_t>(batch / rows, 1));
  const auto blocks = static_cast<int64_t>(std::bit_floor(most));  // a power of two, so that threads end together
  int64_t size = in_units(std::max<int64_t>((batch + blocks - 1) / blocks, 1));
  while (batch > size && batch % size == 1) size += unit;
  return size;
}

void Weights::prepare(const Loops& loops, std::span<const float* const> w) { prepare(loops, w, false); }
void Weights::prepare_rounded(const Loops& loops, std::span<const float* const> w) { prepare(loops, w, true); }

void Weights::prepare(const Loops& loops, std::span<const float* const> w, bool only_rounded) {
  constexpr int64_t kFloatsWorthThreads = 16 << 10;
  if (int8_) pack_int8(w);
  if (only_rounded && !bf16_) return;
  given_.assign(w.begin(), w.end());
  if (bf16_) halves_.at_least(host_, size_);
  if (!only_rounded) transposed_.at_least(host_, size_);
  if (!only_rounded && parts_ > shapes_.size()) stacked_.at_least(host_, size_);
  one_by_one(host_, static_cast<int64_t>(tiles_.size()), size_ >= kFloatsWorthThreads, [&](int64_t i) {
    const Tile& t = tiles_[static_cast<size_t>(i)];
    const Shape& s = shapes_[t.matrix];
    const float* const part = w[s.first + static_cast<size_t>(t.part)];
    const int64_t at = offsets_[t.matrix], row = t.part * s.of_part(), from = t.first * s.in;
    if (to_bf16(t.matrix)) {
      loops.to_bf16(t.last * s.in - from, part + from, halves_.data() + at + row * s.in + from);
    } else if (!only_rounded && !to_int8(t.matrix)) {
      loops.transpose(s.out, s.in, t.first, t.last, part, transposed_.data() + at + row);
      if (s.parts > 1) std::copy(part + from, part + t.last * s.in, stacked_.data() + at + row * s.in + from);
    }
  });
}

// Packs the matrices in the first call, and later each matrix whose address has changed.
void Weights::pack_int8(std::span<const float* const> w) {
  packed_.resize(w.size());
  for (size_t i = 0; i < shapes_.size(); ++i) {
    const Shape& s = shapes_[i];
    const auto given = w.subspan(s.first, static_cast<size_t>(s.parts));
    const auto packed = packed_.begin() + static_cast<int64_t>(s.first);
    if (!to_int8(i) || std::equal(given.begin(), given.end(), packed)) continue;
    std::vector<float> stacked;
    for (const float* part : given) stacked.insert(stacked.end(), part, part + s.of_part() * s.in);
    int8_->pack(i, s.in, s.out, stacked.data());
    std::copy(given.begin(), given.end(), packed);
  }
}

void Weights::multiply(const Loops& loops, size_t i, int64_t rows, const float* x, int64_t x_stride, float* y,
                       int64_t y_stride) const {
  const int64_t in = shapes_[i].in, out = shapes_[i].out;
  if (to_int8(i)) {
    int8_->multiply(i, rows, x, x_stride, y, y_stride);
  } else if (to_bf16(i)) {
    bf16_->multiply_rows(loops, {false, true, false, 0, out, in, x_stride, in, y_stride}, rows, x,
                         halves_.data() + offsets_[i], y);
  } else {
    check(dnnl_sgemm('N', 'N', rows, out, in, 1.0f, x, x_stride, transposed_.data() + offsets_[i], out, 0.0f, y,
                     y_stride));
  }
}

void Weights::multiply_back(const Loops& loops, size_t i, int64_t rows, const float* dy, int64_t dy_stride, float* dx,
                            int64_t dx_stride, bool add) const {
  const Shape& s = shapes_[i];
  if (to_bf16(i)) {
    bf16_->multiply_rows(loops, {false, false, add, 0, s.in, s.out, dy_stride, s.in, dx_stride}, rows, dy,
                         halves_.data() + offsets_[i], dx);
  } else {
    const float* const w = s.parts > 1 ? stacked_.data() + offsets_[i] : given_[s.first];
    check(dnnl_sgemm('N', 'N', rows, s.in, s.out, 1.0f, dy, dy_stride, w, s.in, add ? 1.0f : 0.0f, dx, dx_stride));
  }
}

int64_t Weights::part(int64_t left) const {
  constexpr int64_t kDepth = 384;  // rows of the batch that oneDNN adds up at a time
  if (bf16_ || !free_) return left;
  const int64_t threads = host_.num_threads();
  const int64_t worth_threads = threads > 1 ? kGradientsWorthThreads / size_ / kDepth : 0;
  const int64_t rows = kDepth * std::max({int64_t{1}, worth_threads, threads / 2});
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

// oneDNN is fast only if the rows of a tile are contiguous. Rows [first, first + count) get their places in `to`, with
// zeros up to a whole unit. `rows` is the number of all.
void Weights::round_tiles(const Loops& loops, const Gradient& g, int64_t out, int64_t rows, int64_t first,
                          int64_t count, Bf16* to) {
  for (int64_t column = 0; column < out; column += kTileRows) {
    const int64_t width = std::min(kTileRows, out - column);
    Bf16* tile = to + column * rows + first * width;
    for (int64_t row = first; row < first + count; ++row, tile += width)
      loops.to_bf16(width, g.dy + row * g.dy_stride + column, tile);
    std::fill_n(tile, (Bf16Products::kSumUnit - count) * width, Bf16{0});
  }
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
      bf16_->pack(loops, batch, s.in, first, all[s.first].x, all[s.first].x_stride, x);
      Bf16* const dy = x + Bf16Products::packed_size(batch, s.in);
      for (int64_t part = 0; part < s.parts; ++part)
        round_tiles(loops, all[s.first + static_cast<size_t>(part)], s.of_part(), rows, first, count,
                    dy + part * s.of_part() * rows);
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
  const Shape& s = shapes_[t.matrix];
  const Gradient& g = all[s.first + static_cast<size_t>(t.part)];
  float* const w = g.w + t.first * s.in;
  if (to_bf16(t.matrix)) {
    const Bf16* const x = rounded_.data() + begins_[t.matrix];
    const Bf16* const dy = x + Bf16Products::packed_size(batch, s.in);
    const int64_t row = t.part * s.of_part() + t.first;
    bf16_->add_products(t.last - t.first, s.in, batch, dy + row * Bf16Products::sums_of(batch), x, w);
  } else {
    check(dnnl_sgemm('T', 'N', t.last - t.first, s.in, batch, 1.0f, g.dy + t.first, g.dy_stride, g.x, g.x_stride, 1.0f,
                     w, s.in));
  }
  if (g.b) loops.sum_rows(batch, g.dy_stride, t.first, t.last, g.dy, g.b);
}

void mark_int8(Precision precision, std::vector<tessera::sdk::Parameter>& parameters) {
  for (tessera::sdk::Parameter& p : parameters)
    p.int8_rows = precision == Precision::kInt8 && p.shape.size() == 2 && Int8Products::rounds(p.shape[1], p.shape[0]);
}

}  // namespace tessera_dense
