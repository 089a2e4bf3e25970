// "bilinear": computes one value from two vectors.
#pragma once

#include <vector>

#include "joined.h"
#include "loops.h"
#include "weights.h"

namespace tessera_dense {

// w_x . x + b_x + w_y . y + b_y + sum over heads h of x_h W_h y_h, where x_h and y_h are the h-th of `heads` equal
// parts: the fusion of FinalMLP's two streams (Mao et al., 2023). Options: "inputs", two widths; "heads" (1), which
// divides both. Parameters "x.weight" [1, a], "x.bias" [1], "y.weight" [1, b], "y.bias" [1], "xy.weight" [heads, a /
// heads, b / heads].
class Bilinear : public tessera::sdk::Module {
 public:
  static constexpr bool kRowByRow = true;
  explicit Bilinear(const tessera::sdk::Setup& setup);

  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    Floats turned;  // x_h W_h of all heads, concatenated: [batch, b]
  };
  const float* input(const tessera::sdk::ModuleCall& call, size_t i) const;
  void add_linear(size_t first, int64_t width, int64_t batch, const float* x, const float* grad) const;
  const float* weights(int64_t head, const std::vector<float*>& of) const { return of[4] + head * part_[0] * part_[1]; }

  tessera::sdk::Host host_;
  const RowLoops& loops_;
  std::vector<int64_t> widths_;
  int64_t heads_, part_[2];  // widths of a head's parts of x and of y
  std::vector<tessera::sdk::Parameter> parameters_;
  ContextPool<Context> contexts_;
  Floats dturned_;
  std::vector<float*> pointers_, gradients_;
};

}  // namespace tessera_dense
