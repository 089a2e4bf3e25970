// tessera/lookup.h - a kernel/1 instance: one group of tables (or shards) looked up and updated together.
//
// The kernel owns the rows. One object is used by one thread at a time.
//
// On a device, calls whose tensors are there too only enqueue on options().stream. Tensors in host memory are copied
// there and back, and the call waits: right everywhere, fast nowhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/abi/kernel.h"
#include "tessera/embedding_configs.h"
#include "tessera/row_figures.h"
#include "tessera/runtime.h"
#include "tessera/tensor.h"

namespace tessera {

// The start values of rows: a tsr_start_formula (abi/kernel.h), or 0 if its scale is 0.
struct StartValues {
  tsr_start_formula formula{};
  // Routed shards: the table's rows behind the shard's, which then take the place of first_row + row.
  std::function<void(std::span<const int64_t> rows, int64_t* table_rows)> unroute;

  // Into out [rows.size(), dim].
  void fill(std::span<const int64_t> rows, int64_t dim, float* out) const;
};

struct LookupTable {
  std::string name;
  int64_t rows = 0;
  int64_t dim = 0;
  std::string options;    // JSON of this table alone, for kernels that have any: abi/kernel.h; empty: none
  uint32_t poolings = 0;  // bit 1 << TSR_POOLING_*: those of its lookups; 0: not known yet
  StartValues start;
  bool any_id = false;  // TSR_TABLE_ANY_ID
};

struct LookupOptions {
  std::string kernel = "auto";           // plugin id: "reference", "cpu", "cuda"; auto: the best that supports this
  std::string compute_kernel = "dense";  // "fused": backward() updates; "dense": backward_rows() hands gradients out
  bool train = true;
  // The stream of the device that holds the rows. Null: the CPU, or, if `kernel` names one that does not serve it, the
  // first device that it does serve.
  std::shared_ptr<DeviceStream> stream;
  DType weight_dtype = DType::kFloat32;
  std::optional<RowFormat> row_format;  // tables that only infer: how rows are stored, instead of weight_dtype
  DType output_dtype = DType::kFloat32;
  std::vector<LookupTable> tables;
  OptimizerSpec optimizer;  // for "fused" and for apply(); name empty: none
};

// Gradient of one table: rows int64 [u] ascending and unique, values float32 [u, dim].
struct RowGradient {
  Tensor rows;
  Tensor values;
};

class Lookup {
  struct Impl;

 public:
  // kUnimplemented with each candidate's reason when no kernel supports the options.
  Lookup(const Runtime& runtime, LookupOptions options);
  ~Lookup();
  Lookup(Lookup&&) noexcept;
  Lookup& operator=(Lookup&&) noexcept;

  const LookupOptions& options() const;
  const std::string& kernel_id() const;
  // True for a compute kernel whose backward() updates the rows ("fused"); false where backward_rows() and apply() are
  // used instead ("dense").
  bool updates_in_backward() const;
  // True if calls may have several outputs, and output_rows (TSR_KERNEL_PLACES_ROWS).
  bool places_rows() const;

  // True for a kernel that makes rows itself, by their start values, where others get them through write_rows.
  bool makes_rows() const;
  // Gives all rows of a new instance their start values.
  void start_rows();

  // Kept by the caller between forward and backward; several may be live. Keeps the kernel's instance alive.
  class Context {
   public:
    Context() = default;
    Context(Context&&) noexcept;
    Context& operator=(Context&&) noexcept;
    ~Context();

   private:
    friend class Lookup;
    void release();
    std::shared_ptr<Impl> owner_;
    tsr_context* raw_ = nullptr;
  };

  // Non-null if the kernel wants to know ids before they are looked up. It is told by another thread than that of
  // the other calls, beside them (abi/draft/prefetch.h).
  bool prefetches() const;
  void prefetch(const tsr_lookup& lookup) const;
  // `lookup` as in abi/kernel.h, but for num_outputs, flags, step and time, which are set here; ids are already
  // checked. context nullptr: no backward follows, and nothing changes (TSR_LOOKUP_READ_ONLY). More outputs than one,
  // and gradients alike: only where places_rows().
  void forward(const tsr_lookup& lookup, std::span<const Tensor> outputs, Context* context);
  void forward(const tsr_lookup& lookup, const Tensor& output, Context* context) {
    forward(lookup, std::span(&output, 1), context);
  }
  // Fused: updates rows. Uses learning_rate() and step() + 1, and counts the step.
  void backward(Context&& context, const tsr_lookup& lookup, std::span<const Tensor> grad_outputs,
                double grad_scale = 1, const Tensor& grad_weights = {});
  void backward(Context&& context, const tsr_lookup& lookup, const Tensor& grad_output, double grad_scale = 1,
                const Tensor& grad_weights = {}) {
    backward(std::move(context), lookup, std::span(&grad_output, 1), grad_scale, grad_weights);
  }
  // Unfused: one gradient per table; copies in host memory.
  std::vector<RowGradient> backward_rows(Context&& context, const tsr_lookup& lookup,
                                         std::span<const Tensor> grad_outputs, double grad_scale = 1,
                                         const Tensor& grad_weights = {});
  std::vector<RowGradient> backward_rows(Context&& context, const tsr_lookup& lookup, const Tensor& grad_output,
                                         double grad_scale = 1, const Tensor& grad_weights = {}) {
    return backward_rows(std::move(context), lookup, std::span(&grad_output, 1), grad_scale, grad_weights);
  }
  // The same, one table after the other, where the kernel has them: `take` may read the views while it runs, and so may
  // what it enqueues on options().stream.
  using TakeRows = std::function<void(int table, const RowGradient& views)>;
  void backward_rows(Context&& context, const tsr_lookup& lookup, const Tensor& grad_output, double grad_scale,
                     const TakeRows& take);
  // The optimizer's update for given gradients; does not count the step: call count_step() once for all tables.
  void apply(int table, const RowGradient& gradient);
  void count_step();

