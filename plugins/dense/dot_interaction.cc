#include "dot_interaction.h"

namespace tessera_dense {

template <class Body>
void DotInteraction::for_blocks(std::span<const DLTensor> inputs, const Shape& shape, Body&& body) {
  const float* dense = matrix(inputs[0], shape.batch, shape.dim, "the dense input");
  const float* pooled = matrix(inputs[1], shape.batch, shape.features * shape.dim, "the pooled input");
  const int64_t scratch = (interaction_scratch(shape.features, shape.dim) + 15) / 16 * 16;
  const int64_t products = (shape.features + 1) * (shape.features + 1) * shape.dim;
  const int64_t block = std::max<int64_t>(1, kProductsWorthAThread / products);
  float* memory = scratch_.at_least(host_, scratch * slots_of(host_, shape.batch, block));
  in_blocks(host_, shape.batch, block, [&](int64_t begin, int64_t end, int64_t slot) {
    body(Interaction{begin, end - begin, shape.features, shape.dim, dense, pooled, memory + slot * scratch});
  });
}

void DotInteraction::forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) {
  const Shape shape = Shape::of(args.inputs);
  float* output = matrix(args.outputs[0], shape.batch, shape.width, "dot_interaction's output");
  for_blocks(args.inputs, shape, [&](const Interaction& block) { loops_.interact(block, output); });
  // Backward needs the inputs alone; the context only has to be one.
  if (context) *context = reinterpret_cast<tsr_module_context*>(this);
}

void DotInteraction::backward(const tessera::sdk::ModuleCall& args, tsr_module_context*) {
  const Shape shape = Shape::of(args.inputs);
  const float* grad =
      matrix(args.grad_outputs[0], shape.batch, shape.width, "the gradient of dot_interaction's output");
  constexpr const char* kWhat = "the gradient of dot_interaction's input";
  float* grad_dense = matrix_or_null(args.grad_inputs[0], shape.batch, shape.dim, kWhat);
  float* grad_pooled = matrix_or_null(args.grad_inputs[1], shape.batch, shape.features * shape.dim, kWhat);
  for_blocks(args.inputs, shape,
             [&](const Interaction& block) { loops_.interact_backward(block, grad, grad_dense, grad_pooled); });
}

}  // namespace tessera_dense
