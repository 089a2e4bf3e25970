#include "bf16_products.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <dnnl.hpp>
#include <limits>
#include <utility>

#include "weights.h"

namespace tessera_dense {
namespace {

using dnnl::memory;
using tessera::sdk::fail;

memory::desc matrix_of(int64_t rows, int64_t columns, bool transposed, int64_t stride, memory::data_type type) {
  return {{rows, columns}, type, transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

// Runs body, and turns oneDNN's errors into Failures.
template <class Body>
void with_dnnl(const Body& body) {
  try {
    body();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory)
      fail(TSR_RESOURCE_EXHAUSTED, "no memory for a matrix product: free some, or raise ulimit -v");
    fail(TSR_INTERNAL, "oneDNN: a product in bfloat16 failed with status ", int{e.status}, ": ", e.what());
  }
}

// The least time of five calls, in seconds.
template <class Body>
double least_time(const Body& body) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return least;
}

// How many times as fast as in float32 a product of an ordinary layer is, its rounding included.
double pace_of_bf16(tessera::sdk::Host host) {
  constexpr int64_t kRows = 256, kWidth = 512;
  const OneThread alone;
  const Loops& loops = choose_loops();
  Bf16Products products(host);
  const std::vector<float> x(kRows * kWidth, 1), w(kWidth * kWidth, 1);
  const std::vector<Bf16> rounded(kWidth * kWidth, 0x3f80);
  std::vector<float> y(kRows * kWidth);
  const double in_float32 = least_time([&] {
    multiply({'N', 'N', kRows, kWidth, kWidth, 1, x.data(), kWidth, w.data(), kWidth, 0, y.data(), kWidth});
  });
  const double in_bf16 = least_time([&] {
    products.multiply_rows(loops, {false, true, false, 0, kWidth, kWidth, kWidth, kWidth, kWidth}, kRows, x.data(),
                           rounded.data(), y.data());
  });
  return std::round(100 * in_float32 / in_bf16) / 100;
}

}  // namespace

bool has_isa([[maybe_unused]] unsigned isa) {
#if TESSERA_X86
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & isa) == isa;
#else
  return false;
#endif
}

Precision read_precision(const tessera::sdk::Setup& setup) {
  constexpr double kWorthRounding = 1.1;
  const size_t word = setup.options.word("precision", {"float32", "bfloat16", "int8", "auto"});
  if (word == 0) return Precision::kFloat32;
  if (word == 2) return Precision::kInt8;
  if (!has_isa(dnnl_cpu_isa_avx512_core_bf16))  // AMX implies it
    fail(TSR_UNAVAILABLE, "precision = \"bfloat16\" needs AMX or AVX512-BF16, which this processor lacks or ",
         "DNNL_MAX_CPU_ISA hides; \"float32\" works everywhere");
  if (word == 1) return Precision::kBfloat16;
  static const double pace = pace_of_bf16(setup.host);
  if (pace >= kWorthRounding) return Precision::kBfloat16;
  fail(TSR_UNAVAILABLE, "products in bfloat16 are ", pace, " times as fast as in float32 on this processor");
}

struct Bf16Products::Engine {
  dnnl::engine cpu{dnnl::engine::kind::cpu, 0};
};

struct Bf16Products::Primitive {
  memory::desc a, b, c, scratchpad;
  dnnl::matmul matmul;
};

struct Bf16Products::Memory {
  explicit Memory(const dnnl::engine& engine) : stream(engine) {}
  dnnl::stream stream;
  tessera::sdk::Buffer scratchpad;
  Halves rows;
  Floats sums;
};

// Takes memory that no call uses, or makes some, and gives it back when the call ends.
class Bf16Products::Borrowed {
 public:
  explicit Borrowed(Bf16Products& from) : from_(from) {
    const std::lock_guard held(from.memory_lock_);
    if (!from.free_memory_.empty()) {
      memory_ = std::move(from.free_memory_.back());
      from.free_memory_.pop_back();
    } else {
      with_dnnl([&] { memory_ = std::make_unique<Memory>(from.engine_->cpu); });
    }
  }
  ~Borrowed() {
    const std::lock_guard held(from_.memory_lock_);
    from_.free_memory_.push_back(std::move(memory_));
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  Memory& operator*() const { return *memory_; }

 private:
  Bf16Products& from_;
  std::unique_ptr<Memory> memory_;
};

int64_t Bf16Products::small_products() { return has_isa(dnnl_cpu_isa_avx512_core_amx) ? 256 : 0; }

int64_t Bf16Products::least_rows(int64_t n) const {
  int64_t rows = small_ > 0 ? 2 : 1;
  while (rows * n <= small_) rows *= 2;
  return rows;
}

Bf16Products::Bf16Products(tessera::sdk::Host host, int64_t small) : host_(host), small_(small) {
  with_dnnl([&] { engine_ = std::make_unique<Engine>(); });
  try {
    constexpr int64_t n = kColumns;
    (void)make({true, false, true, n, n, kSumUnit, n, n, n, true});
  } catch (const dnnl::error&) {
    packs_ = false;
  }
}
Bf16Products::~Bf16Products() = default;

std::unique_ptr<Bf16Products::Primitive> Bf16Products::make(const Shape& s) const {
  const auto half = memory::data_type::bf16;
  const memory::desc a = matrix_of(s.m, s.k, s.trans_a, s.lda, half);
  const memory::desc b = s.packed ? memory::desc({s.k, s.n}, half, memory::format_tag::BA16a64b2a)
                                  : matrix_of(s.k, s.n, s.trans_b, s.ldb, half);
  const memory::desc c = matrix_of(s.m, s.n, false, s.ldc, memory::data_type::f32);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.add) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc described(engine_->cpu, a, b, c, attributes);
#else
  const dnnl::matmul::primitive_desc described({a, b, c}, attributes, engine_->cpu);
#endif
  return std::make_unique<Primitive>(Primitive{a, b, c, described.scratchpad_desc(), dnnl::matmul(described)});
}

