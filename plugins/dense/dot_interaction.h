// "dot_interaction", DLRM's pairwise dot products, in host memory.
#pragma once

#include <numeric>
#include <vector>

#include "joined.h"
#include "loops.h"
#include "tessera/sdk/module.h"

namespace tessera_dense {

class DotInteraction : public tessera::sdk::Module {
 public:
  static constexpr bool kRowByRow = true;
  explicit DotInteraction(const tessera::sdk::Setup& setup)
      : host_(setup.host), loops_(choose_loops()), pooled_(setup.host, "dot_interaction", 0, 1) {
    tessera::sdk::joined_width(setup.options);  // the value is not needed, because the inputs give their widths
  }

  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override {
    const std::vector<int64_t> widths = tessera::sdk::dense_widths(inputs, "dot_interaction");
    if (widths.size() <= 2) return tessera::sdk::InteractionShape::outputs(inputs);
    const int64_t both[] = {widths[0], std::accumulate(widths.begin() + 1, widths.end(), int64_t{0})};
    return {tessera::sdk::Value{Shape::output_width(both)}};
  }
  void forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& args, tsr_module_context* context) override;

 private:
  using Shape = tessera::sdk::InteractionShape;
  Shape shape_of(const tessera::sdk::ModuleCall& call) const;
  // Calls `body` once per block of samples.
  template <class Body>
  void for_blocks(const tessera::sdk::ModuleCall& call, const Shape& shape, Body&& body);

  tessera::sdk::Host host_;
  const Loops& loops_;
  Joined pooled_;  // all inputs except the first
  Floats scratch_;
};

}  // namespace tessera_dense
