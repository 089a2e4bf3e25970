// "dot_interaction": DLRM's pairwise dot products.
#pragma once

#include <vector>

#include "loops.h"
#include "support.h"
#include "tessera/sdk/module.h"

namespace tessera_dense {

// No options, no parameters. Inputs: the bottom MLP's output [batch, D] and the pooled embeddings [batch, F * D].
// Output [batch, D + (F + 1) F / 2]: the bottom output itself, then the dot products of the F + 1 vectors (the bottom
// output, then the features in order): (0,1), (0,2), ..., (0,F), (1,2), ...
class DotInteraction : public tessera::sdk::Module {
 public:
  explicit DotInteraction(const tessera::sdk::Setup& setup) : host_(setup.host), loops_(choose_loops()) {}

  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  int64_t output_width(std::span<const int64_t> widths) const override;
  void forward(const tessera::sdk::ModuleForward& args, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleBackward& args, tsr_module_context* context) override;
  void release(tsr_module_context*) noexcept override {}

 private:
  struct Shape {
    int64_t batch, features, dim, width;
  };
  Shape shape_of(std::span<const DLTensor> inputs) const;
  // One call of `body` per chunk of samples.
  template <class Body>
  void for_chunks(std::span<const DLTensor> inputs, const Shape& shape, Body&& body);

  tessera::sdk::Host host_;
  const Loops& loops_;
  std::vector<tessera::sdk::Parameter> parameters_;
  Floats scratch_;
};

}  // namespace tessera_dense
