#include "dense/blas.h"

#if defined(TESSERA_GPU_CUDA) && __has_include(<cublasLt.h>)

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <tuple>

namespace tessera::gpu {
namespace {

#define BLAS_TEXT_OF(x) #x
#define BLAS_TEXT(x) BLAS_TEXT_OF(x)
constexpr const char* kLibrary = "libcublasLt.so." BLAS_TEXT(CUBLAS_VER_MAJOR);
#undef BLAS_TEXT
#undef BLAS_TEXT_OF

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) sdk::fail(TSR_INTERNAL, "cuBLASLt: ", what, " failed with status ", int{status});
}

// The alignment of an address in bytes, at most 16; more does not matter to the library.
uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address);
  return static_cast<uint32_t>(std::min<uintptr_t>(bits & (~bits + 1), 16));
}

// Everything that a plan depends on.
using Kind = std::tuple<int64_t, int64_t, int64_t, int, uint32_t, uint32_t, uint32_t>;
Kind kind_of(const Product& p) {
  const int flags = p.a_transposed + 2 * p.b_transposed + 4 * p.add + 8 * (p.bias != nullptr) + 16 * p.relu;
  return {p.m, p.n, p.k, flags, alignment_of(p.a), alignment_of(p.b), alignment_of(p.c)};
}

}  // namespace

struct Blas::Library {
  void* file = nullptr;
  cublasLtHandle_t handle = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;

  // The library stays open as long as the process lives, as plugins do.
  bool load(const std::string& name) {
    file = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    return file != nullptr && find("cublasLtCreate", create) && find("cublasLtDestroy", destroy) &&
           find("cublasLtMatmul", matmul) && find("cublasLtMatmulDescCreate", desc_create) &&
           find("cublasLtMatmulDescDestroy", desc_destroy) && find("cublasLtMatmulDescSetAttribute", desc_set) &&
           find("cublasLtMatrixLayoutCreate", layout_create) && find("cublasLtMatrixLayoutDestroy", layout_destroy) &&
           find("cublasLtMatmulPreferenceCreate", preference_create) &&
           find("cublasLtMatmulPreferenceDestroy", preference_destroy) &&
           find("cublasLtMatmulPreferenceSetAttribute", preference_set) &&
           find("cublasLtMatmulAlgoGetHeuristic", heuristic) && create(&handle) == CUBLAS_STATUS_SUCCESS;
  }
  template <class F>
  bool find(const char* name, F& function) const {
    function = reinterpret_cast<F>(dlsym(file, name));
    return function != nullptr;
  }
};

// The library is column-major: our c [m, n] is its transpose [n, m], which is b^T a^T. Its first operand is therefore
// our b, and row-major data is already transposed for it.
struct Blas::Plan {
  Library* library = nullptr;
  Kind kind;
  bool works = false;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm;

  ~Plan() { clear(); }
  void clear() {
    if (library == nullptr) return;
    if (desc != nullptr) (void)library->desc_destroy(desc);
    for (cublasLtMatrixLayout_t* layout : {&first, &second, &result}) {
      if (*layout != nullptr) (void)library->layout_destroy(*layout);
      *layout = nullptr;
    }
    desc = nullptr;
    works = false;
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(library->desc_set(desc, attribute, &value, sizeof(value)), "setting up a product");
  }
  void layout(cublasLtMatrixLayout_t& out, int64_t rows, int64_t columns) {
    check(library->layout_create(&out, CUDA_R_32F, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows),
          "a matrix' layout");
  }
  void describe(const Product& p) {
    check(library->desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product's description");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    const int epilogue = (p.relu ? CUBLASLT_EPILOGUE_RELU : 0) | (p.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : 0);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE,
        epilogue == 0 ? CUBLASLT_EPILOGUE_DEFAULT : static_cast<cublasLtEpilogue_t>(epilogue));
    layout(first, p.b_transposed ? p.k : p.n, p.b_transposed ? p.n : p.k);
    layout(second, p.a_transposed ? p.m : p.k, p.a_transposed ? p.k : p.m);
    layout(result, p.n, p.m);
  }
  void choose(const Product& p) {
    cublasLtMatmulPreference_t wanted = nullptr;
    check(library->preference_create(&wanted), "a preference");
    const auto set_wanted = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      (void)library->preference_set(wanted, attribute, &value, sizeof(value));
    };
    set_wanted(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspace});
    set_wanted(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b));
    set_wanted(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a));
    set_wanted(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c));
    set_wanted(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c));
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status =
        library->heuristic(library->handle, desc, first, second, result, result, wanted, 1, &best, &found);
    (void)library->preference_destroy(wanted);
    works = status == CUBLAS_STATUS_SUCCESS && found == 1;
    if (works) algorithm = best.algo;
  }
};

std::unique_ptr<Blas> Blas::open(const std::string& library) {
  auto opened = std::make_unique<Library>();
  if (!opened->load(library.empty() ? kLibrary : library)) return nullptr;
  return std::unique_ptr<Blas>(new Blas(std::move(opened)));
}

Blas::Blas(std::unique_ptr<Library> library) : library_(std::move(library)), plans_(std::make_unique<Plan[]>(kPlans)) {}

Blas::~Blas() {
  plans_.reset();
  (void)library_->destroy(library_->handle);
}

Blas::Plan& Blas::plan_of(const Product& p) {
  const Kind kind = kind_of(p);
  for (size_t i = 0; i < num_plans_; ++i) {
    if (plans_[i].kind == kind) return plans_[i];
  }
  Plan& plan = plans_[num_plans_ < kPlans ? num_plans_++ : next_++ % kPlans];
  plan.clear();
  plan.library = library_.get();
  plan.kind = kind;
  plan.describe(p);
  plan.choose(p);
  return plan;
}

bool Blas::multiply(const Product& p, void* workspace, Stream stream) {
  if (p.m == 0 || p.n == 0 || p.k == 0) return false;
  Plan& plan = plan_of(p);
  if (!plan.works) return false;
  if (p.bias != nullptr) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  const float one = 1, beta = p.add ? 1 : 0;
  check(library_->matmul(library_->handle, plan.desc, &one, p.b, plan.first, p.a, plan.second, &beta, p.c, plan.result,
                         p.c, plan.result, &plan.algorithm, workspace, kWorkspace, stream),
        "a product");
  return true;
}

}  // namespace tessera::gpu

#else

namespace tessera::gpu {

struct Blas::Library {};
struct Blas::Plan {};

std::unique_ptr<Blas> Blas::open(const std::string&) { return nullptr; }
Blas::~Blas() = default;
bool Blas::multiply(const Product&, void*, Stream) { return false; }

}  // namespace tessera::gpu

#endif
