// Which compute kernels the installed kernel plugins serve: a plan of others could not be run.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/abi/kernel.h"
#include "tessera/embedding_configs.h"
#include "tessera/runtime.h"

namespace tessera {

class ServedKernels {
 public:
  // `kernel`: a plugin's id, or "auto": any. Only those that can be used here are asked; where there is none for this
  // compute device (cpu, cuda, hip), the plan is for another machine, and everything is taken to be served. Errors are
  // those of a job: kNotFound for an unknown kernel, kInvalidArgument for one of another device. `runtime` outlives
  // the object.
  ServedKernels(const Runtime& runtime, const std::string& kernel, const std::string& compute_device);

  // Why no kernel serves the table so, each kernel's reason; empty: one does. Errors of the table's optimizer: unknown,
  // or with options that it refuses.
  std::string refusal(const EmbeddingBagConfig& table, const std::string& compute_kernel);

 private:
  const Part* optimizer(const OptimizerSpec& spec);

  const Runtime& runtime_;
  DLDevice device_;
  std::vector<PartPtr> kernels_;
  std::map<std::pair<std::string, std::string>, PartPtr> optimizers_;  // by name and options
};

// kDLCPU, kDLCUDA or kDLROCM.
DLDeviceType device_type_of(const std::string& compute_device);

}  // namespace tessera
