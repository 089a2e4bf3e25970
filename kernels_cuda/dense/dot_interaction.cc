#include "dense/elementwise.h"
#include "dense/modules.h"

namespace tessera::gpu {
namespace {

Interaction interaction_of(const sdk::InteractionShape& shape, std::span<const DLTensor> inputs) {
  return {shape.batch, shape.features, shape.dim, sdk::matrix(inputs[0], shape.batch, shape.dim, "the dense input"),
          sdk::matrix(inputs[1], shape.batch, shape.features * shape.dim, "the pooled input")};
}

}  // namespace

void GpuDotInteraction::forward(const sdk::ModuleCall& args, tsr_module_context** context) {
  const auto shape = sdk::InteractionShape::of(args.inputs);
  float* output = sdk::matrix(args.outputs[0], shape.batch, shape.width, "dot_interaction's output");
  const DeviceScope scope(device_of(args.inputs[0], "dot_interaction").device_id);
  interact(interaction_of(shape, args.inputs), output, static_cast<Stream>(args.stream));
  // Backward needs only the inputs; the context only has to be non-null.
  if (context) *context = reinterpret_cast<tsr_module_context*>(this);
}

void GpuDotInteraction::backward(const sdk::ModuleCall& args, tsr_module_context*) {
  const auto shape = sdk::InteractionShape::of(args.inputs);
  constexpr const char* kWhat = "the gradient of dot_interaction's input";
  const float* grad =
      sdk::matrix(args.grad_outputs[0], shape.batch, shape.width, "the gradient of dot_interaction's output");
  float* grad_dense = sdk::matrix_or_null(args.grad_inputs[0], shape.batch, shape.dim, kWhat);
  float* grad_pooled = sdk::matrix_or_null(args.grad_inputs[1], shape.batch, shape.features * shape.dim, kWhat);
  const DeviceScope scope(device_of(args.inputs[0], "dot_interaction").device_id);
  interact_backward(interaction_of(shape, args.inputs), grad, grad_dense, grad_pooled,
                    static_cast<Stream>(args.stream));
}

}  // namespace tessera::gpu
