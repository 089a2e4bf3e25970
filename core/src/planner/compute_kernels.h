// The compute kernels that the installed kernel plugins serve, and the plugins' estimates of the cost of shards.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/abi/draft/cost.h"
#include "tessera/embedding_configs.h"
#include "tessera/lookup.h"
#include "tessera/machine.h"
#include "tessera/runtime.h"
#include "tessera/sharding.h"

namespace tessera {

// A compute kernel for a table, with the plugins that a job would take for it.
struct ComputeKernel {
  std::string name;     // with the options of its tables: "tensor_train?ranks=8"
  bool infers = false;  // it has no backward
  // Best first: if one refuses a shard, the next is asked. Empty if no plugin can be asked on this machine.
  std::vector<const Component*> plugins;
  const Component* optimizer = nullptr;  // the table's, or the usual one if it is chosen later; null: not installed
  // With `replicated`, true if it can hold replicated rows; otherwise, if it can hold all other rows. Replicated rows
  // need "dense", which hands their gradients out, so that ranks can sum them.
  bool holds(bool replicated) const { return infers || (name == TSR_COMPUTE_DENSE) == replicated; }
};

class ComputeKernels {
 public:
  // `kernel` is a plugin's id, or "auto" for any. Only plugins that can be used here are asked. If there is none for
  // the topology's device, the plan is for another machine, and only the compute kernels of abi/kernel.h are assumed to
  // be served. Errors are those of a job: kNotFound for an unknown kernel, kInvalidArgument for one of another device.
  // `runtime` must outlive the object.
  ComputeKernels(const Runtime& runtime, const std::string& kernel, const Topology& topology);

  // The names that the plugins list, ascending.
  std::vector<std::string> names() const;
  // The compute kernels that can hold the table: those listed by plugins that support it, and the names in `asked` that
  // are one of them with options. Valid as long as this object. Throws an Error if the table's optimizer is unknown or
  // refuses its options.
  const std::vector<ComputeKernel>& serving(const EmbeddingBagConfig& table, const std::vector<std::string>& asked);
  // The compute kernel of this name; one without a plugin if no plugin serves it.
  const ComputeKernel& named(const EmbeddingBagConfig& table, const std::string& name);
  // The reason of each plugin that does not serve the table with this compute kernel.
  std::string why_not(const EmbeddingBagConfig& table, const std::string& name);

  // Estimates a shard with this number of rows: seconds, bytes of rows and states, and where these lie, for the rows
  // that `work` is about. It uses the plugin's own estimate; if the plugin has none, that of the best plugin that has
  // one; otherwise only the machine's figures. `work` needs no machine. If no plugin takes such a shard, throws the
  // best plugin's error.
  tsr_estimate estimate(const EmbeddingBagConfig& table, const ComputeKernel& kernel, const Machine& machine,
                        int64_t rows, const tsr_workload& work) const;
  // The bytes of a shard whose estimate has none: its rows, and states of the usual size.
  static double usual_bytes(const EmbeddingBagConfig& table, const ComputeKernel& kernel, int64_t rows, int64_t dim);

  // The plugin whose estimates are used for training; null if no plugin has estimates.
  const Component* estimator() const { return estimator_; }
  // The machine's figures of the plugin that a job takes for most tables; null if there are none.
  const KernelFigures* figures(const Machine& machine) const;
  // True if that plugin's lookups can write rows to several places (TSR_KERNEL_PLACES_ROWS).
  bool places_rows() const;

 private:
  // Everything that a plugin's answer depends on.
  using Question = std::tuple<int64_t, DType, std::optional<RowFormat>, std::string, std::string, double, PoolingType,
                              bool, std::vector<std::string>>;
  static Question question_of(const EmbeddingBagConfig& table, const std::vector<std::string>& asked);
  const Component* optimizer(const OptimizerSpec& spec);
  LookupOptions options_of(const EmbeddingBagConfig& table, const std::string& compute_kernel) const;
  tsr_estimate estimate_of(const Component* plugin, const EmbeddingBagConfig& table, const ComputeKernel& kernel,
                           const Machine& machine, int64_t rows, tsr_workload work) const;
  // Why the plugin does not serve the table; empty if it does.
  std::string refusal_of(const Component& plugin, const EmbeddingBagConfig& table, const std::string& compute_kernel);

  const Runtime& runtime_;
  DLDevice device_;
  std::vector<ComponentPtr> plugins_;  // best first
  const Component* usual_ = nullptr;
  const Component* estimator_ = nullptr;  // the best plugin that trains and has estimates
  std::map<std::pair<std::string, std::string>, ComponentPtr> optimizers_;  // null if it is not installed
  std::map<Question, std::vector<ComputeKernel>> serving_;
  std::deque<ComputeKernel> unserved_;
};

}  // namespace tessera
