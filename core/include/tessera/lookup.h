// tessera/lookup.h - a kernel/1 instance: a group of tables (or shards) that are looked up and updated together.
//
// The kernel owns the rows. One object is used by one thread at a time.
//
// On a device, calls whose tensors are also there only enqueue on options().stream. Tensors in host memory are copied
// to the device and back, and the call waits: always correct, but slow.
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
#include "tessera/runtime.h"
#include "tessera/tensor.h"

namespace tessera {

// Start values of rows: a tsr_start_formula (abi/kernel.h), or 0 if its scale is 0.
struct StartValues {
  tsr_start_formula formula{};
  // For routed shards: maps the shard's rows to the table's, which replace first_row + row.
  std::function<void(std::span<const int64_t> rows, int64_t* table_rows)> unroute;

  // Fills out [rows.size(), dim].
  void fill(std::span<const int64_t> rows, int64_t dim, float* out) const;
};

struct LookupTable {
  std::string name;
  int64_t rows = 0;
  int64_t dim = 0;
  std::string options;    // JSON for this table, for kernels that take any: abi/kernel.h; empty: none
  uint32_t poolings = 0;  // bits 1 << TSR_POOLING_* of its lookups; 0: not known yet
  StartValues start;
  bool any_id = false;  // TSR_TABLE_ANY_ID
};

struct LookupOptions {
  std::string kernel = "auto";           // plugin id: "reference", "cpu", "cuda"; auto: the best that supports this
  std::string compute_kernel = "dense";  // "fused": backward() updates; "dense": backward_rows() returns gradients
  bool train = true;
  // The stream of the device that holds the rows. Null: the CPU, or if `kernel` does not serve it, the first device
  // that it serves.
  std::shared_ptr<DeviceStream> stream;
  DType weight_dtype = DType::kFloat32;
  std::optional<RowFormat> row_format;  // storage format of tables that only infer, instead of weight_dtype
  DType output_dtype = DType::kFloat32;
  std::vector<LookupTable> tables;
  OptimizerSpec optimizer;  // for "fused" and for apply(); name empty: none
  uint64_t seed = 0;        // the job's, for a kernel's random choices (tsr_kernel_config::seed)
};

// Gradient of one table: rows int64 [u] ascending and unique, values float32 [u, dim].
struct RowGradient {
  Tensor rows;
  Tensor values;
};

// A matrix in a kernel's memory (abi/draft/rows_view.h): element (r, c) is element r * stride + c of `data`.
struct MatrixView {
  void* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  DType dtype = DType::kFloat32;
  Device device;
};

class Lookup {
  struct Impl;

 public:
  // kUnimplemented: no kernel supports the options; the error has each candidate's reason.
  Lookup(const Runtime& runtime, LookupOptions options);
  ~Lookup();
  Lookup(Lookup&&) noexcept;
  Lookup& operator=(Lookup&&) noexcept;

  const LookupOptions& options() const;
  const std::string& kernel_id() const;
  // True: the compute kernel's backward() updates the rows ("fused"). False: use backward_rows() and apply() ("dense").
  bool updates_in_backward() const;
  // True if calls may have several outputs, and output_rows (TSR_KERNEL_PLACES_ROWS).
  bool places_rows() const;

  // True for a kernel that makes rows from their start values by itself. Others get them through write_rows.
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

  // True if the kernel wants to see ids before they are looked up. Another thread may call prefetch() during other
  // calls (abi/draft/prefetch.h).
  bool prefetches() const;
  void prefetch(const tsr_lookup& lookup) const;
  // `lookup` is as in abi/kernel.h, but num_outputs, flags, step and time are set here. Ids must have been checked.
  // context nullptr: no backward follows, and nothing changes (TSR_LOOKUP_READ_ONLY). More than one output, or
  // gradient, needs places_rows().
  void forward(const tsr_lookup& lookup, std::span<const Tensor> outputs, Context* context);
  void forward(const tsr_lookup& lookup, const Tensor& output, Context* context) {
    forward(lookup, std::span(&output, 1), context);
  }
  // Fused: updates rows with learning_rate() and step() + 1, and counts the step.
  void backward(Context&& context, const tsr_lookup& lookup, std::span<const Tensor> grad_outputs,
                double grad_scale = 1, const Tensor& grad_weights = {});
  void backward(Context&& context, const tsr_lookup& lookup, const Tensor& grad_output, double grad_scale = 1,
                const Tensor& grad_weights = {}) {
    backward(std::move(context), lookup, std::span(&grad_output, 1), grad_scale, grad_weights);
  }
  // Unfused: returns one gradient per table, copied to host memory.
  std::vector<RowGradient> backward_rows(Context&& context, const tsr_lookup& lookup,
                                         std::span<const Tensor> grad_outputs, double grad_scale = 1,
                                         const Tensor& grad_weights = {});
  std::vector<RowGradient> backward_rows(Context&& context, const tsr_lookup& lookup, const Tensor& grad_output,
                                         double grad_scale = 1, const Tensor& grad_weights = {}) {
    return backward_rows(std::move(context), lookup, std::span(&grad_output, 1), grad_scale, grad_weights);
  }
  // Does the same one table after the other, without copies. `take` may read the views while it runs, and so may work
  // that it enqueues on options().stream.
  using TakeRows = std::function<void(int table, const RowGradient& views)>;
  void backward_rows(Context&& context, const tsr_lookup& lookup, const Tensor& grad_output, double grad_scale,
                     const TakeRows& take);
  // Applies the optimizer's update for given gradients. It does not count the step: call count_step() once for all
  // tables.
  void apply(int table, const RowGradient& gradient);
  void count_step();

