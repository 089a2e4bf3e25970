// The kernel instance of the planner's test plugins. It does nothing, because planning only asks kernels for estimates.
#pragma once

#include "tessera/sdk/kernel.h"

namespace tessera::test {

class IdleInstance : public sdk::KernelInstance {
 public:
  void forward(const tsr_lookup&, const DLTensor&, tsr_stream, tsr_context**) override {}
  void backward(tsr_context*, const tsr_backward&, tsr_stream) override {}
  void release(tsr_context*) noexcept override {}
  tsr_kernel_stats stats(uint32_t) override { return {}; }
};

}  // namespace tessera::test
