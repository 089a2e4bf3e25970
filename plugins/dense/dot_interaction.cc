#include "dot_interaction.h"

namespace tessera_dense {

template <class Body>
void DotInteraction::for_chunks(std::span<const DLTensor> inputs, const Shape& shape, Body&& body) {
  const float* dense = matrix(inputs[0], shape.batch, shape.dim, "the dense input");
  const float* pooled = matrix(inputs[1], shape.batch, shape.features * shape.dim, "the pooled input");
  const int64_t scratch = (interaction_scratch(shape.features, shape.dim) + 15) / 16 * 16;
  float* memory = scratch_.at_least(host_, scratch * host_.num_threads());
  in_chunks(host_, shape.batch, 1, [&](int64_t begin, int64_t end, int64_t chunk) {
    body(Interaction{begin, end - begin, shape.features, shape.dim, dense, pooled, memory + chunk * scratch});
  });
}

void DotInteraction::forward(const tessera::sdk::ModuleForward& args, tsr_module_context** context) {
  const Shape shape = Shape::of(args.inputs);
  float* output = matrix(args.output, shape.batch, shape.width, "dot_interaction's output");
  for_chunks(args.inputs, shape, [&](const Interaction& chunk) { loops_.interact(chunk, output); });
  // Backward needs the inputs alone; the context only has to be one.
  if (context) *context = reinterpret_cast<tsr_module_context*>(this);
}

void DotInteraction::backward(const tessera::sdk::ModuleBackward& args, tsr_module_context*) {
  const Shape shape = Shape::of(args.inputs);
  const float* grad = matrix(args.grad_output, shape.batch, shape.width, "the gradient of dot_interaction's output");
  constexpr const char* kWhat = "the gradient of dot_interaction's input";
  float* grad_dense = matrix_or_null(args.grad_inputs[0], shape.batch, shape.dim, kWhat);
  float* grad_pooled = matrix_or_null(args.grad_inputs[1], shape.batch, shape.features * shape.dim, kWhat);
  for_chunks(args.inputs, shape,
             [&](const Interaction& chunk) { loops_.interact_backward(chunk, grad, grad_dense, grad_pooled); });
}

}  // namespace tessera_dense
