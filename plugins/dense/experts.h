// Layers of several chains, and layers that multiply by gates: experts, mixture, gate, projection.
#pragma once

#include <memory>
#include <vector>

#include "chain_layer.h"
#include "combine.h"
#include "mlp.h"

namespace tessera_dense {

// The base of "experts", "gate" and "projection": independent chains. Its parameters are those of the first chain, then
// those of the next, and so on.
class Branches : public tessera::sdk::Module {
 public:
  static constexpr bool kRowByRow = true;
  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 protected:
  struct Context {
    Floats kept;
    Floats joined;  // several inputs, concatenated
  };
  explicit Branches(const tessera::sdk::Setup& setup) : host_(setup.host), loops_(choose_loops()) {}
  void add(Chain chain);
  int64_t kept(int64_t batch) const;  // floats that all chains keep
  // Runs chain `i`. `memory` has kept() floats, first those of chain 0.
  void forward_branch(size_t i, const tessera::sdk::ModuleCall& call, bool backward_follows, const float* x, float* y,
                      float* memory);
  void backward_branch(size_t i, const tessera::sdk::ModuleCall& call, const float* x, const float* dy, float* dx,
                       const float* memory);

  tessera::sdk::Host host_;
  const Loops& loops_;
  std::vector<Chain> chains_;
  ContextPool<Context> contexts_;

 private:
  Run run_of(size_t i, const tessera::sdk::ModuleCall& call, bool backward_follows);
  std::vector<size_t> first_parameter_;
  std::vector<tessera::sdk::Parameter> parameters_;
  std::vector<float*> pointers_, gradients_;
};

// "experts": several mlps over the same inputs. The output concatenates theirs: [batch, experts * last width].
class Experts : public EitherLayer {
 public:
  static constexpr bool kPrecision = true;
  static constexpr bool kInt8 = true;
  static constexpr bool kRowByRow = true;
  explicit Experts(const tessera::sdk::Setup& setup);
};

// Experts of linear layers with ReLU.
class PlainExperts : public tessera::sdk::Module {
 public:
  PlainExperts(const tessera::sdk::Setup& setup, const tessera::sdk::MlpLayers& shape, int64_t count);
  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    Floats kept;    // what the stack keeps
    Floats joined;  // several inputs, concatenated
  };
  PlainStack::Pass pass(const JoinedBlocks& inputs, const float* x, const Context& memory);

  tessera::sdk::Host host_;
  Joined joined_;
  PlainStack stack_;
  std::vector<tessera::sdk::Parameter> parameters_;
  ContextPool<Context> contexts_;
  std::vector<float*> pointers_, gradients_;
};

class AnyExperts : public Branches {
 public:
  AnyExperts(const tessera::sdk::Setup& setup, const tessera::sdk::MlpLayers& shape, int64_t count);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;

 private:
  int64_t width() const { return chains_[0].out(); }
  Joined joined_;
  Floats rows_, dx_;
};

// "projection": maps each input to `width` values by a matrix of its own, and concatenates: [batch, inputs * width].
class Projection : public Branches {
 public:
  static constexpr bool kPrecision = true;
  static constexpr bool kInt8 = true;
  explicit Projection(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;

 private:
  std::vector<int64_t> widths_;
  int64_t width_;
  Floats rows_;
};

// "gate": multiplies the first input, [batch, w], by scale * mlp(the other inputs), element by element. A single input
// gates itself.
class Gate : public EitherLayer {
 public:
  static constexpr bool kPrecision = true;
  static constexpr bool kInt8 = true;
  static constexpr bool kRowByRow = true;
  explicit Gate(const tessera::sdk::Setup& setup);
};

// A gate whose mlp has biases, and a sigmoid at its end: a block of samples goes through the whole layer.
class PlainGate : public tessera::sdk::Module {
 public:
  // `widths`: of the inputs, and of the mlp's layers.
  PlainGate(const tessera::sdk::Setup& setup, std::vector<int64_t> widths, const tessera::sdk::MlpLayers& shape);
  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    Floats kept;    // what the stack keeps
    Floats gate;    // [batch, w]
    Floats joined;  // several signals, concatenated
  };
  struct Rows;  // the product with the gate, and its gradients

  tessera::sdk::Host host_;
  const Loops& loops_;
  std::vector<int64_t> widths_;
  float scale_;
  PlainStack stack_;
  std::vector<tessera::sdk::Parameter> parameters_;
  Joined signals_;  // all inputs except the first, or the only one
  ContextPool<Context> contexts_;
  Floats dgate_;
  std::vector<float*> pointers_, gradients_;
};

class AnyGate : public Branches {
 public:
  AnyGate(const tessera::sdk::Setup& setup, std::vector<int64_t> widths, const std::vector<int64_t>& layers);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;

 private:
  std::vector<int64_t> widths_;
  float scale_;
  bool sigmoid_;    // the gate ends with a sigmoid, which is not in the chain
  Joined signals_;  // all inputs except the first, or the only one
  Floats dgate_;
};

// "mixture": from gates [batch, n] and experts [batch, n * w], computes the sum of the experts, each multiplied by its
// gate. The gates are the first input or its softmax ("softmax": true).
class Mixture : public tessera::sdk::Module {
 public:
  static constexpr bool kRowByRow = true;
  explicit Mixture(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  static int64_t width_of(int64_t gates, int64_t experts);

  tessera::sdk::Host host_;
  const RowLoops& loops_;
  bool softmax_;
  ContextPool<Floats> contexts_;  // the softmax of the gates
  Floats dgates_;
};

}  // namespace tessera_dense
