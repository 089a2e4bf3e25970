// What lookups and updates cost by the kernel plugins' own estimate slots.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "tessera/abi/kernel.h"
#include "tessera/embedding_configs.h"
#include "tessera/machine.h"
#include "tessera/runtime.h"

namespace tessera {

class KernelEstimates {
 public:
  // `kernel`: a plugin's id, or "auto" for the usable one of the highest priority that trains. A kernel that cannot be
  // opened here (no such device), or that has no estimate slot, is estimated from the machine's figures alone.
  // `runtime` and `machine` outlive the object.
  KernelEstimates(const Runtime& runtime, const std::string& kernel, const Machine& machine);

  // Seconds, and bytes of rows and state. `work` needs no machine.
  tsr_estimate of(const EmbeddingBagConfig& table, const std::string& compute_kernel, tsr_workload work) const;
  double call_forward() const { return figures_ == nullptr ? 0 : figures_->call_forward; }
  double call_backward() const { return figures_ == nullptr ? 0 : figures_->call_backward; }
  // Whether its lookups write rows to where the caller wants them (TSR_KERNEL_PLACES_ROWS).
  bool places_rows() const;
  const std::string& kernel() const { return id_; }  // empty: by figures alone

 private:
  const Part* optimizer(const OptimizerSpec& spec) const;

  const Runtime& runtime_;
  std::string id_;
  PartPtr part_;
  DLDevice device_;
  const KernelFigures* figures_ = nullptr;
  mutable std::map<std::pair<std::string, std::string>, PartPtr> optimizers_;  // null: there is no such plugin
};

}  // namespace tessera
