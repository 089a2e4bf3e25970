// The part of a checkpoint that every rank has whole: dense parameters and the state of their optimizer.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "tessera/distributed_model_parallel.h"
#include "tessera/optim.h"

namespace tessera::checkpoint {

ParameterList dense_tensors(const DistributedModelParallel& model);

// One list for each group: its options as "name = value".
std::vector<std::vector<std::string>> settings_of(const KeyedOptimizer& optimizer);
// kInvalidArgument where the names of the settings differ: another optimizer wrote the state. Values may differ.
void check_settings(const std::vector<std::vector<std::string>>& stored, const KeyedOptimizer& optimizer);

// The states in optimizer files that belong to no table: "<key>/<state>".
std::vector<std::pair<std::string, OptimizerState>> read_dense_states(const TensorFiles& files,
                                                                      const std::vector<TableEntry>& tables);

// Sets an optimizer's whole state, and puts it back as it was unless kept.
class StateChange {
 public:
  explicit StateChange(KeyedOptimizer& optimizer);
  ~StateChange();
  StateChange(const StateChange&) = delete;
  StateChange& operator=(const StateChange&) = delete;
  // kInvalidArgument: the optimizer has no such parameter, or other states for it.
  void apply(const std::vector<std::pair<std::string, OptimizerState>>& states);
  void keep() { undo_ = false; }

 private:
  void set(const std::vector<std::pair<std::string, OptimizerState>>& states);

  KeyedOptimizer& optimizer_;
  std::vector<std::pair<std::string, OptimizerState>> before_;
  bool undo_ = false;
};

}  // namespace tessera::checkpoint
