// Linear layers with ReLU alone, whole blocks of samples through all of them: what "mlp" is made of, and "experts".
#pragma once

#include <vector>

#include "loops.h"
#include "weights.h"

namespace tessera_dense {

class PlainStack {
 public:
  // `shape` is plain().
  PlainStack(tessera::sdk::Host host, tessera::sdk::MlpLayers shape);

  const tessera::sdk::MlpLayers& shape() const { return shape_; }
  int64_t kept(int64_t batch) const { return batch * shape_.hidden_width(); }

  // Rows of shape().output() values, the next one `stride` floats behind: they may be columns of a wider matrix.
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
    float* const* parameters;  // weight and bias of each layer
    const float* x;            // [batch, shape().input()]
    Rows y;
    float* hidden;  // kept(batch) floats, which forward writes
  };
  void forward(const Pass& pass);
  // A forward that no backward follows: batches of any size without anything made for that size, no memory once a
  // batch as large was there, and the same values for a sample whatever is beside it.
  void infer(const Pass& pass);

  struct Gradients {
    ConstRows y;               // of the pass
    float* const* parameters;  // as those of the pass: added to
    float* x;                  // written; NULL: not wanted
    bool add;                  // to `x`, which has something
  };
  // `pass` as forward had it.
  void backward(const Pass& pass, const Gradients& gradients);

 private:
  // The output of layer `k`: `last` is that of the last one.
  float* values(size_t k, const Pass& pass, float* last) const;
  void multiply_last(const Pass& pass, int64_t begin, int64_t end, const float* from) const;

  tessera::sdk::Host host_;
  const Loops& loops_;
  tessera::sdk::MlpLayers shape_;
  Weights matrices_;
  int64_t products_ = 0;  // of a sample's forward
  Floats last_;           // infer: of the last layer, where its rows are apart
  Floats dz_;             // gradients of all layers' outputs before the ReLU, as `hidden` and the last one's behind
  std::vector<const float*> weights_;
  std::vector<Weights::Gradient> gradients_;
};

}  // namespace tessera_dense
