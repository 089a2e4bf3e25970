// "mlp" in host memory.
#pragma once

#include <memory>
#include <vector>

#include "joined.h"
#include "plain_stack.h"
#include "tessera/sdk/module.h"

namespace tessera_dense {

// An mlp of linear layers with ReLU and nothing else, as the layer of this name.
class PlainMlp : public tessera::sdk::Module {
 public:
  PlainMlp(const tessera::sdk::Setup& setup, const char* name, tessera::sdk::MlpLayers shape,
           std::vector<tessera::sdk::Parameter> parameters);

  const std::vector<tessera::sdk::Parameter>& parameters() const override { return described_; }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override {
    joined_.width_of(inputs);
    return {tessera::sdk::Value{stack_.shape().output()}};
  }
  void forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& args, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    Floats hidden;  // what the stack keeps
    Floats joined;  // several inputs, concatenated
  };
  PlainStack::Pass pass(const JoinedBlocks& inputs, const float* x, const Context& kept);

  tessera::sdk::Host host_;
  PlainStack stack_;
  std::vector<tessera::sdk::Parameter> described_;
  Joined joined_;
  ContextPool<Context> contexts_;
  std::vector<float*> parameters_, gradients_;
};

// A layer with several implementations; its options decide which one runs.
class EitherLayer : public tessera::sdk::Module {
 public:
  const std::vector<tessera::sdk::Parameter>& parameters() const override { return layer_->parameters(); }
  const std::vector<tessera::sdk::Parameter>& buffers() const override { return layer_->buffers(); }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override {
    return layer_->outputs(inputs);
  }
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override {
    layer_->forward(call, context);
  }
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override {
    layer_->backward(call, context);
  }
  void release(tsr_module_context* context) noexcept override { layer_->release(context); }

 protected:
  explicit EitherLayer(std::unique_ptr<tessera::sdk::Module> layer) : layer_(std::move(layer)) {}

 private:
  std::unique_ptr<tessera::sdk::Module> layer_;
};

class Mlp : public EitherLayer {
 public:
  static constexpr bool kPrecision = true;
  static constexpr bool kInt8 = true;
  static constexpr bool kRowByRow = true;
  explicit Mlp(const tessera::sdk::Setup& setup);
};

class Linear : public EitherLayer {
 public:
  static constexpr bool kPrecision = true;
  static constexpr bool kInt8 = true;
  static constexpr bool kRowByRow = true;
  explicit Linear(const tessera::sdk::Setup& setup);
};

}  // namespace tessera_dense
