// "cross", the cross network of DCN-v2, in host memory.
#pragma once

#include <vector>

#include "linear.h"
#include "loops.h"
#include "support.h"
#include "tessera/sdk/module.h"

namespace tessera_dense {

class Cross : public tessera::sdk::Module {
 public:
  explicit Cross(const tessera::sdk::Setup& setup);

  const std::vector<tessera::sdk::Parameter>& parameters() const override { return shape_.parameters(); }
  int64_t output_width(std::span<const int64_t> widths) const override { return shape_.output_width(widths); }
  void forward(const tessera::sdk::ModuleForward& args, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleBackward& args, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    Floats kept;
  };
  using Kept = tessera::sdk::CrossLayers::Kept;
  void backward_layer(int64_t batch, int64_t k, const Kept& kept, const float* x, const float* dy, float* dx);

  tessera::sdk::Host host_;
  const Loops& loops_;
  tessera::sdk::CrossLayers shape_;
  int64_t width_, layers_, low_rank_;
  std::vector<Linear> down_, up_;  // V_k (low rank only), and W_k or U_k
  ContextPool<Context> contexts_;
  Floats dy_, dx_, dout_, dx0_, dv_;
  std::vector<float*> weights_, gradients_;
};

}  // namespace tessera_dense