  double learning_rate() const;
  void set_learning_rate(double value);
  int64_t step() const;
  void set_step(int64_t step);

  struct State {
    std::string name;     // "momentum1"
    bool per_row = true;  // one value beside each row; also a table's one value, beside all of them
    double start = 0;     // what each value is before the first update
  };
  const std::vector<State>& states() const;
  // The optimizer has states per table: every step calls backward, also where no ids were looked up.
  bool updates_tables() const;

  // Rows [first, first + count) of a table; weights float32 [count, dim], states[k] [count] or [count, dim], extra
  // [count, extra_bytes(table)], null: not asked for. kUnimplemented when the kernel has no row ranges.
  void read_rows(int table, int64_t first, int64_t count, float* weights, std::span<float* const> states = {},
                 void* extra = nullptr) const;
  void write_rows(int table, int64_t first, int64_t count, const float* weights,
                  std::span<const float* const> states = {}, const void* extra = nullptr);
  // Bytes that the kernel keeps for each row beside values and states, and that only it understands; 0 for most.
  int64_t extra_bytes(int table) const;
  // Rows by their ids, for a kernel whose rows come on demand (TSR_KERNEL_ROWS_ON_DEMAND); these replace the two above.
  bool rows_on_demand() const;
  // Reads as many rows as `ids` has room for, from `cursor` on, which is 0 at first and is moved. Returns how many: 0
  // is the end. Nothing else changes the table meanwhile.
  int64_t export_rows(int table, uint64_t& cursor, std::span<int64_t> ids, float* weights,
                      std::span<float* const> states = {}, void* extra = nullptr) const;
  void import_rows(int table, std::span<const int64_t> ids, const float* weights,
                   std::span<const float* const> states = {}, const void* extra = nullptr);
  void clear_rows(int table);  // it has none then
  // The bytes that such a kernel keeps for a table beside its rows (abi/draft/table_extra.h); empty: nothing. It is
  // added to what is there, once for each shard that there was.
  std::string table_extra(int table) const;
  void add_table_extra(int table, std::string_view saved);
  // How such a table fares: what it has room for and how old its rows are, where its kernel says it
  // (abi/draft/row_ages.h), and what it counts.
  RowFigures row_figures(int table) const;
  // True if ids without a row share one (abi/draft/shared_row.h).
  bool shares_row(int table) const;
  // Which rows change (abi/draft/changes.h), for each who follows them, whatever the others ask. mark_changes(): from
  // here on the kernel remembers that of all tables, and forgets what was before. The others, behind it: how many there
  // are now, and those rows, or the ids of rows that were given up, as export_rows. kUnimplemented: the kernel does not
  // know.
  enum class Follower : uint32_t { kCheckpoints, kPublications };
  struct RowChanges {
    int64_t changed = 0, removed = 0;
  };
  bool knows_changes() const;
  void mark_changes(Follower follower);
  RowChanges changes(Follower follower, int table) const;
  int64_t export_changed(Follower follower, int table, uint64_t& cursor, std::span<int64_t> ids, float* weights,
                         std::span<float* const> states = {}, void* extra = nullptr) const;
  int64_t export_removed(Follower follower, int table, uint64_t& cursor, std::span<int64_t> ids) const;
  // The table's rows are from now on these, uint8 [rows, bytes from row to row] as row_format says, read in place.
  // kUnimplemented when the kernel copies all rows.
  void adopt_rows(int table, const Tensor& rows);
  Tensor weight(int table) const;        // a copy, float32 [rows, dim]
  Tensor state(int table, int k) const;  // a copy, float32 [rows] or [rows, dim]
  void set_weight(int table, const Tensor& value);

  tsr_kernel_stats stats(int table) const;

 private:
  struct RowExport {
    const char* name;
    std::function<tsr_code(uint64_t* cursor, tsr_rows* rows, tsr_error* err)> call;
  };
  struct Room {  // for rows that are handed out
    int table;
    uint64_t& cursor;
    std::span<int64_t> ids;
    float* weights;
    std::span<float* const> states;
    void* extra;
  };
  int64_t export_by(const RowExport& function, const Room& room) const;
  template <class Call>
  void with_backward(Context&& context, const tsr_lookup& lookup, std::span<const Tensor> grad_outputs,
                     double grad_scale, const Tensor& grad_weights, const Call& call);
  template <class Take>
  void hand_out(Context&& context, const tsr_lookup& lookup, std::span<const Tensor> grad_outputs, double grad_scale,
                const Tensor& grad_weights, const Take& take);

  std::shared_ptr<Impl> impl_;
};

}  // namespace tessera
