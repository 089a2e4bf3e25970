// The dense part of a checkpoint, which every rank has whole: dense parameters and the state of their optimizer.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "tessera/distributed_model_parallel.h"
#include "tessera/optim.h"

namespace tessera::checkpoint {

// The optimizer whose parameters hold averages, and its state that others lack.
inline constexpr const char *kAveragingOptimizer = "AveragingOptimizer", *kAveragesState = "ema_updates";

ParameterList dense_tensors(const DistributedModelParallel& model);

// One list for each parameter group: its options as "name = value".
std::vector<std::vector<std::string>> settings_of(const KeyedOptimizer& optimizer);
// kInvalidArgument: the names of the settings differ, so another optimizer wrote the state. Values may differ.
void check_settings(const std::vector<std::vector<std::string>>& stored, const KeyedOptimizer& optimizer);

// Reads the states in optimizer files that belong to no table: "<key>/<state>".
std::vector<std::pair<std::string, OptimizerState>> read_dense_states(const TensorFiles& files,
                                                                      const std::vector<TableEntry>& tables);

// Replaces an optimizer's whole state, and restores the old state unless keep() is called.
class StateChange {
 public:
  explicit StateChange(KeyedOptimizer& optimizer);
  ~StateChange();
  StateChange(const StateChange&) = delete;
  StateChange& operator=(const StateChange&) = delete;
  // kInvalidArgument: the optimizer has no such parameter, or has other states for it.
  void apply(const std::vector<std::pair<std::string, OptimizerState>>& states);
  void keep() { undo_ = false; }

 private:
  void set(const std::vector<std::pair<std::string, OptimizerState>>& states);

  KeyedOptimizer& optimizer_;
  std::vector<std::pair<std::string, OptimizerState>> before_;
  bool undo_ = false;
};

}  // namespace tessera::checkpoint
