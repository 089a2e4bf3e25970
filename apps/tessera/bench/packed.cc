#include "bench/packed.h"

#if TESSERA_ONEDNN
#include <dlfcn.h>
#include <dnnl.h>
#endif

#include <algorithm>

namespace tessera::cli {

#if TESSERA_ONEDNN && DNNL_VERSION_MAJOR == 2

namespace {

// oneDNN's functions, looked up in the library, which no other command is to load.
struct Dnnl {
  explicit Dnnl(void* from) : library(from) {
    set(engine_create, "dnnl_engine_create");
    set(engine_destroy, "dnnl_engine_destroy");
    set(stream_create, "dnnl_stream_create");
    set(stream_destroy, "dnnl_stream_destroy");
    set(describe_any, "dnnl_memory_desc_init_by_tag");
    set(describe, "dnnl_memory_desc_init_by_strides");
    set(matmul, "dnnl_matmul_desc_init");
    set(primitive_desc_create, "dnnl_primitive_desc_create");
    set(primitive_desc_destroy, "dnnl_primitive_desc_destroy");
    set(query, "dnnl_primitive_desc_query_md");
    set(size_of, "dnnl_memory_desc_get_size");
    set(primitive_create, "dnnl_primitive_create");
    set(primitive_destroy, "dnnl_primitive_destroy");
    set(memory_create, "dnnl_memory_create");
    set(memory_destroy, "dnnl_memory_destroy");
    set(execute, "dnnl_primitive_execute");
    set(isa, "dnnl_get_effective_cpu_isa");
  }
  template <class Function>
  void set(Function& function, const char* name) {
    function = library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
    complete = complete && function != nullptr;
  }

  void* library;
  bool complete = true;
  decltype(&dnnl_engine_create) engine_create;
  decltype(&dnnl_engine_destroy) engine_destroy;
  decltype(&dnnl_stream_create) stream_create;
  decltype(&dnnl_stream_destroy) stream_destroy;
  decltype(&dnnl_memory_desc_init_by_tag) describe_any;
  decltype(&dnnl_memory_desc_init_by_strides) describe;
  decltype(&dnnl_matmul_desc_init) matmul;
  decltype(&dnnl_primitive_desc_create) primitive_desc_create;
  decltype(&dnnl_primitive_desc_destroy) primitive_desc_destroy;
  decltype(&dnnl_primitive_desc_query_md) query;
  decltype(&dnnl_memory_desc_get_size) size_of;
  decltype(&dnnl_primitive_create) primitive_create;
  decltype(&dnnl_primitive_destroy) primitive_destroy;
  decltype(&dnnl_memory_create) memory_create;
  decltype(&dnnl_memory_destroy) memory_destroy;
  decltype(&dnnl_primitive_execute) execute;
  decltype(&dnnl_get_effective_cpu_isa) isa;
};

void check(dnnl_status_t status) {
  if (status != dnnl_success) fail(Code::kInternal, "oneDNN: a product of the bench failed with status ", int{status});
}

// One product c [m, n] = a b, with operands of its own.
class PackedProduct {
 public:
  struct Shape {
    int64_t m, n, k;
    bool trans_a;
  };
  PackedProduct(const Dnnl& dnnl, dnnl_engine_t engine, const Shape& shape, bool bf16) : dnnl_(dnnl) {
    const dnnl_data_type_t type = bf16 ? dnnl_bf16 : dnnl_f32;
    const dnnl_dims_t a_dims = {shape.m, shape.k}, b_dims = {shape.k, shape.n}, c_dims = {shape.m, shape.n};
    const dnnl_dims_t a_strides = {shape.trans_a ? 1 : shape.k, shape.trans_a ? shape.m : 1}, c_strides = {shape.n, 1};
    dnnl_memory_desc_t a{}, b{}, c{};
    check(dnnl.describe(&a, 2, a_dims, type, a_strides));
    check(dnnl.describe_any(&b, 2, b_dims, type, dnnl_format_tag_any));
    check(dnnl.describe(&c, 2, c_dims, dnnl_f32, c_strides));
    dnnl_matmul_desc_t matmul{};
    check(dnnl.matmul(&matmul, &a, &b, nullptr, &c));
    dnnl_primitive_desc_t described = nullptr;
    check(dnnl.primitive_desc_create(&described, &matmul, nullptr, engine, nullptr));
    const dnnl_memory_desc_t packed = *dnnl.query(described, dnnl_query_weights_md, 0);
    const dnnl_status_t made = dnnl.primitive_create(&primitive_, described);
    dnnl.primitive_desc_destroy(described);
    check(made);
    const dnnl_memory_desc_t* const all[] = {&a, &packed, &c};
    for (int i = 0; i < 3; ++i) {
      values_[i].assign(dnnl.size_of(all[i]) + kAlignment, 0);
      void* at = values_[i].data();
      size_t space = values_[i].size();
      check(dnnl.memory_create(&memory_[i], all[i], engine, std::align(kAlignment, space - kAlignment, at, space)));
    }
  }
  ~PackedProduct() {
    for (dnnl_memory_t memory : memory_) {
      if (memory != nullptr) dnnl_.memory_destroy(memory);
    }
    if (primitive_ != nullptr) dnnl_.primitive_destroy(primitive_);
  }
  PackedProduct(const PackedProduct&) = delete;
  PackedProduct& operator=(const PackedProduct&) = delete;

