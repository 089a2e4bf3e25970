#include "dot_interaction.h"

namespace tessera_dense {

using tessera::sdk::fail;

int64_t DotInteraction::output_width(std::span<const int64_t> widths) const {
  if (widths.size() != 2) {
    fail(TSR_INVALID_ARGUMENT, "dot_interaction takes two inputs, the dense one and the pooled one, not ",
         widths.size());
  }
  const int64_t dim = widths[0], pooled = widths[1];
  if (dim < 1 || pooled < 0 || pooled % dim != 0) {
    fail(TSR_INVALID_ARGUMENT, "dot_interaction needs pooled embeddings as wide as the dense input: ", pooled,
         " values are no multiple of ", dim);
  }
  const int64_t n = pooled / dim + 1;
  return dim + n * (n - 1) / 2;
}

DotInteraction::Shape DotInteraction::shape_of(std::span<const DLTensor> inputs) const {
  const int64_t batch = batch_of(inputs, 2, "dot_interaction");
  if (inputs[0].ndim != 2 || inputs[1].ndim != 2) {
    fail(TSR_INVALID_ARGUMENT, "dot_interaction takes inputs [batch, width]");
  }
  const int64_t widths[] = {inputs[0].shape[1], inputs[1].shape[1]};
  const int64_t width = output_width(widths);
  return {batch, widths[1] / widths[0], widths[0], width};
}

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
  const Shape shape = shape_of(args.inputs);
  float* output = matrix(args.output, shape.batch, shape.width, "dot_interaction's output");
  for_chunks(args.inputs, shape, [&](const Interaction& chunk) { loops_.interact(chunk, output); });
  // Backward needs the inputs alone; the context only has to be one.
  if (context) *context = reinterpret_cast<tsr_module_context*>(this);
}

void DotInteraction::backward(const tessera::sdk::ModuleBackward& args, tsr_module_context*) {
  const Shape shape = shape_of(args.inputs);
  const float* grad = matrix(args.grad_output, shape.batch, shape.width, "the gradient of dot_interaction's output");
  const auto wanted = [&](size_t i, int64_t width) {
    return args.grad_inputs[i].data == nullptr
               ? nullptr
               : matrix(args.grad_inputs[i], shape.batch, width, "the gradient of dot_interaction's input");
  };
  float* grad_dense = wanted(0, shape.dim);
  float* grad_pooled = wanted(1, shape.features * shape.dim);
  for_chunks(args.inputs, shape,
             [&](const Interaction& chunk) { loops_.interact_backward(chunk, grad, grad_dense, grad_pooled); });
}

}  // namespace tessera_dense
