// A stand-in for cuBLASLt that computes on the CPU, with its column-major layouts. Missing or wrong settings give an
// error or wrong numbers.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>

namespace {

struct Layout {
  uint64_t rows, columns;
  int64_t pitch;
};
struct Product {
  cublasOperation_t first = CUBLAS_OP_N, second = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const float* bias = nullptr;
};
const Layout& of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<const Layout*>(layout); }
Product& of(cublasLtMatmulDesc_t desc) { return *reinterpret_cast<Product*>(desc); }

// Rows and columns of op(matrix).
uint64_t rows_of(const Layout& l, cublasOperation_t op) { return op == CUBLAS_OP_N ? l.rows : l.columns; }
uint64_t columns_of(const Layout& l, cublasOperation_t op) { return op == CUBLAS_OP_N ? l.columns : l.rows; }
float at(const float* data, const Layout& l, cublasOperation_t op, uint64_t row, uint64_t column) {
  if (op == CUBLAS_OP_T) std::swap(row, column);
  return data[row + column * static_cast<uint64_t>(l.pitch)];
}

bool fit(const Product& p, const Layout& a, const Layout& b, const Layout& d) {
  return columns_of(a, p.first) == rows_of(b, p.second) && rows_of(a, p.first) == d.rows &&
         columns_of(b, p.second) == d.columns;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new Product);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete &of(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  Product& p = of(desc);
  void* into = nullptr;
  size_t wanted = sizeof(int32_t);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) into = &p.first;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) into = &p.second;
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) into = &p.epilogue;
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) into = &p.bias, wanted = sizeof(void*);
  if (into == nullptr || bytes != wanted) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(into, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t pitch) {
  if (type != CUDA_R_32F || pitch < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{rows, columns, pitch});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &of(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<int*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void*,
                                                    size_t bytes) {
  const size_t wanted = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4;
  return bytes == wanted ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
// A product with an inner size of 13 has no algorithm here.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  const Product& p = of(desc);
  if (!fit(p, of(a), of(b), of(d))) return CUBLAS_STATUS_INVALID_VALUE;
  *count = columns_of(of(a), p.first) == 13 ? 0 : 1;
  results[0] = {};
  results[0].algo.data[0] = 42;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void*, size_t,
                              cudaStream_t) {
  const Product& p = of(desc);
  if (algorithm->data[0] != 42 || c != d || c_layout != d_layout) return CUBLAS_STATUS_INVALID_VALUE;
  if (!fit(p, of(a_layout), of(b_layout), of(d_layout))) return CUBLAS_STATUS_INVALID_VALUE;
  const float one = *static_cast<const float*>(alpha), add = *static_cast<const float*>(beta);
  const uint64_t inner = columns_of(of(a_layout), p.first);
  for (uint64_t column = 0; column < of(d_layout).columns; ++column) {
    for (uint64_t row = 0; row < of(d_layout).rows; ++row) {
      double sum = 0;
      for (uint64_t k = 0; k < inner; ++k)
        sum += double{at(static_cast<const float*>(a), of(a_layout), p.first, row, k)} *
               at(static_cast<const float*>(b), of(b_layout), p.second, k, column);
      float& out = static_cast<float*>(d)[row + column * static_cast<uint64_t>(of(d_layout).pitch)];
      float value = one * static_cast<float>(sum) + (add != 0 ? add * out : 0);
      if (p.epilogue & CUBLASLT_EPILOGUE_BIAS) value += p.bias[row];
      if (p.epilogue & CUBLASLT_EPILOGUE_RELU) value = std::max(value, 0.0f);
      out = value;
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
