// The formulas of optimizers with TorchRec's names, in doubles: for comparison, and for kernels under test to update
// with.
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
  const char* options;          // JSON: the options that the constants in `update` stand for
  std::vector<int32_t> states;  // a TSR_STATE_* each
  const char* text;
  void (*update)(const tsr_update& update, PlainState& row);
  double start = 0;  // of all states
};

// One formula per set of options that is compared; empty if the name is unknown. It is a component's id or the name of
// its formula (tsr_optimizer::formula), such as "adam" and "tessera.adam/1".
std::vector<const Formula*> formulas_of(const std::string& name);

// A row that is updated as the formula says.
class PlainRow : private PlainState {
 public:
  PlainRow(const Formula& formula, std::vector<float> start);
  void update(const tsr_update& update, std::vector<float> gradient);
  using PlainState::weights;

 private:
  const Formula& formula_;
};

// An optimizer component with that formula, for kernels to update with. It lives as long as the process.
const tsr_instance& optimizer_instance(const Formula& formula);

// The JSON object `options` with one more member.
std::string with_option(const std::string& options, const std::string& key, double value);
// The JSON object `options` with these widths as "inputs", as a model names them for a layer.
std::string with_widths(const std::string& options, const std::vector<int64_t>& widths);

}  // namespace tessera::cli::verify
