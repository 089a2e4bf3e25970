// "dot_interaction", DLRM's pairwise dot products, in host memory.
#pragma once

#include <vector>

#include "loops.h"
#include "support.h"
#include "tessera/sdk/module.h"

namespace tessera_dense {

class DotInteraction : public tessera::sdk::Module {
 public:
  explicit DotInteraction(const tessera::sdk::Setup& setup) : host_(setup.host), loops_(choose_loops()) {}

  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override {
    return tessera::sdk::InteractionShape::outputs(inputs);
  }
  void forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& args, tsr_module_context* context) override;
  void release(tsr_module_context*) noexcept override {}

 private:
  using Shape = tessera::sdk::InteractionShape;
  // One call of `body` per block of samples.
  template <class Body>
  void for_blocks(std::span<const DLTensor> inputs, const Shape& shape, Body&& body);

  tessera::sdk::Host host_;
  const Loops& loops_;
  std::vector<tessera::sdk::Parameter> parameters_;
  Floats scratch_;
};

}  // namespace tessera_dense
