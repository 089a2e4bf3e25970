// The piece y = x W^T + b. Parameters "weight" [out, in] and "bias" [out].
#include "piece.h"
#include "tessera/sdk/layers.h"
#include "weights.h"

namespace tessera_dense {
namespace {

class LinearPiece : public Piece {
 public:
  LinearPiece(tessera::sdk::Host host, int64_t in, int64_t out, bool bias, Precision precision, double init_std)
      : Piece(in, out), host_(host), loops_(choose_loops()), bias_(bias), weights_(host, precision) {
    weights_.add(in, out);
    parameters_.push_back({"weight", {out, in}, tessera::sdk::matrix_init(init_std, out, in)});
    if (bias)
      parameters_.push_back({"bias", {out}});
    else
      zeros_.resize(static_cast<size_t>(out));
    mark_int8(precision, parameters_);
  }

  void forward(const Run& run, const float* x, float* y, float*) override {
    const float* w = run.parameters[0];
    const float* b = bias_ ? run.parameters[1] : zeros_.data();
    if (!run.backward_follows && !weights_.rounds(0)) return infer(run.batch, x, w, b, y);
    weights_.prepare(loops_, {{w}});
    in_blocks(host_, run.batch, weights_.block(run.batch), [&](int64_t begin, int64_t end, int64_t) {
      const OneThread alone;
      weights_.multiply(loops_, 0, end - begin, x + begin * in(), in(), y + begin * out(), out());
      if (bias_) loops_.add_bias(end - begin, out(), b, false, y + begin * out());
    });
  }

  void backward(const Run& run, const float* x, const float* dy, float* dx, const float*) override {
    const Weights::Gradient gradient{x, in(), dy, out(), run.gradients[0], bias_ ? run.gradients[1] : nullptr};
    weights_.start_gradients(run.batch);
    if (dx || weights_.rounds(0)) {
      in_blocks(host_, run.batch, weights_.block(run.batch), [&](int64_t begin, int64_t end, int64_t) {
        const OneThread alone;
        if (dx)
          weights_.multiply_back(loops_, 0, end - begin, dy + begin * out(), out(), dx + begin * in(), in(), false);
        weights_.take_rows(loops_, run.batch, begin, end, {{gradient}});
      });
    }
    weights_.add_gradients(loops_, run.batch, {{gradient}});
  }

 private:
  // Gives a sample the same values whatever the other samples are.
  void infer(int64_t batch, const float* x, const float* w, const float* b, float* y) const {
    in_blocks(host_, batch, weights_.block(batch), [&](int64_t begin, int64_t end, int64_t) {
      loops_.affine({begin, end - begin, in(), out(), x, in(), w, b, y, out(), false});
    });
  }

  tessera::sdk::Host host_;
  const Loops& loops_;
  bool bias_;
  Weights weights_;
  std::vector<float> zeros_;  // used if there is no bias
};

}  // namespace

std::unique_ptr<Piece> make_linear(tessera::sdk::Host host, int64_t in, int64_t out, bool bias, Precision precision,
                                   double init_std) {
  return std::make_unique<LinearPiece>(host, in, out, bias, precision, init_std);
}

}  // namespace tessera_dense
