// The cpu kernel's instance: kernel/1 over TableStores, the inner loops of RowOps and the host's threads.
#pragma once

#include <memory>
#include <vector>

#include "common/config.h"
#include "common/forward_items.h"
#include "common/table_store.h"
#include "context.h"
#include "gradient_plan.h"
#include "row_ops.h"
#include "tessera/sdk/draft/changes.h"
#include "tessera/sdk/draft/rows_view.h"

namespace tessera_cpu {

class CpuInstance : public sdk::KernelInstance, public sdk::Changes, public sdk::RowsView {
 public:
  CpuInstance(sdk::Host host, const RowOps& ops, Config config);

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context** context) override;
  void backward(tsr_context* context, const tsr_backward& args, tsr_stream) override;
  void backward_rows(tsr_context* context, const tsr_backward& args, std::span<tsr_row_gradient> out,
                     tsr_stream) override;
  void apply(uint32_t table, const DLTensor& rows, const DLTensor& values, const tsr_update& update,
             tsr_stream) override;
  void release(tsr_context* context) noexcept override;
  void read_rows(uint32_t table, tsr_rows& rows) override { tables_.at(table).read_named_rows(rows); }
  void export_rows(uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    tables_.at(table).export_rows(cursor, rows);
  }
  void import_rows(uint32_t table, const tsr_rows& rows) override { tables_.at(table).import_rows(rows); }
  tsr_kernel_stats stats(uint32_t table) override;

  void mark(uint32_t follower) override;
  sdk::RowChanges changes(uint32_t follower, uint32_t table) override {
    return {tables_.at(table).marks().count(follower), 0};
  }
  void export_changed(uint32_t follower, uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    tables_.at(table).export_marked(follower, cursor, rows);
  }
  tsr_matrix_view view(uint32_t table, int32_t state) override { return tables_.at(table).view(state); }

 private:
  // A run of whole rows of one table's sorted entries, and the place of its rows in the output.
  struct RowRun {
    const Walk* walk;  // the walk over all of the table's entries
    uint32_t table;
    int64_t begin;
    int64_t end;
    int64_t first_row;  // index of its first row within the table
  };

  // Positions of ids of one table that are marked together.
  struct MarkRun {
    uint32_t table;
    int64_t begin, end;
  };

  Context* take_context();
  void place_winners(const Batch& batch, Context* context) const;
  void look_up(const Batch& batch, const ForwardItem& item, Context* context) const;
  Walk walk_of(const Batch& batch, const tsr_backward& args, const TableEntries& entries) const;
  // Calls body(item, worker) for every item; workers are below `workers`, each with its own scratch.
  template <class Body>
  void share(size_t items, uint32_t workers, Body body) const;
  bool marks() const { return !tables_.empty() && tables_.front().marks(); }
  uint32_t workers_for(const Batch& batch) const;
  float* worker_scratch(uint32_t worker) const;
  void reserve_workers(uint32_t workers);
  void check_updates() const;
  void mark_ids(const Batch& batch);
  void cut_rows(const GradientInput& input, const tsr_backward& args);
  void place_gradients(Context& context, std::span<tsr_row_gradient> out);

  sdk::Host host_;
  const RowOps& ops_;
  Config config_;
  const bool to_l2_ = prefetch_to_l2();
  std::vector<TableStore> tables_;
  sdk::Buffer memory_;  // memory of tables_
  std::vector<uint64_t> lookups_;
  std::vector<std::unique_ptr<Context>> contexts_;  // all contexts, and those not in use
  std::vector<Context*> idle_;
  GradientPlan plan_;
  Scratch worker_scratch_;
  int64_t worker_floats_ = 0;
  std::vector<ForwardItem> items_;
  std::vector<Walk> sorted_;  // per piece
  std::vector<RowRun> runs_;
  std::vector<int64_t> unique_;  // rows with a gradient, per table
  std::vector<MarkRun> marking_;
};

}  // namespace tessera_cpu
