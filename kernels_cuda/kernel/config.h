// The content of a tsr_kernel_config and a tsr_lookup for the GPU kernel, checked as far as the host can see.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpu/update.h"
#include "gpu/views.h"
#include "tessera/sdk/kernel.h"

namespace tessera::gpu {

// The devices of this build, terminated by 0. The emulator's memory is the host's, so that it also serves the CPU.
#if defined(TESSERA_GPU_CUDA)
inline constexpr int32_t kDeviceTypes[] = {kDLCUDA, 0};
#elif defined(TESSERA_GPU_HIP)
inline constexpr int32_t kDeviceTypes[] = {kDLROCM, 0};
#else
inline constexpr int32_t kDeviceTypes[] = {kDLCPU, kDLExtDev, 0};
#endif

// Throws Failure(TSR_UNIMPLEMENTED) for other types; `what` names the tensor.
Storage storage_of(DLDataType dtype, const char* what);

// A fused optimizer's hyperparameters, from the options with which it was created.
class Hyper {
 public:
  Hyper(Formula formula, const char* options);
  UpdateStep at(const tsr_update& update) const;

 private:
  UpdateStep step_{};
};

struct TableSpec {
  std::string name;
  int64_t rows;
  int64_t dim;
};

struct Config {
  bool train = true;
  DLDevice device{};
  Storage weights = Storage::kFloat32;
  Storage output = Storage::kFloat32;
  std::vector<TableSpec> tables;
  sdk::OptimizerRef optimizer;
  std::optional<Hyper> fused;  // set if the optimizer runs on the device
  float max_gradient = 0;      // 0: no clamp

  int64_t max_dim() const;
  bool vectors() const;  // rows of all tables can be read in vectors of four
};

// Throws Failure(TSR_UNIMPLEMENTED or TSR_INVALID_ARGUMENT) with the reason why this config cannot be served.
// `compute_kernels` ends with NULL.
Config checked(const tsr_kernel_config& config, const char* const* compute_kernels);

// Checks that the tensors of a batch are on this device and have the right types, and that features stay inside their
// shapes. The caller guarantees valid offsets and ids, which are not read.
void check_batch(const tsr_lookup& lookup, const Config& config, const DLTensor& values);

Indices indices_of(const DLTensor& tensor, const char* what);

}  // namespace tessera::gpu
