// The kernel "mch": TorchRec's managed collisions around another kernel, on the rank that owns the rows.
#pragma once

#include <memory>

#include "rows.h"

namespace extras {

class MchTables : public sdk::KernelInstance, public sdk::Changes {
 public:
  MchTables(const sdk::InnerKernel& inner, const tsr_kernel_config& config);

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, tsr_context** context) override;
  void backward(tsr_context* context, const tsr_backward& args, tsr_stream stream) override;
  void release(tsr_context* context) noexcept override;
  void export_rows(uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    tables_.at(table).export_rows(cursor, rows);
  }
  void import_rows(uint32_t table, const tsr_rows& rows) override { tables_.at(table).import_rows(rows); }
  tsr_kernel_stats stats(uint32_t table) override { return tables_.at(table).stats(); }
  void mark(uint32_t follower) override {
    for (ManagedTable& table : tables_) table.mark(follower);
  }
  sdk::RowChanges changes(uint32_t follower, uint32_t table) override { return tables_.at(table).changes(follower); }
  void export_changed(uint32_t follower, uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    tables_.at(table).export_changed(follower, cursor, rows);
  }
  void export_removed(uint32_t follower, uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    tables_.at(table).export_removed(follower, cursor, rows);
  }
  // Managed collisions share rows by definition.
  bool shares_row(uint32_t table) const {
    (void)tables_.at(table);
    return true;
  }
  void save_extra(uint32_t table, const sdk::ExtraBytes& to) const { tables_.at(table).save_memory(to); }
  void add_extra(uint32_t table, const sdk::ExtraBytes& from) { tables_.at(table).add_memory(from); }

 private:
  struct Context {
    std::vector<sdk::InnerAsk> tables;  // calls of the inner kernel, by table
  };
  void ask(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, bool keeps, Context& context);
  void end(Context& context) noexcept;

  std::vector<ManagedTable> tables_;
  std::vector<int64_t> ids_;  // scratch, like the members below
  sdk::InnerLookup inner_lookup_;
  Context passing_;
};

class MchKernel : public sdk::Kernel {
 public:
  using Instance = MchTables;
  static constexpr const char* kComputeKernels[] = {"mch", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  static constexpr uint32_t kFlags = TSR_KERNEL_ROWS_ON_DEMAND | TSR_KERNEL_PLACES_ROWS | TSR_KERNEL_WRAPS;

  explicit MchKernel(const sdk::Setup& setup);
  const void* extension(std::string_view id) const;
  void supports(const tsr_kernel_config& config) const override;
  std::unique_ptr<sdk::KernelInstance> open(const tsr_kernel_config& config) const override;
  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const override;

 private:
  sdk::InnerKernel inner_;
};

}  // namespace extras
