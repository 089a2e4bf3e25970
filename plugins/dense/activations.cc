// Activations and softmax.
#include <cmath>

#include "piece.h"
#include "tessera/sdk/nearest.h"

namespace tessera_dense {
namespace {

struct ActivationName {
  const char* name;
  Activation f;
};
// elu: Clevert et al., 2016, with alpha 1; selu: Klambauer et al., 2017; mish, x * tanh(softplus(x)): Misra, 2019.
constexpr ActivationName kActivations[] = {
    {"none", Activation::kNone},         {"relu", Activation::kRelu}, {"leaky_relu", Activation::kLeakyRelu},
    {"sigmoid", Activation::kSigmoid},   {"tanh", Activation::kTanh}, {"gelu", Activation::kGelu},
    {"silu", Activation::kSilu},         {"elu", Activation::kElu},   {"selu", Activation::kSelu},
    {"softplus", Activation::kSoftplus}, {"mish", Activation::kMish}};

class ActivationPiece : public Piece {
 public:
  ActivationPiece(tessera::sdk::Host host, int64_t width, Activation f, double slope)
      : Piece(width, width), host_(host), loops_(*choose_loops().of_rows), f_(f), slope_(static_cast<float>(slope)) {}

  void forward(const Run& run, const float* x, float* y, float*) override {
    in_blocks(host_, run.batch * in(), kValuesWorthAThread, [&](int64_t begin, int64_t end, int64_t) {
      loops_.activate(f_, end - begin, slope_, x + begin, y + begin);
    });
  }
  void backward(const Run& run, const float* x, const float* dy, float* dx, const float*) override {
    if (!dx) return;
    in_blocks(host_, run.batch * in(), kValuesWorthAThread, [&](int64_t begin, int64_t end, int64_t) {
      loops_.activate_back(f_, end - begin, slope_, x + begin, dy + begin, dx + begin);
    });
  }

 private:
  tessera::sdk::Host host_;
  const RowLoops& loops_;
  Activation f_;
  float slope_;
};

class AffinePiece : public Piece {
 public:
  AffinePiece(int64_t width, double factor, double offset)
      : Piece(width, width), factor_(static_cast<float>(factor)), offset_(static_cast<float>(offset)) {}

  void forward(const Run& run, const float* x, float* y, float*) override {
    const int64_t n = run.batch * in();
    for (int64_t i = 0; i < n; ++i) y[i] = factor_ * x[i] + offset_;
  }
  void backward(const Run& run, const float*, const float* dy, float* dx, const float*) override {
    if (!dx) return;
    const int64_t n = run.batch * in();
    for (int64_t i = 0; i < n; ++i) dx[i] = factor_ * dy[i];
  }

 private:
  float factor_, offset_;
};

// max(0, x) + a min(0, x), with one trained `a`: PyTorch's PReLU.
class PreluPiece : public Piece {
 public:
  explicit PreluPiece(int64_t width) : Piece(width, width), loops_(*choose_loops().of_rows) {
    parameters_.push_back({"weight", {1}, tessera::sdk::constant(0.25)});
  }
  void forward(const Run& run, const float* x, float* y, float*) override {
    loops_.activate(Activation::kLeakyRelu, run.batch * in(), run.parameters[0][0], x, y);
  }
  void backward(const Run& run, const float* x, const float* dy, float* dx, const float*) override {
    const double of_slope = loops_.leaky_back(run.batch * in(), run.parameters[0][0], x, dy, dx);
    run.gradients[0][0] += static_cast<float>(of_slope);
  }

 private:
  const RowLoops& loops_;
};

class SoftmaxPiece : public Piece {
 public:
  explicit SoftmaxPiece(int64_t width) : Piece(width, width), loops_(*choose_loops().of_rows) {}
  int64_t kept(int64_t batch) const override { return batch * out(); }
  void forward(const Run& run, const float* x, float* y, float* kept) override {
    loops_.softmax(run.batch, in(), x, y);
    std::copy_n(y, run.batch * in(), kept);
  }
  void backward(const Run& run, const float*, const float* dy, float* dx, const float* kept) override {
    if (dx) loops_.softmax_back(run.batch, in(), kept, dy, dx);
  }

 private:
  const RowLoops& loops_;
};

[[noreturn]] void refuse_activation(const char* layer, const std::string& name) {
  std::vector<std::string> known;
  for (const ActivationName& a : kActivations) known.emplace_back(a.name);
  known.insert(known.end(), {"prelu", "swish_layernorm", kDice});
  tessera::sdk::fail(TSR_INVALID_ARGUMENT, layer, ": ", tessera::sdk::unknown_name("activation", name, known), " of ",
                     tessera::sdk::joined(known));
}

}  // namespace

std::unique_ptr<Piece> make_activation(tessera::sdk::Host host, const char* layer, const std::string& name,
                                       int64_t width, double slope) {
  for (const ActivationName& a : kActivations) {
    if (name == a.name) return std::make_unique<ActivationPiece>(host, width, a.f, slope);
  }
  if (name == "prelu") return std::make_unique<PreluPiece>(width);
  if (name == "swish_layernorm") return make_swish_layer_norm(host, width, 1e-5);
  if (name == kDice)
    tessera::sdk::fail(TSR_INVALID_ARGUMENT, layer, ": ", kDice,
                       " adds up over the ranks, which this layer does not: use the layer \"", kDice,
                       "\" instead of it or after it, or another activation");
  refuse_activation(layer, name);
}

std::unique_ptr<Piece> make_affine(int64_t width, double factor, double offset) {
  return std::make_unique<AffinePiece>(width, factor, offset);
}

std::unique_ptr<Piece> make_softmax(int64_t width) { return std::make_unique<SoftmaxPiece>(width); }

}  // namespace tessera_dense