const Bf16Products::Primitive& Bf16Products::primitive(const Shape& s) {
  {
    const std::shared_lock held(lock_);
    if (const auto found = primitives_.find(s); found != primitives_.end()) return *found->second;
  }
  const std::lock_guard held(lock_);
  std::unique_ptr<Primitive>& made = primitives_[s];
  if (!made) with_dnnl([&] { made = make(s); });  // otherwise another thread made it
  return *made;
}

void Bf16Products::run(const Primitive& p, const Bf16* a, const Bf16* b, float* c, Memory& own) const {
  const uint64_t scratch = p.scratchpad.get_size();
  if (own.scratchpad.bytes() < scratch) own.scratchpad = tessera::sdk::Buffer(host_, scratch);
  with_dnnl([&] {
    const dnnl::engine& cpu = engine_->cpu;
    const memory ma(p.a, cpu, const_cast<Bf16*>(a)), mb(p.b, cpu, const_cast<Bf16*>(b)), mc(p.c, cpu, c);
    const memory ms(p.scratchpad, cpu, own.scratchpad.data());
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, ma.get()},
                                    {DNNL_ARG_WEIGHTS, mb.get()},
                                    {DNNL_ARG_DST, mc.get()},
                                    {DNNL_ARG_SCRATCHPAD, ms.get()}};
    dnnl::error::wrap_c_api(dnnl_primitive_execute(p.matmul.get(), own.stream.get(), 4, args), "matmul");
  });
}

void Bf16Products::multiply_rows(const Loops& loops, Shape shape, int64_t rows, const float* x, const Bf16* b,
                                 float* c) {
  constexpr int64_t kMost = 256;
  const int64_t least = least_rows(shape.n);
  const Borrowed own(*this);
  const int64_t x_stride = std::exchange(shape.lda, shape.k);
  Bf16* const rounded = (*own).rows.at_least(host_, std::clamp(rows, least, kMost) * shape.k);
  const auto round = [&](int64_t count) {
    if (x_stride == shape.k) return loops.to_bf16(count * shape.k, x, rounded);
    for (int64_t r = 0; r < count; ++r) loops.to_bf16(shape.k, x + r * x_stride, rounded + r * shape.k);
  };
  for (int64_t size = kMost; rows > 0 && size >= least; size /= 2) {
    for (; rows >= size; rows -= size, x += size * x_stride, c += size * shape.ldc) {
      round(size);
      shape.m = size;
      run(primitive(shape), rounded, b, c, *own);
    }
  }
  if (rows == 0) return;
  // The last rows are too few: rows of zeros follow them.
  round(rows);
  std::fill_n(rounded + rows * shape.k, (least - rows) * shape.k, Bf16{0});
  float* const sums = (*own).sums.at_least(host_, least * shape.n);
  for (int64_t r = 0; shape.add && r < rows; ++r) std::copy_n(c + r * shape.ldc, shape.n, sums + r * shape.n);
  const int64_t stride = std::exchange(shape.ldc, shape.n);
  shape.m = least;
  run(primitive(shape), rounded, b, sums, *own);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(sums + r * shape.n, shape.n, c + r * stride);
}

// Calls body(begin, size) for each part of the rows [0, sums_of(k)). The parts depend only on k.
template <class Body>
void Bf16Products::for_sums(int64_t k, const Body& body) {
  constexpr int64_t kMost = 2048;
  int64_t begin = 0;
  const int64_t end = sums_of(k);
  for (int64_t size = kMost; begin < end; size /= 2) {
    for (; end - begin >= size; begin += size) body(begin, size);
  }
}

void Bf16Products::pack(const Loops& loops, int64_t k, int64_t n, int64_t first, const float* b, int64_t ldb,
                        Bf16* to) const {
  static constexpr float kZeros[kColumns] = {};
  constexpr int64_t kPairs = 16;  // pairs of rows in a block
  if (!packs_) {
    const int64_t last = std::min(first + kSumUnit, k);
    for (int64_t row = first; row < last; ++row) loops.to_bf16(n, b + row * ldb, to + row * n);
    std::fill(to + last * n, to + (first + kSumUnit) * n, Bf16{0});
    return;
  }
  for_sums(k, [&](int64_t begin, int64_t size) {
    if (first < begin || first >= begin + size) return;
    for (int64_t row = first; row < first + kSumUnit; row += 2) {
      const int64_t pair = (row - begin) / 2;
      for (int64_t c = 0; c < n; c += kColumns) {
        const int64_t columns = std::min(kColumns, n - c);
        const float* upper = row < k ? b + row * ldb + c : kZeros;
        const float* lower = row + 1 < k ? b + (row + 1) * ldb + c : kZeros;
        const int64_t block = c / kColumns * (size / 2 / kPairs) + pair / kPairs;
        Bf16* const at = to + begin * columns_of(n) + (block * kPairs + pair % kPairs) * 2 * kColumns;
        loops.to_bf16_pairs(columns, upper, lower, at);
        std::fill(at + 2 * columns, at + 2 * kColumns, Bf16{0});
      }
    }
  });
}

void Bf16Products::add_products(int64_t m, int64_t n, int64_t k, const Bf16* a, const Bf16* b, float* c) {
  const Borrowed own(*this);
  const int64_t stride = packs_ ? columns_of(n) : n;
  for_sums(k, [&](int64_t begin, int64_t size) {
    const Shape shape{true, false, true, m, n, size, m, n, n, packs_};
    run(primitive(shape), a + begin * m, b + begin * stride, c, *own);
  });
}

}  // namespace tessera_dense