  double learning_rate() const;
  void set_learning_rate(double value);
  int64_t step() const;
  void set_step(int64_t step);

  struct State {
    std::string name;     // "momentum1"
    bool per_row = true;  // one value for each row, instead of one for each element
    double start = 0;     // each value before the first update
  };
  const std::vector<State>& states() const;

  // Reads rows [first, first + count) of a table: weights float32 [count, dim], states[k] [count] or [count, dim],
  // extra [count, extra_bytes(table)]. Null: not wanted. kUnimplemented: the kernel has no row ranges.
  void read_rows(int table, int64_t first, int64_t count, float* weights, std::span<float* const> states = {},
                 void* extra = nullptr) const;
  void write_rows(int table, int64_t first, int64_t count, const float* weights,
                  std::span<const float* const> states = {}, const void* extra = nullptr);
  // Bytes per row, beside values and states, that only the kernel understands; usually 0.
  int64_t extra_bytes(int table) const;
  // Access to rows by id, for a kernel with on-demand rows (TSR_KERNEL_ROWS_ON_DEMAND). These replace the two above.
  bool rows_on_demand() const;
  // Reads as many rows as `ids` has capacity for, starting at `cursor`, which is 0 at first and advances. Returns their
  // number; 0: the end. The table must not change meanwhile.
  int64_t export_rows(int table, uint64_t& cursor, std::span<int64_t> ids, float* weights,
                      std::span<float* const> states = {}, void* extra = nullptr) const;
  void import_rows(int table, std::span<const int64_t> ids, const float* weights,
                   std::span<const float* const> states = {}, const void* extra = nullptr);
  void clear_rows(int table);  // removes all its rows
  // Bytes that such a kernel keeps for a table beside its rows (abi/draft/on_demand.h); empty: none.
  // add_table_extra() adds to the existing ones, once for each saved shard.
  std::string table_extra(int table) const;
  void add_table_extra(int table, std::string_view saved);
  // Statistics of such a table: its capacity and the age of its rows, if the kernel reports them
  // (abi/draft/on_demand.h), and its counters.
  RowFigures row_figures(int table) const;
  // True if ids without a row share one (abi/draft/on_demand.h).
  bool shares_row(int table) const;
  // Tracks changed rows (abi/draft/changes.h), separately for each follower. After mark_changes() the kernel remembers
  // changes of all tables, and forgets earlier ones. The other calls return the number of changes since the mark, those
  // rows, or the ids of removed rows, in the way of export_rows. kUnimplemented: the kernel does not know.
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
  // Replaces the table's rows by these, uint8 [rows, bytes from row to row] in row_format, which are read in place.
  // kUnimplemented: the kernel copies all rows.
  void adopt_rows(int table, const Tensor& rows);
  // Returns a view of a table's rows, or of a state if `state` >= 0, which is valid as long as the kernel's instance
  // lives. kUnimplemented: the kernel gives none.
  MatrixView view(int table, int state = -1) const;
  Tensor weight(int table) const;        // a copy, float32 [rows, dim]
  Tensor state(int table, int k) const;  // a copy, float32 [rows] or [rows, dim]
  void set_weight(int table, const Tensor& value);

  tsr_kernel_stats stats(int table) const;

 private:
  struct RowExport {
    const char* name;
    std::function<tsr_code(uint64_t* cursor, tsr_rows* rows, tsr_error* err)> call;
  };
  struct Room {  // memory for exported rows
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
