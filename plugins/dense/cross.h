// "cross", the cross network of DCN-v2, in host memory.
#pragma once

#include <vector>

#include "joined.h"
#include "mlp.h"
#include "weights.h"

namespace tessera_dense {

// Kinds "full" and "low_rank": x_{k+1} = x_0 * (W_k x_k + b_k) + x_k, where "low_rank" has U_k V_k for W_k.
class MatrixCross : public tessera::sdk::Module {
 public:
  explicit MatrixCross(const tessera::sdk::Setup& setup);

  const std::vector<tessera::sdk::Parameter>& parameters() const override { return described_; }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override {
    joined_.width_of(inputs);
    return {tessera::sdk::Value{width_}};
  }
  void forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& args, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    Floats kept;
    Floats joined;  // several inputs, concatenated
  };
  // Forward keeps W x + b of a layer, and V x (low rank).
  struct Kept {
    float *y, *projected;
  };
  // The gradients of W x + b and of V x in one layer.
  struct Inner {
    float *dy, *dv;
  };
  // A part of a batch, rows [first, first + rows), on the way back. `x0` and `grad`, the gradient of the network's
  // output, are those of the whole batch.
  struct Way {
    const float *x0, *grad;
    float* dx0;  // of the part, written
    const Context& saved;
    int64_t batch, first, rows;
  };
  size_t up(int64_t k) const { return static_cast<size_t>(low_rank_ > 0 ? 2 * k + 1 : k); }  // U_k or W_k
  size_t down(int64_t k) const { return static_cast<size_t>(2 * k); }                        // V_k
  Kept kept_of(float* memory, int64_t rows, int64_t k) const;
  Inner inner(int64_t rows, int64_t k) const;
  void take_weights(std::span<const DLTensor> tensors);
  void list_gradients(const Way& way);
  void back_through(const Way& way, int64_t begin, int64_t end) const;

  tessera::sdk::Host host_;
  const Loops& loops_;
  tessera::sdk::CrossLayers shape_;
  std::vector<tessera::sdk::Parameter> described_;
  int64_t width_, layers_, low_rank_;
  Joined joined_;
  Weights matrices_;  // per layer V_k (low rank only), then U_k or W_k
  ContextPool<Context> contexts_;
  Floats inner_, dout_, dx0_;
  Floats between_;  // inputs of the layers after the first: of forward's blocks, or of a part on the way back
  std::vector<float*> parameters_;
  std::vector<const float*> weights_, biases_;  // a weight per matrix, a bias per layer
  std::vector<Weights::Gradient> gradients_;
};

// Kind "vector": x_{k+1} = x_0 * (x_k . k_k) + b_k + x_k (DCN, 2017). Parameters "k.weight" [N] and "k.bias" [N].
class VectorCross : public tessera::sdk::Module {
 public:
  explicit VectorCross(const tessera::sdk::Setup& setup);

  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override {
    joined_.width_of(inputs);
    return {tessera::sdk::Value{joined_.width()}};
  }
  void forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& args, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    Floats kept;    // inputs of all layers except the first, then x . k of each sample, layer by layer
    Floats joined;  // several inputs, concatenated
  };
  tessera::sdk::Host host_;
  const RowLoops& loops_;
  Joined joined_;
  int64_t layers_;
  std::vector<tessera::sdk::Parameter> parameters_;
  ContextPool<Context> contexts_;
  Floats grad_;
  std::vector<float*> weights_, gradients_;
};

class Cross : public EitherLayer {
 public:
  static constexpr bool kPrecision = true;
  static constexpr bool kInt8 = true;
  static constexpr bool kRowByRow = true;
  explicit Cross(const tessera::sdk::Setup& setup);
};

}  // namespace tessera_dense
