// A piece of a layer maps rows to rows, forward and backward. A Chain runs several pieces in sequence.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bf16_products.h"
#include "loops.h"
#include "support.h"

namespace tessera_dense {

// One run over `batch` rows. `parameters`, `gradients` (backward only) and `buffers` are the piece's own.
struct Run {
  const tessera::sdk::ModuleCall& call;
  int64_t batch;
  float* const* parameters;
  float* const* gradients;
  const DLTensor* buffers;
  bool backward_follows;
};

class Piece {
 public:
  Piece(int64_t in, int64_t out) : in_(in), out_(out) {}
  virtual ~Piece() = default;
  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  const std::vector<tessera::sdk::Parameter>& parameters() const { return parameters_; }
  const std::vector<tessera::sdk::Parameter>& buffers() const { return buffers_; }
  // Floats that forward leaves for backward, in addition to x and y.
  virtual int64_t kept(int64_t /*batch*/) const { return 0; }
  // x [batch, in], y [batch, out]
  virtual void forward(const Run& run, const float* x, float* y, float* kept) = 0;
  // Adds to the gradients of the parameters, and writes dx unless it is NULL. dx may not be dy.
  virtual void backward(const Run& run, const float* x, const float* dy, float* dx, const float* kept) = 0;

 protected:
  std::vector<tessera::sdk::Parameter> parameters_, buffers_;

 private:
  int64_t in_, out_;
};

// `init_std`: standard deviation of the initial weights, from read_init_std().
std::unique_ptr<Piece> make_linear(tessera::sdk::Host host, int64_t in, int64_t out, bool bias, Precision precision,
                                   double init_std = 0);
// Accepts the names of docs/layers.md except kDice. For any other name it throws Failure, which names `layer`.
std::unique_ptr<Piece> make_activation(tessera::sdk::Host host, const char* layer, const std::string& name,
                                       int64_t width, double slope = 0.01);
std::unique_ptr<Piece> make_layer_norm(tessera::sdk::Host host, int64_t width, double eps);
// Layer norm of each of `groups` equal parts of a row. Each part has one weight and one bias, unless `weights` is
// false.
std::unique_ptr<Piece> make_group_norm(tessera::sdk::Host host, int64_t width, int64_t groups, double eps,
                                       bool weights);
std::unique_ptr<Piece> make_l2_norm(tessera::sdk::Host host, int64_t width, double eps);
std::unique_ptr<Piece> make_swish_layer_norm(tessera::sdk::Host host, int64_t width, double eps);
// These two need sums over ranks.
std::unique_ptr<Piece> make_batch_norm(int64_t width, double eps, double momentum);
inline constexpr const char* kDice = "dice";
std::unique_ptr<Piece> make_dice(tessera::sdk::Host host, int64_t width, double eps, double momentum);
// `number` differs for each dropout of a layer, so that no two drop the same elements.
std::unique_ptr<Piece> make_dropout(tessera::sdk::Host host, int64_t width, double rate, uint64_t number);
std::unique_ptr<Piece> make_affine(int64_t width, double factor, double offset);
std::unique_ptr<Piece> make_softmax(int64_t width);

// Pieces in sequence; each is as wide as the output of the one before it.
class Chain {
 public:
  explicit Chain(tessera::sdk::Host host) : host_(host) {}
  // Adds a piece, with `prefix` before the names of its parameters.
  void add(std::unique_ptr<Piece> piece, const std::string& prefix);

  int64_t in() const { return pieces_.front()->in(); }
  int64_t out() const { return pieces_.back()->out(); }
  const std::vector<tessera::sdk::Parameter>& parameters() const { return parameters_; }
  const std::vector<tessera::sdk::Parameter>& buffers() const { return buffers_; }

  // Floats of memory that forward writes and backward reads.
  int64_t kept(int64_t batch) const;
  // `run` has the parameters and buffers of all pieces, in order.
  void forward(const Run& run, const float* x, float* y, float* memory);
  void backward(const Run& run, const float* x, const float* dy, float* dx, const float* memory);

 private:
  Run of_piece(const Run& run, size_t i) const;

  tessera::sdk::Host host_;
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::vector<size_t> first_parameter_, first_buffer_;
  std::vector<tessera::sdk::Parameter> parameters_, buffers_;
  Floats gradients_[2];  // gradients between pieces
};

}  // namespace tessera_dense
