// "cross": the cross network of DCN-v2.
#pragma once

#include <vector>

#include "linear.h"
#include "loops.h"
#include "support.h"
#include "tessera/sdk/module.h"

namespace tessera_dense {

// x_{k+1} = x_0 * (W_k x_k + b_k) + x_k, the product elementwise (Wang et al., DCN V2, 2021); with low_rank r > 0,
// W_k = U_k V_k. Options: {"width": N, "layers": 3, "low_rank": 0}. One input [batch, N], output [batch, N]. Parameters
// of layer k: "k.weight" [N, N] and "k.bias" [N]; with low_rank "k.v.weight" [r, N], "k.weight" [N, r], "k.bias" [N].
class Cross : public tessera::sdk::Module {
 public:
  explicit Cross(const tessera::sdk::Setup& setup);

  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  int64_t output_width(std::span<const int64_t> widths) const override;
  void forward(const tessera::sdk::ModuleForward& args, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleBackward& args, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    Floats kept;
  };
  // What forward keeps of layer k: its input (k > 0), V x (low rank) and W x + b.
  struct Kept {
    float *x, *projected, *y;
  };
  Kept kept_of(const Context& context, int64_t batch, int64_t k) const;
  int64_t kept_floats(int64_t batch) const { return batch * layers_ * (2 * width_ + low_rank_); }
  // Parameters of one layer begin here.
  size_t first_parameter(int64_t k) const { return static_cast<size_t>(k) * (low_rank_ > 0 ? 3 : 2); }
  void backward_layer(int64_t batch, int64_t k, const Kept& kept, const float* x, const float* dy, float* dx);

  tessera::sdk::Host host_;
  const Loops& loops_;
  int64_t width_, layers_, low_rank_;
  std::vector<Linear> down_, up_;  // V_k (low rank only), and W_k or U_k
  std::vector<tessera::sdk::Parameter> parameters_;
  ContextPool<Context> contexts_;
  Floats dy_, dx_, dout_, dx0_, dv_;
  std::vector<float*> weights_, gradients_;
};

}  // namespace tessera_dense
