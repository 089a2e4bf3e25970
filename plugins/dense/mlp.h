// "mlp" in host memory.
#pragma once

#include <vector>

#include "loops.h"
#include "support.h"
#include "tessera/sdk/module.h"
#include "weights.h"

namespace tessera_dense {

// A forward that no backward follows is meant for serving: batches of any size without anything made for that size, no
// memory once a batch as large was there, and the same values for a sample whatever is beside it.
class Mlp : public tessera::sdk::Module {
 public:
  explicit Mlp(const tessera::sdk::Setup& setup);

  const std::vector<tessera::sdk::Parameter>& parameters() const override { return shape_.parameters(); }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override {
    return shape_.outputs(inputs);
  }
  void forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& args, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    Floats hidden;  // outputs of all layers but the last, one after the other
  };
  void infer(int64_t batch, const float* x, float* output, const Context& memory);
  void take_weights(std::span<const DLTensor> tensors);
  float* values(size_t k, int64_t batch, float* output, const Context& kept) const;

  tessera::sdk::Host host_;
  const Loops& loops_;
  tessera::sdk::MlpLayers shape_;
  Weights matrices_;
  int64_t products_ = 0;  // of a sample's forward
  ContextPool<Context> contexts_;
  Floats dz_;  // gradients of all layers' outputs before the ReLU, as `hidden` and the last one's behind
  std::vector<float*> parameters_;
  std::vector<const float*> weights_, biases_;  // of each layer
  std::vector<Weights::Gradient> gradients_;
};

}  // namespace tessera_dense
