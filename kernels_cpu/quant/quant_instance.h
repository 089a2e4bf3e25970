// The quant kernel's instance: kernel/1 over StoredTables, the inner loops of QuantOps and the host's threads.
#pragma once

#include <vector>

#include "common/config.h"
#include "common/forward_items.h"
#include "quant_ops.h"
#include "stored_table.h"

namespace tessera_cpu {

class QuantInstance : public sdk::KernelInstance {
 public:
  QuantInstance(sdk::Host host, const QuantOps& ops, Config config, sdk::RowFormat format);

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context** context) override;
  void release(tsr_context*) noexcept override {}
  void export_rows(uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    tables_.at(table).export_rows(cursor, rows);
  }
  void import_rows(uint32_t table, const tsr_rows& rows) override { tables_.at(table).import_rows(rows); }
  void adopt_rows(uint32_t table, const tsr_stored_rows& rows) override { tables_.at(table).adopt_rows(rows); }
  tsr_kernel_stats stats(uint32_t table) override;

 private:
  void look_up(const Batch& batch, const ForwardItem& item);
  void prefetch_first(const Batch& batch, const tsr_lookup_feature& feature);

  sdk::Host host_;
  const QuantOps& ops_;
  Config config_;
  sdk::RowFormat format_;
  std::vector<StoredTable> tables_;
  std::vector<uint64_t> lookups_;
  std::vector<ForwardItem> items_;
};

}  // namespace tessera_cpu