  void run(dnnl_stream_t stream) const {
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, memory_[0]}, {DNNL_ARG_WEIGHTS, memory_[1]}, {DNNL_ARG_DST, memory_[2]}};
    check(dnnl_.execute(primitive_, stream, 3, args));
  }

 private:
  static constexpr size_t kAlignment = 64;
  const Dnnl& dnnl_;
  dnnl_primitive_t primitive_ = nullptr;
  std::vector<char> values_[3];
  dnnl_memory_t memory_[3] = {};
};

}  // namespace

struct PackedProducts::Impl {
  explicit Impl(const Runtime& of) : runtime(of), dnnl(dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL)) {}
  ~Impl() {
    parts.clear();
    for (dnnl_stream_t stream : streams) dnnl.stream_destroy(stream);
    if (engine != nullptr) dnnl.engine_destroy(engine);
  }

  const Runtime& runtime;
  Dnnl dnnl;
  void (*set_threads)(int) = nullptr;
  dnnl_engine_t engine = nullptr;
  std::vector<dnnl_stream_t> streams;                              // per thread
  std::vector<std::vector<std::unique_ptr<PackedProduct>>> parts;  // per thread
};

PackedProducts::PackedProducts(const Runtime& runtime, const std::vector<MatrixProduct>& layers, int64_t batch,
                               bool bf16)
    : impl_(std::make_unique<Impl>(runtime)) {
  Impl& m = *impl_;
  if (!m.dnnl.complete || layers.empty()) return;
  const auto needed = static_cast<unsigned>(dnnl_cpu_isa_avx512_core_bf16);
  if (bf16 && (static_cast<unsigned>(m.dnnl.isa()) & needed) != needed) return;
  if (void* const gomp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL))
    m.set_threads = reinterpret_cast<void (*)(int)>(dlsym(gomp, "omp_set_num_threads"));
  if (m.set_threads) m.set_threads(1);  // the primitives are made for as many threads
  check(m.dnnl.engine_create(&m.engine, dnnl_cpu, 0));
  const int64_t parts = std::min<int64_t>(runtime.threads(), batch);
  for (int64_t p = 0; p < parts; ++p) {
    const int64_t rows = batch * (p + 1) / parts - batch * p / parts;
    check(m.dnnl.stream_create(&m.streams.emplace_back(), m.engine, dnnl_stream_default_flags));
    auto& products = m.parts.emplace_back();
    for (const MatrixProduct& l : layers) {
      const auto add = [&](const PackedProduct::Shape& shape) {
        products.push_back(std::make_unique<PackedProduct>(m.dnnl, m.engine, shape, bf16));
      };
      add({rows, l.out, l.in, false});
      add({l.out, l.in, rows, true});
      if (l.wants_input_gradient) add({rows, l.in, l.out, false});
    }
  }
}

bool PackedProducts::available() const { return !impl_->parts.empty(); }

void PackedProducts::run() {
  const Impl& m = *impl_;
  m.runtime.parallel_for(std::ssize(m.parts), [&](int64_t p) {
    if (m.set_threads) m.set_threads(1);
    for (const auto& product : m.parts[static_cast<size_t>(p)]) product->run(m.streams[static_cast<size_t>(p)]);
  });
}

#else

struct PackedProducts::Impl {};
PackedProducts::PackedProducts(const Runtime&, const std::vector<MatrixProduct>&, int64_t, bool) {}
bool PackedProducts::available() const { return false; }
void PackedProducts::run() {}

#endif

PackedProducts::~PackedProducts() = default;

}  // namespace tessera::cli
