// Updates of dense parameters that are not just a step for each batch: sums of gradients, and averages of weights.
#pragma once

#include <vector>

#include "checkpoint/dense.h"
#include "tessera/optim.h"

namespace tessera {

// Gradients of batches that make one update, on this rank. Parameters are in host memory.
class GradientSums {
 public:
  // An update is due after each step whose number is a multiple of `batches`.
  GradientSums(ParameterList parameters, int64_t batches);
  // Adds the gradients of a batch's mean loss, times its samples on all ranks, and unsets them. `step`: the number of
  // steps done with it. True: an update is due.
  bool add(int64_t samples, int64_t step);
  // Sets the gradients of the mean loss of all samples since the last update. False: there were none.
  bool take();

 private:
  ParameterList parameters_;
  std::vector<Tensor> sums_;
  int64_t most_, batches_ = 0, samples_ = 0;
};

// Averages the parameters over the updates of the wrapped optimizer: average += (1 - d) (value - average), where d is
// the smaller of the decay and (1 + n) / (10 + n) after n updates, so that start values are soon forgotten. A parameter
// holds either its trained value or its average. States have the trained value, "trained", and n, "ema_updates": a
// checkpoint is saved while parameters hold averages.
class AveragingOptimizer : public OptimizerWrapper {
 public:
  AveragingOptimizer(KeyedOptimizerPtr optimizer, double decay);
  // Lets the parameters hold their averages, or their trained values.
  void show(bool averages);
  void step() override;
  std::vector<std::pair<std::string, OptimizerState>> state() const override;
  void set_state(std::string_view key, const OptimizerState& state) override;
  std::string class_name() const override { return checkpoint::kAveragingOptimizer; }

 private:
  double decay_;
  std::vector<Item> items_;
  std::vector<Tensor> others_;  // what the parameters do not hold; undefined: the same as they hold
  double updates_ = 0;
  bool averages_ = false;  // the parameters hold them
};

}  // namespace tessera
