// "mlp" in host memory.
#pragma once

#include <vector>

#include "linear.h"
#include "loops.h"
#include "support.h"
#include "tessera/sdk/module.h"

namespace tessera_dense {

// A forward that no backward follows is meant for serving: batches of any size without anything made for that size, no
// memory once a batch as large was there, and the same values for a sample whatever is beside it.
class Mlp : public tessera::sdk::Module {
 public:
  explicit Mlp(const tessera::sdk::Setup& setup);

  const std::vector<tessera::sdk::Parameter>& parameters() const override { return shape_.parameters(); }
  int64_t output_width(std::span<const int64_t> widths) const override { return shape_.output_width(widths); }
  void forward(const tessera::sdk::ModuleForward& args, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleBackward& args, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    Floats hidden;  // outputs of all layers but the last, one after the other
  };
  void infer(int64_t batch, const float* x, float* output, Context& memory);

  tessera::sdk::Host host_;
  const Loops& loops_;
  tessera::sdk::MlpLayers shape_;
  std::vector<Linear> layers_;
  int64_t products_ = 0;  // of a sample's forward
  ContextPool<Context> contexts_;
  Floats dz_, dx_;  // gradients on their way down
  std::vector<float*> weights_, gradients_;
};

}  // namespace tessera_dense
