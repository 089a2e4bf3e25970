// Layers that are a chain of pieces over their joined inputs: linear, norm, activation and dropout, one after the
// other.
#pragma once

#include <vector>

#include "joined.h"
#include "piece.h"

namespace tessera_dense {

// Collects the pointers of a call. The core owns the data of buffers and parameters.
class ChainCall {
 public:
  Run run(const tessera::sdk::ModuleCall& call, const Chain& chain, int64_t batch, bool backward_follows) {
    parameter_data(call.parameters, chain.parameters(), parameters_);
    if (!call.grad_parameters.empty()) parameter_data(call.grad_parameters, chain.parameters(), gradients_);
    return {call,
            batch,
            parameters_.data(),
            call.grad_parameters.empty() ? nullptr : gradients_.data(),
            call.buffers.data(),
            backward_follows};
  }

 private:
  std::vector<float*> parameters_, gradients_;
};

class ChainLayer : public tessera::sdk::Module {
 public:
  static constexpr bool kRowByRow = true;
  const std::vector<tessera::sdk::Parameter>& parameters() const override { return chain_.parameters(); }
  const std::vector<tessera::sdk::Parameter>& buffers() const override { return chain_.buffers(); }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override {
    joined_.width_of(inputs);
    return {tessera::sdk::Value{chain_.out()}};
  }
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 protected:
  // `width` is the sum of the inputs' widths, which the option "inputs" lists.
  ChainLayer(const tessera::sdk::Setup& setup, const char* name, int64_t width);

  Chain chain_;

 private:
  struct Context {
    Floats kept;
    Floats joined;  // several inputs, concatenated
  };
  tessera::sdk::Host host_;
  const char* name_;
  Joined joined_;
  ChainCall pointers_;
  ContextPool<Context> contexts_;
  Floats zeros_;
};

// The sum of the option "inputs", which is required.
int64_t needed_width(tessera::sdk::Options& options, const char* layer);
// Throws Failure if the mlp has batch norm or dice, because the layer cannot sum over ranks.
void refuse_sums(const tessera::sdk::MlpLayers& shape, const char* layer);
// Adds the pieces of an mlp, with the precision of the options. The names of its parameters begin with `prefix`.
void add_mlp(Chain& chain, const tessera::sdk::Setup& setup, const tessera::sdk::MlpLayers& shape,
             const std::string& prefix);

// This is "linear" without a bias.
class LinearChain : public ChainLayer {
 public:
  LinearChain(const tessera::sdk::Setup& setup, int64_t width);
};
class ActivationLayer : public ChainLayer {
 public:
  explicit ActivationLayer(const tessera::sdk::Setup& setup);
};
class AffineLayer : public ChainLayer {
 public:
  explicit AffineLayer(const tessera::sdk::Setup& setup);
};
class LayerNorm : public ChainLayer {
 public:
  explicit LayerNorm(const tessera::sdk::Setup& setup);
};
class L2Norm : public ChainLayer {
 public:
  explicit L2Norm(const tessera::sdk::Setup& setup);
};
class SwishLayerNorm : public ChainLayer {
 public:
  explicit SwishLayerNorm(const tessera::sdk::Setup& setup);
};
class BatchNorm : public ChainLayer {
 public:
  static constexpr uint32_t kFlags = TSR_MODULE_SUMS_OVER_RANKS;
  explicit BatchNorm(const tessera::sdk::Setup& setup);
};
class Dice : public ChainLayer {
 public:
  static constexpr uint32_t kFlags = TSR_MODULE_SUMS_OVER_RANKS;
  explicit Dice(const tessera::sdk::Setup& setup);
};
class Softmax : public ChainLayer {
 public:
  explicit Softmax(const tessera::sdk::Setup& setup);
};
// An mlp of any options except those that refuse_sums() refuses.
class AnyMlp : public ChainLayer {
 public:
  AnyMlp(const tessera::sdk::Setup& setup, const tessera::sdk::MlpLayers& shape);
};
// "mlp_batch_norm": an mlp whose default norm is "batch". It is a layer of its own, because its flag makes the core
// provide sums over ranks, a cost that other mlps should not have.
class BatchNormMlp : public ChainLayer {
 public:
  static constexpr bool kPrecision = true;
  static constexpr bool kInt8 = true;
  static constexpr uint32_t kFlags = TSR_MODULE_SUMS_OVER_RANKS;
  explicit BatchNormMlp(const tessera::sdk::Setup& setup);

 private:
  BatchNormMlp(const tessera::sdk::Setup& setup, const tessera::sdk::MlpLayers& shape);
};

}  // namespace tessera_dense
