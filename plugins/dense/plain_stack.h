// Linear layers with ReLU: a block of samples goes through all layers before the next block. The base of "mlp" and
// "experts".
#pragma once

#include <vector>

#include "joined.h"
#include "loops.h"
#include "weights.h"

namespace tessera_dense {

// The layers have these widths, the input's first, and ReLU between them.
tessera::sdk::MlpLayers plain_layers(const std::vector<int64_t>& widths);

class PlainStack {
 public:
  // `shape` must be plain(). Several experts are as many stacks of this shape over the same x. Rows of their values are
  // side by side, and their first layers are one product.
  PlainStack(tessera::sdk::Host host, tessera::sdk::MlpLayers shape, Precision precision, int64_t experts = 1);

  const tessera::sdk::MlpLayers& shape() const { return shape_; }
  int64_t output() const { return experts_ * shape_.output(); }
  int64_t kept(int64_t batch) const { return batch * experts_ * shape_.hidden_width(); }

  // A layer does more work on the same rows, while they are in the caches. [any-thread]
  struct Around {
    virtual void after_forward(int64_t begin, int64_t end) const = 0;
    virtual void before_backward(int64_t begin, int64_t end) const = 0;

   protected:
    ~Around() = default;
  };
  struct Pass {
    int64_t batch;
    float* const* parameters;  // weight and bias per layer, of one expert after the other
    const float* x;            // [batch, shape().input()]
    float* y;                  // [batch, output()]
    float* hidden;             // kept(batch) floats, written by forward
    JoinedBlocks inputs;       // writes x block by block, and takes its gradient
    const Around* around = nullptr;
  };
  void forward(const Pass& pass);
  // Runs forward if no backward follows. Batches may have any size. It allocates nothing after the largest batch, and
  // gives a sample the same values in every batch.
  void infer(const Pass& pass);

  struct Gradients {
    const float* y;            // gradient of Pass::y, read
    float* const* parameters;  // gradients of Pass::parameters, added to
  };
  // `pass` must be that of forward().
  void backward(const Pass& pass, const Gradients& gradients);

 private:
  // A sample's input of layer `k` has in(k) values, and its output out(k).
  int64_t in(size_t k) const { return k == 0 ? shape_.in(0) : experts_ * shape_.in(k); }
  int64_t out(size_t k) const { return experts_ * shape_.out(k); }
  // The output of layer `k` in `memory`, which has those of all layers for `rows` rows, one after the other.
  float* place(float* memory, int64_t rows, size_t k) const { return shape_.hidden(memory, experts_ * rows, k); }
  float* values(const Pass& pass, size_t k) const {
    return k + 1 == shape_.count() ? pass.y : place(pass.hidden, pass.batch, k);
  }
  // Index of a layer's weight in Pass::parameters; its bias follows.
  size_t weight(size_t k, int64_t expert) const { return 2 * (static_cast<size_t>(expert) * shape_.count() + k); }
  // Calls body(i, in, out) for each matrix of layer `k`: its index, and the columns of its input and output.
  template <class Body>
  void for_matrices(size_t k, const Body& body) const {
    if (k == 0) return body(size_t{0}, 0, 0);
    for (int64_t e = 0; e < experts_; ++e)
      body(1 + (k - 1) * static_cast<size_t>(experts_) + static_cast<size_t>(e), e * shape_.in(k), e * shape_.out(k));
  }
  void take_parameters(const Pass& pass);
  void infer_rows(const Pass& pass, int64_t begin, int64_t end) const;
  void forward_rows(const Pass& pass, int64_t begin, int64_t end) const;
  // Rows [first, first + rows) of a batch, one of its Weights::part().
  struct Part {
    int64_t first, rows;
  };
  void start_part(const Pass& pass, const Gradients& gradients, const Part& part);
  void backward_rows(const Pass& pass, const Gradients& gradients, const Part& part, int64_t begin, int64_t end) const;

  tessera::sdk::Host host_;
  const Loops& loops_;
  tessera::sdk::MlpLayers shape_;
  int64_t experts_;
  Weights matrices_;     // those of the first layer as one, then those of the next, expert by expert
  Floats dz_;            // of a part: gradients of all layers' outputs before the ReLU
  float* dx_ = nullptr;  // of a part: the gradient of Pass::x; NULL if not wanted
  std::vector<const float*> weights_;
  std::vector<std::vector<float>> joined_biases_;  // per layer, of several experts
  std::vector<const float*> biases_;               // per layer
  std::vector<Weights::Gradient> gradients_;       // of a part
};

}  // namespace tessera_dense
