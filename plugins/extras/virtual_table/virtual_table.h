// The kernel "virtual_table": tables of any ids whose rows do not fit into memory. The code of plugin dynamic keeps the
// ids that have rows, in memory. The code of plugin tiered keeps the rows: in files, with a cache in the tables of
// another kernel, which does all sums and updates.
#pragma once

#include <tessera/sdk/draft/changes.h>
#include <tessera/sdk/inner_kernel.h>

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "../dynamic/rows.h"
#include "../tiered/tiered.h"

namespace extras {

// A table's ids, each of which has a row number or none.
struct VirtualTable {
  Table ids;  // a table of 0 columns
  uint32_t number;
  int64_t dim;
  // The last row, which ids without a row read. Its updates are undone, unless these ids share it.
  int64_t absent_row;
  bool shared() const { return ids.shared_row() != kNone; }
};

class VirtualTables : public KernelInstance, public Changes {
 public:
  VirtualTables(const InnerKernel& inner, const tsr_kernel_config& config);

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, tsr_context** context) override;
  void backward(tsr_context* context, const tsr_backward& args, tsr_stream stream) override;
  void release(tsr_context* context) noexcept override;
  void prefetch(const tsr_lookup& lookup);
  void save_extra(uint32_t table, const ExtraBytes& to) const { tables_.at(table).ids.save_extra(to); }
  void add_extra(uint32_t table, const ExtraBytes& from) { tables_.at(table).ids.add_extra(from); }
  bool shares_row(uint32_t table) const { return tables_.at(table).shared(); }
  tsr_table_ages ages(uint32_t table) const { return tables_.at(table).ids.ages(); }
  void export_rows(uint32_t table, uint64_t& cursor, tsr_rows& rows) override;
  void import_rows(uint32_t table, const tsr_rows& rows) override;
  tsr_kernel_stats stats(uint32_t table) override;

  void mark(uint32_t follower) override {
    for (VirtualTable& table : tables_) table.ids.mark(follower);
  }
  RowChanges changes(uint32_t follower, uint32_t table) override { return tables_.at(table).ids.changes(follower); }
  void export_changed(uint32_t follower, uint32_t table, uint64_t& cursor, tsr_rows& rows) override;
  void export_removed(uint32_t follower, uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    tables_.at(table).ids.export_removed(follower, cursor, rows);
  }

 private:
  // The state that a forward keeps for each table.
  struct Kept : InnerAsk {
    std::vector<int64_t> ids;
    uint64_t evictions = 0;  // the eviction count after find(); if it has grown, ids may have lost their rows
  };
  struct Context {
    std::vector<Kept> tables;
  };

  void ask(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, bool keeps, Context& context);
  void find(VirtualTable& table, const tsr_lookup& lookup, Kept& kept);
  void begin(const VirtualTable& table, std::span<const int64_t> rows);
  void note_changes(const Kept& kept);
  void clear_absent(const VirtualTable& table);
  std::vector<int64_t> lost_rows(const Kept& kept) const;
  void end(Context& context) noexcept;
  template <class Wanted>
  void export_some(uint32_t table, uint64_t& cursor, tsr_rows& rows, const Wanted& wanted);
  void check(const VirtualTable& table, const tsr_rows& rows) const;

  OptimizerRef optimizer_;
  StartValues start_;
  std::vector<VirtualTable> tables_;
  std::unique_ptr<TieredTables> rows_;
  std::vector<uint64_t> lookups_, hits_;
  std::mutex mutex_;  // guards the ids that have rows, because prefetch() runs at the same time

  // Scratch memory of the steps, and of prefetch().
  std::vector<Key> keys_;
  std::vector<Table::Miss> misses_;
  std::vector<int64_t> found_, begun_, begun_ids_, early_, early_ids_;
  std::vector<float> records_;
  InnerLookup inner_lookup_;
  InnerAsk early_ask_;
  Context passing_;
};

class VirtualTableKernel : public Kernel {
 public:
  using Instance = VirtualTables;
  static constexpr const char* kComputeKernels[] = {"ssd_virtual_table", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  static constexpr uint32_t kFlags = TSR_KERNEL_ROWS_ON_DEMAND | TSR_KERNEL_PLACES_ROWS | TSR_KERNEL_WRAPS;

  explicit VirtualTableKernel(const Setup& setup);
  const void* extension(std::string_view id) const;
  void supports(const tsr_kernel_config& config) const override;
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config& config) const override;
  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const override;

 private:
  InnerKernel inner_;
};

}  // namespace extras
