// Code that layers on a device share: the device of a call, memory that grows, a linear layer.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dense/blas.h"
#include "dense/product.h"
#include "kernel/memory.h"
#include "tessera/sdk/layers.h"

namespace tessera::gpu {

#if defined(TESSERA_GPU_CUDA)
inline constexpr int32_t kLayerDevices[] = {kDLCUDA, 0};
#elif defined(TESSERA_GPU_HIP)
inline constexpr int32_t kLayerDevices[] = {kDLROCM, 0};
#else
inline constexpr int32_t kLayerDevices[] = {kDLExtDev, 0};
#endif

// The device of a call's tensors. Throws Failure, which names the layer, for other kinds of devices.
inline DLDevice device_of(const DLTensor& tensor, const char* layer) {
  if (tensor.device.device_type != kLayerDevices[0])
    sdk::fail(TSR_INVALID_ARGUMENT, layer, " on " GPU_VENDOR " devices was given a tensor of DLPack device type ",
              int{tensor.device.device_type});
  return tensor.device;
}

// A buffer of floats on the device, which grows and never shrinks. The first call decides the device.
class DeviceFloats {
 public:
  float* at_least(sdk::Host host, DLDevice device, int64_t count, Stream stream) {
    if (!memory_) memory_.emplace(host, device);
    return static_cast<float*>(memory_->take(static_cast<uint64_t>(count) * sizeof(float), stream));
  }
  float* data() const { return memory_ ? memory_->data<float>() : nullptr; }

 private:
  std::optional<DeviceScratch> memory_;
};

// The device and stream of one call.
struct Call {
  sdk::Host host;
  DLDevice device;
  Stream stream;
};

// Computes products by the vendor's library if it can, otherwise by the kernels here.
class Products {
 public:
  void run(const Call& call, const Product& product) {
    if (!asked_) blas_ = Blas::open();
    asked_ = true;
    if (blas_ != nullptr) {
      constexpr auto kFloats = static_cast<int64_t>(Blas::kWorkspace / sizeof(float));
      if (blas_->multiply(product, workspace_.at_least(call.host, call.device, kFloats, call.stream), call.stream))
        return;
    }
    multiply(product, scratch_.at_least(call.host, call.device, product_scratch(product), call.stream), call.stream);
  }
  // Computes the gradient of the bias, and dz if there is a ReLU.
  void run(const Call& call, const MaskAndSum& mask) {
    mask_and_sum(mask, scratch_.at_least(call.host, call.device, mask_scratch(mask), call.stream), call.stream);
  }

 private:
  bool asked_ = false;
  std::unique_ptr<Blas> blas_;  // for the device of the first call
  DeviceFloats scratch_, workspace_;
};

// y = x W^T + b and its backward. x [batch, in], W [out, in], b [out] or NULL, y [batch, out].
struct Linear {
  int64_t in, out;
  bool relu;

  void forward(const Call& call, int64_t batch, const float* x, const float* w, const float* b, float* y,
               Products& products) const {
    Product p{batch, out, in, x, w, y};
    p.b_transposed = true;
    p.bias = b;
    p.relu = relu;
    products.run(call, p);
  }
  // dz is the gradient of y before the ReLU. grad_x is written (unless NULL); grad_w is added to.
  void backward(const Call& call, int64_t batch, const float* x, const float* w, const float* dz, float* grad_x,
                float* grad_w, Products& products) const {
    if (batch == 0) return;
    Product weights{out, in, batch, dz, x, grad_w};
    weights.a_transposed = true;
    weights.add = true;
    products.run(call, weights);
    if (grad_x != nullptr) products.run(call, Product{batch, in, out, dz, w, grad_x});
  }
};

}  // namespace tessera::gpu
