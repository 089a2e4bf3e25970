// A piecewise linear function of each value.
#pragma once

#include <vector>

#include "combine.h"

namespace tessera_dense {

// "piecewise": interpolates each value x linearly between the two points (at[k], values[k]) around it. Beyond the first
// or last point, the result is that point's value. Options: "at", in ascending order, and "values", one for each. It
// can calibrate probabilities, for example.
class Piecewise : public Stateless {
 public:
  explicit Piecewise(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
  std::vector<double> at_, values_;
};

}  // namespace tessera_dense
