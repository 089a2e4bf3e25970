// Linear layers with ReLU: a block of samples goes through all layers before the next block. The base of "mlp" and
// "experts".
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

  // Rows of shape().output() values, each `stride` floats after the one before. They may be columns of a wider matrix.
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
    const JoinedBlocks* inputs = nullptr;  // writes x block by block, and takes its gradient; NULL: x is complete
  };
  // Runs stacks of one shape forward over the same x, each with its own pass. Only passes[0].inputs is used.
  static void forward(std::span<PlainStack> stacks, std::span<const Pass> passes);
  // Runs forward if no backward follows. Batches may have any size. It allocates nothing after the largest batch, and
  // gives a sample the same values in every batch.
  void infer(const Pass& pass);

  struct Gradients {
    ConstRows y;               // gradient of Pass::y, read
    float* const* parameters;  // gradients of Pass::parameters, added to
    float* x;                  // gradient of Pass::x, written; NULL if not wanted
    bool add;                  // adds to `x` instead of writing it
  };
  // `passes` must be those of forward().
  static void backward(std::span<PlainStack> stacks, std::span<const Pass> passes,
                       std::span<const Gradients> gradients);

 private:
  // The output of layer `k`, which for the last layer is `last`.
  float* values(size_t k, const Pass& pass, float* last) const;
  void take_weights(const Pass& pass);
  void forward_rows(const Pass& pass, int64_t begin, int64_t end) const;
  // Rows [first, first + rows) of a batch, one of its Weights::part().
  struct Part {
    int64_t first, rows;
  };
  void start_part(const Pass& pass, const Gradients& gradients, const Part& part);
  void backward_rows(const Pass& pass, const Gradients& gradients, const Part& part, int64_t begin, int64_t end) const;
  void multiply_last(const Pass& pass, int64_t begin, int64_t end, const float* from) const;

  tessera::sdk::Host host_;
  const Loops& loops_;
  tessera::sdk::MlpLayers shape_;
  Weights matrices_;
  int64_t products_ = 0;  // multiplications in forward for one sample
  Floats last_;           // for infer(): the last layer's output, if the rows of Pass::y are not contiguous
  Floats dz_;  // of a part: gradients of the outputs before the ReLU, of the hidden layers, then of the last one
  std::vector<const float*> weights_;
  std::vector<Weights::Gradient> gradients_;  // of a part
};

}  // namespace tessera_dense
