// Linear layers with ReLU: whole blocks of samples go through all layers. "mlp" and "experts" are built from it.
#pragma once

#include <vector>

#include "joined.h"
#include "loops.h"
#include "weights.h"

namespace tessera_dense {

class PlainStack {
 public:
  // `shape` must be plain().
  PlainStack(tessera::sdk::Host host, tessera::sdk::MlpLayers shape, Precision precision);

  const tessera::sdk::MlpLayers& shape() const { return shape_; }
  int64_t kept(int64_t batch) const { return batch * shape_.hidden_width(); }

  // Rows of shape().output() values, each `stride` floats after the previous one: they may be columns of a wider
  // matrix.
  struct Rows {
    float* data;
    int64_t stride;
  };
  struct ConstRows {
    const float* data;
    int64_t stride;
  };
  struct Pass {
    int64_t batch;
    float* const* parameters;  // weight and bias per layer
    const float* x;            // [batch, shape().input()]
    Rows y;
    float* hidden;                         // kept(batch) floats, written by forward
    const JoinedBlocks* inputs = nullptr;  // of x, which they write, and of its gradient; NULL: x is there
  };
  // Stacks of one shape, each with its pass over the same x, go forward side by side. The first pass has the inputs.
  static void forward(std::span<PlainStack> stacks, std::span<const Pass> passes);
  // A forward without a backward. It accepts batches of any size without preparation, allocates nothing once it has
  // seen the largest batch, and gives a sample the same values in every batch.
  void infer(const Pass& pass);

  struct Gradients {
    ConstRows y;               // of the pass
    float* const* parameters;  // like those of the pass; gradients are added
    float* x;                  // written; NULL if not wanted
    bool add;                  // add to `x` instead
  };
  // `passes` must be those of the forward.
  static void backward(std::span<PlainStack> stacks, std::span<const Pass> passes,
                       std::span<const Gradients> gradients);

 private:
  // The output of layer `k`; `last` is the output of the last layer.
  float* values(size_t k, const Pass& pass, float* last) const;
  void take_weights(const Pass& pass);
  void forward_rows(const Pass& pass, int64_t begin, int64_t end) const;
  void start_backward(const Pass& pass, const Gradients& gradients);
  void backward_rows(const Pass& pass, const Gradients& gradients, int64_t begin, int64_t end) const;
  void multiply_last(const Pass& pass, int64_t begin, int64_t end, const float* from) const;

  tessera::sdk::Host host_;
  const Loops& loops_;
  tessera::sdk::MlpLayers shape_;
  Weights matrices_;
  int64_t products_ = 0;  // multiplications of a sample's forward
  Floats last_;           // infer: output of the last layer, if its rows are not contiguous
  Floats dz_;             // gradients of all layers' outputs before the ReLU: as in `hidden`, then the last layer's
  std::vector<const float*> weights_;
  std::vector<Weights::Gradient> gradients_;
};

}  // namespace tessera_dense
