// The formulas of optimizers with TorchRec's names, in doubles: to compare with, and for kernels to be verified with.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/abi/optimizer.h"

namespace tessera::cli::verify {

struct PlainState {
  std::vector<double> weights, grad;
  std::vector<std::vector<double>> states;
};

struct Formula {
  const char* id;
  const char* options;          // JSON: those that the constants in `update` stand for
  std::vector<int32_t> states;  // TSR_STATE_* each
  const char* text;
  void (*update)(const tsr_update& update, PlainState& row);
};

// One for each set of options that is compared; empty: none of that name is known.
std::vector<const Formula*> formulas_of(const std::string& id);

// A row that is updated as the formula says.
class PlainRow : private PlainState {
 public:
  PlainRow(const Formula& formula, std::vector<float> start);
  void update(const tsr_update& update, std::vector<float> gradient);
  using PlainState::weights;

 private:
  const Formula& formula_;
};

// An optimizer with that formula as a part, for kernels to update with. Lives as long as the process.
const tsr_instance& optimizer_instance(const Formula& formula);

// The JSON object `options` with one more.
std::string with_option(const std::string& options, const std::string& key, double value);

}  // namespace tessera::cli::verify
