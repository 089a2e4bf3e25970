#include "dot_interaction.h"

namespace tessera_dense {

DotInteraction::Shape DotInteraction::shape_of(const tessera::sdk::ModuleCall& call) const {
  if (call.inputs.size() <= 2) return Shape::of(call.inputs);
  const int64_t widths[] = {call.inputs[0].shape[1], pooled_.width_of(call)};
  const int64_t width = Shape::output_width(widths);
  return {call.batch, widths[1] / widths[0], widths[0], width};
}

template <class Body>
void DotInteraction::for_blocks(const tessera::sdk::ModuleCall& call, const Shape& shape, Body&& body) {
  const float* dense = matrix(call.inputs[0], shape.batch, shape.dim, "the dense input");
  const float* pooled = pooled_.rows(call);
  const int64_t scratch = (interaction_scratch(shape.features, shape.dim) + 15) / 16 * 16;
  const int64_t products = (shape.features + 1) * (shape.features + 1) * shape.dim;
  const int64_t block = std::max<int64_t>(1, kProductsWorthAThread / products);
  float* memory = scratch_.at_least(host_, scratch * slots_of(host_, shape.batch, block));
  in_blocks(host_, shape.batch, block, [&](int64_t begin, int64_t end, int64_t slot) {
    body(Interaction{begin, end - begin, shape.features, shape.dim, dense, pooled, memory + slot * scratch});
  });
}

void DotInteraction::forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) {
  const Shape shape = shape_of(args);
  float* output = matrix(args.outputs[0], shape.batch, shape.width, "dot_interaction's output");
  for_blocks(args, shape, [&](const Interaction& block) { loops_.interact(block, output); });
  // Backward needs only the inputs; the context only has to be non-null.
  if (context) *context = reinterpret_cast<tsr_module_context*>(this);
}

void DotInteraction::backward(const tessera::sdk::ModuleCall& args, tsr_module_context*) {
  if (nothing_comes_back(args)) return;
  const Shape shape = shape_of(args);
  const float* grad =
      matrix(args.grad_outputs[0], shape.batch, shape.width, "the gradient of dot_interaction's output");
  constexpr const char* kWhat = "the gradient of dot_interaction's input";
  float* grad_dense = matrix_or_null(args.grad_inputs[0], shape.batch, shape.dim, kWhat);
  float* grad_pooled = pooled_.gradient(args);
  for_blocks(args, shape,
             [&](const Interaction& block) { loops_.interact_backward(block, grad, grad_dense, grad_pooled); });
  if (grad_pooled) pooled_.give(args);
}

}  // namespace tessera_dense
