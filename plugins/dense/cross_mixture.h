// "cross" of kind "mixture": several low-rank experts in every layer (DCN V2, section 3.4).
#pragma once

#include <vector>

#include "joined.h"
#include "loops.h"
#include "weights.h"

namespace tessera_dense {

// Expert e in layer k: h = f(V x), a = f(C h), u = U a; x_{k+1} = x_0 * (sum over e of gate_e u_e + b) + x_k. The gates
// are the softmax of G x_k, with one G for all layers; a single expert has no gate. Parameters "k.u.weight" [experts,
// N, rank], "k.v.weight" [experts, rank, N], "k.c.weight" [experts, rank, rank], "k.bias" [N] and, for several experts,
// "gates.weight" [experts, N].
class MixtureCross : public tessera::sdk::Module {
 public:
  explicit MixtureCross(const tessera::sdk::Setup& setup);

  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override {
    joined_.width_of(inputs);
    return {tessera::sdk::Value{width_}};
  }
  void forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& args, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  // A layer's state from forward: its output, V x, C h, h and a (multiplied by its gate), the gates, and the sum with
  // the bias.
  struct Kept {
    float *next, *v, *c, *h, *a, *gates, *sum;
  };
  struct Context {
    Floats kept;
    Floats joined;  // several inputs, concatenated
  };
  // Arguments of backward for one layer.
  struct Back {
    const float *x0, *x;
    float *dout, *dx0;  // gradient of its output, later of its input; gradient of x0
    Kept kept;
  };
  struct LayerWeights {
    float *u, *v, *c, *b;
  };
  int64_t kept_floats(int64_t batch) const { return batch * (2 * width_ + 4 * stacked_ + experts_); }
  Kept kept(float* memory, int64_t batch, int64_t k) const;
  LayerWeights layer(const std::vector<float*>& of, int64_t k) const;
  void forward_rows(const float* x0, const float* x, const LayerWeights& w, const Kept& kept, int64_t begin,
                    int64_t rows) const;
  void backward_layer(const Back& back, int64_t batch, int64_t k);
  void backward_rows(const Back& back, const LayerWeights& w, int64_t begin, int64_t rows) const;
  void add_weight_gradients(const Back& back, int64_t batch, int64_t k) const;

  tessera::sdk::Host host_;
  const RowLoops& loops_;
  int64_t width_, layers_, experts_, rank_, stacked_;  // stacked: experts * rank
  Activation f_;
  Joined joined_;
  std::vector<tessera::sdk::Parameter> parameters_;
  ContextPool<Context> contexts_;
  Floats dout_, dy_, dc_, dv_, weighed_, dgates_, dx0_;
  std::vector<float*> weights_, gradients_;
};

}  // namespace tessera_dense
