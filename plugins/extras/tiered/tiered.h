// The instance of kernel "tiered": a Tier per table, or one that several tables share. For the inner kernel, slots of
// the cache are the ids.
#pragma once

#include <tessera/sdk/draft/changes.h>

#include <memory>

#include "tier.h"
#include "writer.h"

namespace extras {

// The options of a table. The kernel's own options are the defaults of all tables.
struct TierOptions {
  RowFileOptions file;
  double cache_mib = 64;
  int64_t cache_rows = 0;  // used instead if it is not 0
  bool shared = false;     // shares the cache with all tables of the same width that also set it

  // Reads its options out of a JSON object.
  void read(sdk::Options& options);
  int64_t slots(int64_t rows, const RecordShape& record) const;
};

class TieredTables : public sdk::KernelInstance, public sdk::Changes {
 public:
  // `options` has an entry per table.
  TieredTables(const sdk::InnerKernel& inner, const tsr_kernel_config& config, std::span<const TierOptions> options);

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, tsr_context** context) override;
  void backward(tsr_context* context, const tsr_backward& args, tsr_stream stream) override;
  void release(tsr_context* context) noexcept override;
  void export_rows(uint32_t table, uint64_t& cursor, tsr_rows& rows) override;
  void import_rows(uint32_t table, const tsr_rows& rows) override;
  tsr_kernel_stats stats(uint32_t table) override { return tables_.at(table).tier->stats(tables_[table].own); }
  void prefetch(const tsr_lookup& lookup);
  // Rows of a table, without a lookup: records are weights, then states. Rows that are read must ascend.
  const RecordShape& record(uint32_t table) const { return tables_.at(table).record(); }
  void read_records(uint32_t table, std::span<const int64_t> rows, float* records);
  void write_records(uint32_t table, std::span<const int64_t> rows, const float* records);
  void prefetch_rows(uint32_t table, std::span<const int64_t> rows);
  // The number of these rows that a lookup would find in memory now.
  uint64_t in_memory(uint32_t table, std::span<const int64_t> rows);
  void mark(uint32_t follower) override;
  sdk::RowChanges changes(uint32_t follower, uint32_t table) override;
  void export_changed(uint32_t follower, uint32_t table, uint64_t& cursor, tsr_rows& rows) override;

 private:
  struct Table {
    Tier* tier;
    size_t own;  // index within its tier
    const TierTable& in_tier() const { return tier->table(own); }
    const RecordShape& record() const { return tier->record(); }
  };
  // The state that a forward keeps for each table.
  struct Kept : sdk::InnerAsk {  // its rows are slots of the cache
    std::vector<uint32_t> pinned;
  };
  struct Context {
    std::vector<Kept> tables;
  };

  void rows_of(const tsr_lookup& lookup, const sdk::InnerAsk& ask, std::vector<int64_t>& rows) const;
  void keep(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, Context& context);
  void pass(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, const tsr_lookup_feature& feature);
  void end(Context& context) noexcept;
  void check(const Table& table, const tsr_rows& rows) const;
  void hand_out(const Table& table, tsr_rows& rows);
  void read(const Table& table, int64_t first, int64_t count);

  std::vector<std::unique_ptr<Tier>> tiers_;
  std::vector<Table> tables_;
  Writer writer_{tiers_};  // destroyed before the tiers

  // Scratch memory of the steps, and of prefetch(), which runs concurrently with them.
  std::vector<int64_t> asked_, moved_, early_;
  sdk::InnerLookup inner_lookup_;
  sdk::InnerAsk early_ask_;
  Kept passing_;
  std::vector<int64_t> read_;  // rows of a tier; their records are in the next member
  std::vector<float> records_;
};

// Estimates the share `part` of a table, whose options are `options` and not those of `shard`. `work` describes it.
tsr_estimate estimate_tier(const sdk::InnerKernel& inner, const TierOptions& options, const tsr_kernel_config& config,
                           const tsr_kernel_table& shard, const tsr_workload& work, double part);
// These throw Failure for a kernel that cannot hold the cache, and for configurations that rows on disk do not support.
void check_inner(const char* kernel, const sdk::InnerKernel& inner);
void check_tier(const sdk::InnerKernel& inner, const tsr_kernel_config& config, const tsr_kernel_table& table);

class Tiered : public sdk::Kernel {
 public:
  using Instance = TieredTables;
  static constexpr const char* kComputeKernels[] = {"key_value", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  static constexpr uint32_t kFlags = TSR_KERNEL_PLACES_ROWS | TSR_KERNEL_STARTS_ROWS | TSR_KERNEL_WRAPS;

  explicit Tiered(const sdk::Setup& setup);
  const void* extension(std::string_view id) const;
  void supports(const tsr_kernel_config& config) const override;
  std::unique_ptr<sdk::KernelInstance> open(const tsr_kernel_config& config) const override;
  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const override;

 private:
  sdk::InnerKernel inner_;
  TierOptions options_;
};

}  // namespace extras
