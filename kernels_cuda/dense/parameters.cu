#include "dense/parameters.h"

#include <algorithm>
#include <cstring>

#include "gpu/columns.h"

namespace tessera::gpu {
namespace {

constexpr int64_t kMostUpdateBlocks = 256;  // blocks per parameter; they loop over larger parameters

// The parameters of a launch, as its argument.
struct ParameterBatch {
  tsr_parameter_update parameters[kMostParameters];
  float sign;
  float decay;
  float constants[4];
};
static_assert(sizeof(ParameterBatch) <= 4096 - 64, "arguments of a launch");

GPU_DEVICE float effective_gradient(const ParameterBatch& batch, const tsr_parameter_update& p, int64_t i) {
  return batch.sign * p.gradient[i] + batch.decay * p.value[i];
}

template <int32_t kFormula>
GPU_DEVICE void update_element(const ParameterBatch& batch, const tsr_parameter_update& p, int64_t i) {
  const float* c = batch.constants;
  const float e = effective_gradient(batch, p, i);
  if constexpr (kFormula == TSR_UPDATE_SGD) {
    p.value[i] -= p.factors[0] * e;
  } else if constexpr (kFormula == TSR_UPDATE_MOMENTUM) {
    const float s = c[0] * p.states[0][i] + p.factors[0] * e;
    p.states[0][i] = s;
    p.value[i] -= c[1] * e + c[2] * s;
  } else if constexpr (kFormula == TSR_UPDATE_ADAGRAD) {
    const float s = p.states[0][i] + e * e;
    p.states[0][i] = s;
    p.value[i] -= divide(p.factors[0] * e, square_root(s) + c[0]);
  } else {
    const float rest = c[3] == 0 ? 1 - c[1] : c[3];
    const float m = c[0] * p.states[0][i] + (1 - c[0]) * e;
    const float v = c[1] * p.states[1][i] + rest * e * e;
    p.states[0][i] = m;
    p.states[1][i] = v;
    p.value[i] -= divide(p.factors[0] * m, square_root(v) * p.factors[1] + c[2]);
  }
}

template <int32_t kFormula>
GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads) update_elements_kernel(ParameterBatch batch) {
  const tsr_parameter_update& p = batch.parameters[blockIdx.y];
  const int64_t n = p.rows * p.columns;
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < n; i += int64_t{gridDim.x} * kBlockThreads)
    update_element<kFormula>(batch, p, i);
}

// Each warp updates a row.
GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads) update_rows_kernel(ParameterBatch batch) {
  const tsr_parameter_update& p = batch.parameters[blockIdx.y];
  const int64_t warps = kBlockThreads / warp_size();
  for (int64_t row = int64_t{blockIdx.x} * warps + warp(); row < p.rows; row += int64_t{gridDim.x} * warps) {
    const int64_t begin = row * p.columns;
    float sum = 0;
    for (int64_t c = lane(); c < p.columns; c += warp_size()) {
      const float e = effective_gradient(batch, p, begin + c);
      sum += e * e;
    }
    sum = group_sum(sum, warp_size());
    const float s = p.states[0][row] + divide(sum, static_cast<float>(p.columns));
    sync_warp();  // all lanes have now read the state
    if (lane() == 0) p.states[0][row] = s;
    const float factor = divide(p.factors[0], square_root(s) + batch.constants[0]);
    for (int64_t c = lane(); c < p.columns; c += warp_size())
      p.value[begin + c] -= factor * effective_gradient(batch, p, begin + c);
  }
}

void launch_updates(const ParameterBatch& batch, uint32_t count, int64_t most, int64_t most_rows, int32_t formula,
                    Stream stream) {
  const auto grid = [&](int64_t threads) {
    const int64_t blocks = (threads + kBlockThreads - 1) / kBlockThreads;
    return dim3(static_cast<unsigned>(std::min(blocks, kMostUpdateBlocks)), count);
  };
  const dim3 block(kBlockThreads);
  switch (formula) {
    case TSR_UPDATE_SGD:
      return GPU_LAUNCH((update_elements_kernel<TSR_UPDATE_SGD>), grid(most), block, 0, stream, batch);
    case TSR_UPDATE_MOMENTUM:
      return GPU_LAUNCH((update_elements_kernel<TSR_UPDATE_MOMENTUM>), grid(most), block, 0, stream, batch);
    case TSR_UPDATE_ADAGRAD:
      return GPU_LAUNCH((update_elements_kernel<TSR_UPDATE_ADAGRAD>), grid(most), block, 0, stream, batch);
    case TSR_UPDATE_ROWWISE_ADAGRAD:
      return GPU_LAUNCH(update_rows_kernel, grid(most_rows * warp_size()), block, 0, stream, batch);
    case TSR_UPDATE_ADAM:
      return GPU_LAUNCH((update_elements_kernel<TSR_UPDATE_ADAM>), grid(most), block, 0, stream, batch);
    default:
      sdk::fail(TSR_UNIMPLEMENTED, "dense parameters: there is no formula ", formula, " on " GPU_VENDOR " devices");
  }
}

}  // namespace

void update_parameters(const tsr_parameter_updates& updates, Stream stream) {
  ParameterBatch batch{};
  batch.sign = updates.sign;
  batch.decay = updates.decay;
  std::memcpy(batch.constants, updates.constants, sizeof(batch.constants));
  for (uint32_t next = 0; next < updates.num_parameters;) {
    uint32_t count = 0;
    int64_t most = 0, most_rows = 0;
    for (; count < kMostParameters && next < updates.num_parameters; ++next) {
      const tsr_parameter_update& p = updates.parameters[next];
      if (p.rows * p.columns == 0) continue;
      batch.parameters[count++] = p;
      most = std::max(most, p.rows * p.columns);
      most_rows = std::max(most_rows, p.rows);
    }
    if (count != 0) launch_updates(batch, count, most, most_rows, updates.formula, stream);
  }
}

}  // namespace tessera::gpu
