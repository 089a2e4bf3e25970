// Which compute kernels the installed kernel plugins serve, and what these say that shards cost.
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

// A way to hold shards of a table, by the plugins that a job would take for it.
struct ComputeKernel {
  std::string name;     // with its tables' options: "tensor_train?ranks=8"
  bool infers = false;  // nothing comes back
  std::vector<const Component*>
      plugins;  // best first: a shard that one refuses is the next one's; none can be asked here
  const Component* optimizer = nullptr;  // of the table, or the usual one where it is chosen later; null: not installed
  // True if it can hold replicated rows, or all others: their gradients are reduced, so they have to be handed out.
  bool holds(bool replicated) const { return infers || (name == TSR_COMPUTE_DENSE) == replicated; }
};

class ComputeKernels {
 public:
  // `kernel`: a plugin's id, or "auto": any. Only those that can be used here are asked. Where there is none for the
  // topology's device, the plan is for another machine: then what abi/kernel.h defines is taken to be served, and
  // nothing else. Errors are those of a job: kNotFound for an unknown kernel, kInvalidArgument for one of another
  // device. `runtime` outlives the object.
  ComputeKernels(const Runtime& runtime, const std::string& kernel, const Topology& topology);

  // All that the plugins list, ascending.
  std::vector<std::string> names() const;
  // Those that hold the table: listed by plugins that support it; and those of `asked` that are such a one with
  // options. Valid as long as this object. Errors of the table's optimizer: unknown, or with options that it refuses.
  const std::vector<ComputeKernel>& serving(const EmbeddingBagConfig& table, const std::vector<std::string>& asked);
  // The compute kernel of this name; one without a plugin if no plugin serves it.
  const ComputeKernel& named(const EmbeddingBagConfig& table, const std::string& name);
  // Why no plugin serves the table so, each one's reason.
  std::string why_not(const EmbeddingBagConfig& table, const std::string& name);

  // Estimates a shard with this number of rows: seconds, bytes of rows and states, and where these lie, for the rows
  // that `work` is about. It uses the plugin's own estimate; if the plugin has none, that of the best plugin that has
  // one; otherwise only the machine's figures. `work` needs no machine. If no plugin takes such a shard, throws the
  // best plugin's error.
  tsr_estimate estimate(const EmbeddingBagConfig& table, const ComputeKernel& kernel, const Machine& machine,
                        int64_t rows, const tsr_workload& work) const;
  // Bytes of a shard about which no estimate says any: its rows, and states of the usual size.
  static double usual_bytes(const EmbeddingBagConfig& table, const ComputeKernel& kernel, int64_t rows, int64_t dim);

  // The plugin whose estimates are used where tables train; null: none has any.
  const Component* estimator() const { return estimator_; }
  // The kernel of the plugin that a job takes for most tables; null: none.
  const KernelFigures* figures(const Machine& machine) const;
  // True if its lookups write rows to where the caller wants them (TSR_KERNEL_PLACES_ROWS).
  bool places_rows() const;

 private:
  // The values that a plugin's answer depends on.
  using Question = std::tuple<int64_t, DType, std::optional<RowFormat>, std::string, std::string, double, PoolingType,
                              bool, std::vector<std::string>>;
  static Question question_of(const EmbeddingBagConfig& table, const std::vector<std::string>& asked);
  const Component* optimizer(const OptimizerSpec& spec);
  LookupOptions options_of(const EmbeddingBagConfig& table, const std::string& compute_kernel) const;
  tsr_estimate estimate_of(const Component* plugin, const EmbeddingBagConfig& table, const ComputeKernel& kernel,
                           const Machine& machine, int64_t rows, tsr_workload work) const;
  // Nothing: it serves the table.
  std::string refusal_of(const Component& plugin, const EmbeddingBagConfig& table, const std::string& compute_kernel);

  const Runtime& runtime_;
  DLDevice device_;
  std::vector<ComponentPtr> plugins_;  // best first
  const Component* usual_ = nullptr;
  const Component* estimator_ = nullptr;  // the best one that has estimates and trains
  std::map<std::pair<std::string, std::string>, ComponentPtr> optimizers_;  // null: there is no such plugin
  std::map<Question, std::vector<ComputeKernel>> serving_;
  std::deque<ComputeKernel> unserved_;
};

}  // namespace tessera
