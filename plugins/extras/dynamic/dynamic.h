// The instance of kernel "dynamic": lookups and updates of a group of tables.
#pragma once

#include <bit>
#include <deque>
#include <memory>

#include "rows.h"
#include "sums.h"
#include "walk.h"

namespace extras {

class DynamicTables : public KernelInstance, public Changes {
 public:
  explicit DynamicTables(const tsr_kernel_config& config);

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context** context) override;
  void backward(tsr_context* context, const tsr_backward& args, tsr_stream) override;
  void release(tsr_context* context) noexcept override;
  void save_extra(uint32_t table, const ExtraBytes& to) const { tables_.at(table).save_extra(to); }
  tsr_table_ages ages(uint32_t table) const { return tables_.at(table).ages(); }
  bool shares_row(uint32_t table) const { return tables_.at(table).shared_row() != kNone; }
  void add_extra(uint32_t table, const ExtraBytes& from) { tables_.at(table).add_extra(from); }
  void export_rows(uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    tables_.at(table).export_rows(cursor, rows);
  }
  void import_rows(uint32_t table, const tsr_rows& rows) override { tables_.at(table).import_rows(rows); }
  tsr_kernel_stats stats(uint32_t table) override;

  void mark(uint32_t follower) override {
    for (Table& table : tables_) table.mark(follower);
  }
  RowChanges changes(uint32_t follower, uint32_t table) override { return tables_.at(table).changes(follower); }
  void export_changed(uint32_t follower, uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    tables_.at(table).export_changed(follower, cursor, rows);
  }
  void export_removed(uint32_t follower, uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    tables_.at(table).export_removed(follower, cursor, rows);
  }

 private:
  // The row of each id of a batch. Contexts are reused, so that a step allocates no memory.
  struct Places {
    std::vector<uint32_t> rows;                // by position; kNone if the id has no row
    std::vector<uint64_t> evictions;           // per table: the count when `rows` was filled
    std::vector<std::vector<uint32_t>> again;  // per table: rows that a training batch has more than once
    bool trains = false;
    bool settled = false;  // true when all ids that get a row in this step have it

    void begin(size_t ids, size_t tables, bool training);
  };
  // A batch with indices of one type.
  struct Batch {
    const tsr_lookup& lookup;
    std::span<const int64_t> ids, offsets;
    const float* weights;
    const int32_t* listed;

    int64_t begin(const tsr_lookup_feature& f, int64_t bag) const {
      return offsets[static_cast<size_t>(f.first_offset + bag)];
    }
    // The position after a bag's last position. Without pooling, a bag is one position.
    int64_t end_of(const tsr_lookup_feature& f, int64_t bag) const {
      return f.pooling == TSR_POOLING_NONE ? begin(f, 0) + bag + 1 : begin(f, bag + 1);
    }
    // Index of the first element of a bag's output.
    int64_t output(const tsr_lookup_feature& f, int64_t bag) const {
      const int64_t row = f.listed != 0 && listed != nullptr ? listed[f.first_offset + bag] : bag;
      return f.output_offset + row * f.output_stride;
    }
  };
  // A bag that is summed later, when all ids of the step have their rows.
  struct Waiting {
    const tsr_lookup_feature* feature;
    float* output;
    int64_t bag;
  };
  struct Ring;
  struct Way;
  // An id's share of the gradient of its row.
  struct Share {
    const float* gradient;
    float scale;
    uint32_t row;
  };
  // A filter for rows that a batch has more than once. It has no false negatives and few false positives.
  class Again {
   public:
    void assign(std::span<const uint32_t> rows) {
      mask_ = static_cast<uint32_t>(std::bit_ceil(std::clamp<size_t>(16 * rows.size(), 64, size_t{1} << 31)) - 1);
      bits_.assign(mask_ / 64 + 1, 0);
      for (const uint32_t row : rows) bits_[(row & mask_) / 64] |= uint64_t{1} << row % 64;
    }
    bool has(uint32_t row) const { return (bits_[(row & mask_) / 64] >> row % 64 & 1) != 0; }

   private:
    uint32_t mask_ = 63;
    std::vector<uint64_t> bits_;
  };

  Batch read(const tsr_lookup& lookup);
  void note_changes(const Batch& batch, const Places& places);
  void look_up(const Batch& batch, const tsr_lookup_feature& feature, Places& places, float* output);
  void insert(const Batch& batch, Places& places);
  void share(size_t table, uint32_t step, Places& places);
  bool pool(const Batch& batch, const tsr_lookup_feature& feature, int64_t bag, const Places& places, float* output);
  static void divide(const tsr_lookup_feature& feature, int64_t length, int64_t dim, float* out);
  const float* absent(const Batch& batch, const Table& table, int64_t position, size_t taken);
  void drop_evicted(const Batch& batch, const tsr_lookup_feature& feature, Places& places) const;
  void update_once(const Batch& batch, const tsr_lookup_feature& feature, const Places& places,
                   const tsr_backward& args);
  void take_shares(const Batch& batch, const tsr_lookup_feature& feature, const Places& places,
                   const tsr_backward& args);
  const float* clamped(const Share& share, size_t row, int64_t dim, float scale);
  void update(Table& table, const tsr_backward& args);
  void group_by_row();

  OptimizerRef optimizer_;
  float max_gradient_;
  SumRows* sum_;
  const WalkTable& walk_;
  std::vector<Table> tables_;
  std::vector<uint64_t> lookups_, hits_;
  std::deque<Places> places_;
  std::vector<Places*> free_;

  // Scratch memory.
  Places without_context_;
  std::vector<int64_t> ids_, offsets_;
  std::vector<std::vector<Table::Miss>> misses_;  // per table
  std::vector<Waiting> waiting_;
  std::vector<int64_t> without_;  // positions without a row, of one feature
  Again again_;
  std::vector<const float*> addresses_;
  std::vector<float> scales_, absent_, zeros_, clamped_, scaled_;
  std::vector<Share> shares_;
  std::vector<uint32_t> unique_rows_, group_of_, group_begin_, order_, seats_;
  std::vector<float> sums_;
  std::vector<float*> weights_of_, states_of_;
  std::vector<const float*> gradients_of_;
};

class Dynamic : public Kernel {
 public:
  using Instance = DynamicTables;
  static constexpr const char* kComputeKernels[] = {"dynamic", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  static constexpr uint32_t kFlags = TSR_KERNEL_ROWS_ON_DEMAND | TSR_KERNEL_PLACES_ROWS;

  const void* extension(std::string_view id) const;
  void supports(const tsr_kernel_config& config) const override;
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config& config) const override {
    supports(config);
    return std::make_unique<DynamicTables>(config);
  }
  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const override;
};

}  // namespace extras
