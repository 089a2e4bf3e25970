// Functions of each value by points.
#pragma once

#include <vector>

#include "combine.h"

namespace tessera_dense {

// "piecewise": for each value x the line between the points (at[k], values[k]) around it; outside of them that of the
// nearest one. Options: "at", in ascending order, and "values", as many. A calibration of probabilities is one.
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
