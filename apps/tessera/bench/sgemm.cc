#include "bench/sgemm.h"

#include <dlfcn.h>

#include <algorithm>

namespace tessera::cli {
namespace {

// Signature of dnnl_sgemm in oneDNN 2 and 3: row-major, dimensions of type dnnl_dim_t.
using Sgemm = int (*)(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                      int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
using SetThreads = void (*)(int);

void* open_first(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

template <class Function>
Function function_of(void* library, const char* name) {
  return library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

// The matrices that one thread multiplies: as large as the largest layer.
struct Operands {
  std::vector<float> x, w, y;
};

}  // namespace

struct DenseProducts::Impl {
  const Runtime* runtime = nullptr;
  int64_t batch = 0;
  std::vector<MatrixProduct> layers;
  double pairs = 0;
  std::vector<Operands> operands;  // per thread
  Sgemm sgemm = nullptr;
  SetThreads set_threads = nullptr;

  void multiply(int64_t rows, Operands& of) const {
    // oneDNN's thread count for this thread; the runtime already provides the threads asked for
    if (set_threads) set_threads(1);
    float *x = of.x.data(), *w = of.w.data(), *y = of.y.data();
    for (const MatrixProduct& l : layers) {
      sgemm('N', 'T', rows, l.out, l.in, 1.0f, x, l.in, w, l.in, 0.0f, y, l.out);
      sgemm('T', 'N', l.out, l.in, rows, 1e-9f, y, l.out, x, l.in, 1.0f, w, l.in);
      if (l.wants_input_gradient) sgemm('N', 'N', rows, l.in, l.out, 1e-3f, y, l.out, w, l.in, 0.0f, x, l.in);
    }
    std::fill(of.x.begin(), of.x.end(), 0.5f);
    std::fill(of.w.begin(), of.w.end(), 0.25f);
  }
};

DenseProducts::DenseProducts(const Runtime& runtime, std::vector<MatrixProduct> layers, double pairs, int64_t batch)
    : impl_(std::make_unique<Impl>()) {
  Impl& m = *impl_;
  m.runtime = &runtime;
  m.batch = batch;
  m.layers = std::move(layers);
  m.pairs = pairs;
  m.operands.resize(static_cast<size_t>(std::min<int64_t>(runtime.threads(), batch)));
  const int64_t rows = (batch - 1) / static_cast<int64_t>(m.operands.size()) + 1;
  size_t x = 0, w = 0, y = 0;
  for (const MatrixProduct& l : m.layers) {
    x = std::max(x, static_cast<size_t>(rows * l.in));
    w = std::max(w, static_cast<size_t>(l.in * l.out));
    y = std::max(y, static_cast<size_t>(rows * l.out));
  }
  for (Operands& of : m.operands) {
    of.x.assign(x, 0.5f);
    of.w.assign(w, 0.25f);
    of.y.assign(y, 0.125f);
  }
  m.sgemm = function_of<Sgemm>(open_first({"libdnnl.so.2", "libdnnl.so.3", "libdnnl.so"}), "dnnl_sgemm");
  m.set_threads = function_of<SetThreads>(open_first({"libgomp.so.1"}), "omp_set_num_threads");
}

DenseProducts::~DenseProducts() = default;

bool DenseProducts::available() const { return impl_->sgemm != nullptr && !impl_->layers.empty(); }

double DenseProducts::flops() const {
  double sum = 0;
  for (const MatrixProduct& l : impl_->layers)
    sum += 2.0 * static_cast<double>(impl_->batch * l.in * l.out) * (l.wants_input_gradient ? 3 : 2);
  return sum;
}

double DenseProducts::dense_flops() const { return flops() + impl_->pairs; }

void DenseProducts::run() {
  Impl& m = *impl_;
  const auto parts = static_cast<int64_t>(m.operands.size());
  m.runtime->parallel_for(parts, [&](int64_t p) {
    m.multiply(m.batch * (p + 1) / parts - m.batch * p / parts, m.operands[static_cast<size_t>(p)]);
  });
}

}  // namespace tessera::cli
