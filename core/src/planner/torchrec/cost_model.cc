#include "planner/torchrec/cost_model.h"

#include "planner/rank_rules.h"
#include "planner/torchrec/formulas.h"

namespace tessera::torchrec {

namespace {

class FormulaModel : public CostModel {
 public:
  FormulaModel(const Topology& topology, const std::vector<PricedTable>& tables)
      : topology_(topology), tables_(tables) {}
  ShardCost cost(const PricedShard& s) const override {
    const LayoutCost& layout = layout_cost(s.combine);
    const KernelCost* kernel = kernel_cost(s.kernel.name, topology_.accelerator());
    TESSERA_CHECK(kernel != nullptr, "compute kernel ", s.kernel.name);
    const Workload& work = tables_[s.table].work;
    return {shard_storage(layout, *kernel, work, topology_, s.rows, s.cols),
            shard_perf(layout, *kernel, work, topology_, s.cols), ""};
  }
  bool knows(const ComputeKernel& kernel) const override {
    return kernel_cost(kernel.name, topology_.accelerator()) != nullptr;
  }
  std::string figures() const override { return "TorchRec's formulas over the topology's bandwidths"; }

 private:
  const Topology& topology_;
  const std::vector<PricedTable>& tables_;
};

}  // namespace

std::unique_ptr<CostModel> make_cost_model(const PlannerOptions& options, ComputeKernels&,
                                           const std::vector<PricedTable>& tables) {
  const Topology& t = options.topology;
  if (!(t.hbm_mem_bw > 0) || !(t.intra_host_bw > 0))
    bad_input(str_cat("the cost model \"torchrec\" needs the bandwidths of memory and links, which are not known for ",
                      t.compute_device, ": use the cost model \"default\" with figures of tessera calibrate"));
  return std::make_unique<FormulaModel>(t, tables);
}

}  // namespace tessera::torchrec
