#include "bench/sgemm.h"

#include <dlfcn.h>

#include <algorithm>

namespace tessera::cli {
namespace {

// dnnl_sgemm of oneDNN 2 and 3: row-major, dimensions of type dnnl_dim_t.
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

struct Layer {
  int64_t in = 0, out = 0;
  bool wants_input_gradient = true;
};

}  // namespace

struct DenseProducts::Impl {
  int64_t batch = 0;
  std::vector<Layer> layers;
  double pairs = 0;            // flops of the interaction's dot products, forward and backward
  std::vector<float> x, w, y;  // of the largest layer
  Sgemm sgemm = nullptr;
  SetThreads set_threads = nullptr;
  int threads = 1;

  void add(int64_t in, const std::vector<int64_t>& widths, bool input_gradient) {
    for (const int64_t out : widths) {
      layers.push_back({in, out, input_gradient});
      in = out;
      input_gradient = true;
    }
  }
};

DenseProducts::DenseProducts(const DlrmOptions& o, int64_t batch, int threads) : impl_(std::make_unique<Impl>()) {
  Impl& m = *impl_;
  m.batch = batch;
  m.threads = threads;
  const int64_t n = o.num_embeddings + 1;
  m.add(o.dense_inputs, o.bottom_mlp, false);
  m.add(o.embedding_dim + n * (n - 1) / 2, o.top_mlp, true);
  m.pairs = 3.0 * static_cast<double>(batch * n * (n - 1) * o.embedding_dim);
  size_t x = 0, w = 0, y = 0;
  for (const Layer& l : m.layers) {
    x = std::max(x, static_cast<size_t>(batch * l.in));
    w = std::max(w, static_cast<size_t>(l.in * l.out));
    y = std::max(y, static_cast<size_t>(batch * l.out));
  }
  m.x.assign(x, 0.5f);
  m.w.assign(w, 0.25f);
  m.y.assign(y, 0.125f);
  m.sgemm = function_of<Sgemm>(open_first({"libdnnl.so.2", "libdnnl.so.3", "libdnnl.so"}), "dnnl_sgemm");
  m.set_threads = function_of<SetThreads>(open_first({"libgomp.so.1"}), "omp_set_num_threads");
}

DenseProducts::~DenseProducts() = default;

bool DenseProducts::available() const { return impl_->sgemm != nullptr; }

double DenseProducts::flops() const {
  double sum = 0;
  for (const Layer& l : impl_->layers)
    sum += 2.0 * static_cast<double>(impl_->batch * l.in * l.out) * (l.wants_input_gradient ? 3 : 2);
  return sum;
}

double DenseProducts::dense_flops() const { return flops() + impl_->pairs; }

void DenseProducts::run() {
  Impl& m = *impl_;
  if (m.set_threads) m.set_threads(m.threads);
  float *x = m.x.data(), *w = m.w.data(), *y = m.y.data();
  for (const Layer& l : m.layers) {
    m.sgemm('N', 'T', m.batch, l.out, l.in, 1.0f, x, l.in, w, l.in, 0.0f, y, l.out);
    m.sgemm('T', 'N', l.out, l.in, m.batch, 1e-9f, y, l.out, x, l.in, 1.0f, w, l.in);
    if (l.wants_input_gradient) m.sgemm('N', 'N', m.batch, l.in, l.out, 1e-3f, y, l.out, w, l.in, 0.0f, x, l.in);
  }
  std::fill(m.x.begin(), m.x.end(), 0.5f);
  std::fill(m.w.begin(), m.w.end(), 0.25f);
}

}  // namespace tessera::cli
