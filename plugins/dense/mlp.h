// "mlp" in host memory.
#pragma once

#include <memory>
#include <vector>

#include "joined.h"
#include "loops.h"
#include "tessera/sdk/module.h"
#include "weights.h"

namespace tessera_dense {

// Linear layers with ReLU alone, whole blocks of samples through all of them. A forward that no backward follows is
// meant for serving: batches of any size without anything made for that size, no memory once a batch as large was
// there, and the same values for a sample whatever is beside it.
class PlainMlp : public tessera::sdk::Module {
 public:
  PlainMlp(const tessera::sdk::Setup& setup, tessera::sdk::MlpLayers shape);

  const std::vector<tessera::sdk::Parameter>& parameters() const override { return shape_.parameters(); }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override {
    joined_.width_of(inputs);
    return {tessera::sdk::Value{shape_.output()}};
  }
  void forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& args, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    Floats hidden;  // outputs of all layers but the last, one after the other
  };
  void infer(int64_t batch, const float* x, float* output, const Context& memory);
  void take_weights(std::span<const DLTensor> tensors);
  float* values(size_t k, int64_t batch, float* output, const Context& kept) const;

  tessera::sdk::Host host_;
  const Loops& loops_;
  tessera::sdk::MlpLayers shape_;
  Joined joined_;
  Weights matrices_;
  int64_t products_ = 0;  // of a sample's forward
  ContextPool<Context> contexts_;
  Floats dz_;  // gradients of all layers' outputs before the ReLU, as `hidden` and the last one's behind
  std::vector<float*> parameters_;
  std::vector<const float*> weights_, biases_;  // of each layer
  std::vector<Weights::Gradient> gradients_;
};

// A layer that is computed in one of several ways, as its options say.
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
  explicit Mlp(const tessera::sdk::Setup& setup);
};

}  // namespace tessera_dense
