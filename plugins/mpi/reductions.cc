// What MPI reduces, and what a rank gets from itself.
#include <cstring>

#include "engine.h"
#include "tessera/sdk/tensor.h"

namespace tessera::mpi {
namespace {

MPI_Datatype type_of(DLDataType dtype) {
  if (sdk::same_dtype(dtype, sdk::dtype_of<float>())) return MPI_FLOAT;
  if (sdk::same_dtype(dtype, sdk::dtype_of<double>())) return MPI_DOUBLE;
  if (sdk::same_dtype(dtype, sdk::dtype_of<int32_t>())) return MPI_INT32_T;
  if (sdk::same_dtype(dtype, sdk::dtype_of<int64_t>())) return MPI_INT64_T;
  sdk::fail(TSR_UNIMPLEMENTED, "mpi reduces float32, float64, int32 and int64, not DLPack type code ", int{dtype.code},
            " with ", int{dtype.bits}, " bits");
}

MPI_Op op_of(int32_t reduce) {
  switch (reduce) {
    case TSR_REDUCE_SUM:
      return MPI_SUM;
    case TSR_REDUCE_MAX:
      return MPI_MAX;
    case TSR_REDUCE_MIN:
      return MPI_MIN;
    default:
      sdk::fail(TSR_UNIMPLEMENTED, "mpi reduces by sum, max and min, not by operation ", reduce);
  }
}

}  // namespace

void Engine::reduces(Op& op, DLDataType dtype, int32_t reduce) {
  op.reduction.type = type_of(dtype);
  op.reduction.op = op_of(reduce);
  op.reduction.element_bytes = static_cast<size_t>(dtype.bits) * dtype.lanes / 8;
}

void Engine::keep(Op&, char* to, const char* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace tessera::mpi
