// The layers of a DLRM on the device: "mlp", "dot_interaction", "cross". Their results, options and parameters are
// described in tessera/sdk/layers.h. Everything is enqueued, nothing waits, and memory only grows.
#pragma once

#include <vector>

#include "dense/layer.h"

namespace tessera::gpu {

class GpuMlp : public sdk::Module {
 public:
  static constexpr const int32_t* kDeviceTypes = kLayerDevices;
  static constexpr const char* kLayer = "mlp";
  explicit GpuMlp(const sdk::Setup& setup);
  static void probe(sdk::Host) { require_device(); }

  const std::vector<sdk::Parameter>& parameters() const override { return shape_.parameters(); }
  std::vector<sdk::Value> outputs(std::span<const sdk::Value> inputs) const override { return shape_.outputs(inputs); }
  void forward(const sdk::ModuleCall& args, tsr_module_context** context) override;
  void backward(const sdk::ModuleCall& args, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    DeviceFloats hidden;  // outputs of all layers except the last, one after the other
  };
  sdk::Host host_;
  sdk::MlpLayers shape_;
  std::vector<Linear> layers_;
  sdk::ContextPool<Context> contexts_;
  DeviceFloats dz_, dx_;  // gradients between layers
  Products products_;
  std::vector<float*> weights_, gradients_;
};

class GpuDotInteraction : public sdk::Module {
 public:
  static constexpr const int32_t* kDeviceTypes = kLayerDevices;
  static constexpr const char* kLayer = "dot_interaction";
  static void probe(sdk::Host) { require_device(); }

  std::vector<sdk::Value> outputs(std::span<const sdk::Value> inputs) const override {
    return sdk::InteractionShape::outputs(inputs);
  }
  void forward(const sdk::ModuleCall& args, tsr_module_context** context) override;
  void backward(const sdk::ModuleCall& args, tsr_module_context* context) override;
};

class GpuCross : public sdk::Module {
 public:
  static constexpr const int32_t* kDeviceTypes = kLayerDevices;
  static constexpr const char* kLayer = "cross";
  explicit GpuCross(const sdk::Setup& setup);
  static void probe(sdk::Host) { require_device(); }

  const std::vector<sdk::Parameter>& parameters() const override { return shape_.parameters(); }
  std::vector<sdk::Value> outputs(std::span<const sdk::Value> inputs) const override { return shape_.outputs(inputs); }
  void forward(const sdk::ModuleCall& args, tsr_module_context** context) override;
  void backward(const sdk::ModuleCall& args, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    DeviceFloats kept;
  };
  void backward_layer(const Call& call, int64_t batch, int64_t k, const sdk::CrossLayers::Kept& kept, const float* x,
                      const float* dy, float* dx);

  sdk::Host host_;
  sdk::CrossLayers shape_;
  Linear down_, up_;  // V_k (low rank only), and W_k or U_k
  sdk::ContextPool<Context> contexts_;
  DeviceFloats dy_, dx_, dout_, dx0_, dv_;
  Products products_;
  std::vector<float*> weights_, gradients_;
};

}  // namespace tessera::gpu
