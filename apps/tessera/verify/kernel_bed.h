// A kernel instance with random tables and batches, and the same tables in plain loops for comparison.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/sdk/kernel.h"
#include "verify/check.h"

namespace tessera::cli::verify {

inline constexpr DLDataType kFloat32{kDLFloat, 32, 1};
inline constexpr DLDataType kFloat16{kDLFloat, 16, 1};
inline constexpr DLDataType kBFloat16{kDLBfloat, 16, 1};
const char* name_of(DLDataType type);  // such as "float16"

// A tensor that owns its memory, followed by guard bytes that must not be written.
class Array {
 public:
  Array(DLDataType type, std::vector<int64_t> shape);
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  const DLTensor* raw() const { return &tensor_; }
  int64_t size() const { return size_; }
  double get(int64_t i) const;
  void set(int64_t i, double value);
  template <class T>
  T* data() {
    return reinterpret_cast<T*>(bytes_.data());
  }
  void check_end(const std::string& who) const;  // throws Broken if `who` wrote beyond the end

 private:
  std::vector<int64_t> shape_;
  int64_t size_;
  std::vector<unsigned char> bytes_;
  DLTensor tensor_;
};

struct TableShape {
  int64_t rows, dim;
};
struct KernelShape {
  std::vector<TableShape> tables;
  DLDataType weights = kFloat32, output = kFloat32;
  std::string compute_kernel = "fused", table_options = "";  // JSON, or empty
  bool train = true;
  double max_gradient = 0;
  std::string text() const;
};

struct BatchShape {
  int64_t bags = 12, longest = 6;
  bool weighted = false, wide = true;  // wide: int64 ids, otherwise int32
  std::vector<int32_t> poolings;       // per feature; feature f reads table f % tables
  bool listed = false;                 // features list their rows, over two outputs
};

// Jagged bags, ids with many repeats, in one or two outputs with unused gaps.
struct LookupBatch {
  LookupBatch(Random& random, const KernelShape& shape, const BatchShape& how);
  std::vector<tsr_lookup_feature> features;
  std::unique_ptr<Array> ids, offsets, weights, rows;
  std::vector<int64_t> sizes;  // of the outputs
  tsr_lookup raw{};

  int64_t begin(const tsr_lookup_feature& f, int64_t bag) const {
    return static_cast<int64_t>(offsets->get(f.first_offset + bag));
  }
  int64_t ids_of(uint32_t table) const;  // ids looked up in this table
  // Index of the first output element that position p of bag b is written to.
  int64_t place(const tsr_lookup_feature& f, int64_t bag, int64_t position) const;
};

// The value that outputs have before forward writes them.
inline constexpr double kUntouched = 77;

// Tensors for a batch's outputs, or for their gradients.
class Outputs {
 public:
  Outputs(const LookupBatch& batch, DLDataType type);
  const DLTensor* raw() const { return raw_.data(); }
  Array& operator[](size_t i) { return *arrays_[i]; }
  size_t size() const { return arrays_.size(); }
  void fill(double value);
  void randomize(Random& random);

 private:
  std::vector<std::unique_ptr<Array>> arrays_;
  std::vector<DLTensor> raw_;
};

// The kernel reported that it does not support a lookup.
class Unimplemented : public Broken {
  using Broken::Broken;
};

class KernelBed {
 public:
  struct Parts {
    Subject& subject;
    const tsr_instance& kernel;
    const tsr_instance& optimizer;
    std::string optimizer_options;
    KernelShape shape;
  };
  explicit KernelBed(Parts parts, bool longer_structs = false);
  ~KernelBed();
  KernelBed(const KernelBed&) = delete;
  KernelBed& operator=(const KernelBed&) = delete;

  const KernelShape& shape() const { return parts_.shape; }
  const tsr_instance& optimizer() const { return parts_.optimizer; }
  const sdk::OptimizerRef& updates() const { return updates_; }
  const tsr_kernel& api() const { return api_; }
  const tsr_kernel_config& config() const { return config_; }
  Subject& subject() const { return parts_.subject; }
  bool updates_rows() const {
    return shape().train && shape().compute_kernel != TSR_COMPUTE_DENSE && TSR_HAS(tsr_kernel, &api_, backward);
  }
  uint32_t num_states() const { return updates_rows() ? updates_.num_states() : 0; }
  int64_t state_width(uint32_t k, size_t table) const;

  // Call before open(): row r of a table starts with start_value(kind, table, r, column) instead of 0.
  void start_values(int64_t kind);
  static float start_value(int64_t kind, uint32_t table, int64_t row, int64_t col) {
    return static_cast<float>((row * 31 + col * 7 + int64_t{table} * 3 + kind * 13) % 64 - 32) / 64;
  }

  std::string why_not() const;  // the reason given by supports(); "" if supported
  tsr_code try_open(Call& call);
  void open();  // throws Skipped if not supported
  void close();

  tsr_context* forward(const LookupBatch& batch, Outputs& out, bool backward_follows);
  void backward(const LookupBatch& batch, tsr_context* context, const Outputs& grad, Array* grad_weights, double scale,
                int64_t step);
  std::vector<tsr_row_gradient> backward_rows(const LookupBatch& batch, tsr_context* context, const Outputs& grad,
                                              Array* grad_weights, double scale);
  void release(tsr_context* context);
  // The code of a backward whose tsr_update has these flags.
  tsr_code backward_with(uint32_t update_flags, const LookupBatch& batch, tsr_context* context, const Outputs& grad,
                         Call& call);
  void* instance() const { return instance_; }

  struct Rows {
    std::vector<int64_t> ids;
    std::vector<float> weights;              // [count, dim]
    std::vector<std::vector<float>> states;  // [count, width]
  };
  Rows export_rows(size_t table, int64_t at_once);
  Rows read_rows(size_t table, const std::vector<int64_t>& ids);
  void import_rows(size_t table, Rows& rows, uint32_t flags = 0);

 private:
  tsr_backward arguments(const LookupBatch& batch, const Outputs& grad, Array* grad_weights, double scale,
                         int64_t step);  // valid until the next call
  struct Room;
  Parts parts_;
  const tsr_kernel& api_;
  struct LongTable {
    tsr_kernel_table table;
    unsigned char more[24];
  };
  std::vector<LongTable> tables_;
  struct {
    tsr_kernel_config config;
    unsigned char more[48];
  } long_config_{};
  tsr_kernel_config& config_ = long_config_.config;
  const sdk::OptimizerRef updates_;
  int64_t start_kind_ = 0;
  tsr_start_values start_values_{};
  void* instance_ = nullptr;
  tsr_update update_{};
};

// The tables of a bed in plain loops, in doubles; updates use the bed's optimizer.
class PlainTables {
 public:
  // Makes random rows, which are also imported into the bed.
  PlainTables(KernelBed& bed, Random& random);

  // Compares with the expected outputs. Throws Broken that names the first wrong element.
  void compare_outputs(const LookupBatch& batch, Outputs& got) const;
  // Sums of each row's gradients, by table and row.
  using RowGradients = std::vector<std::map<int64_t, std::vector<double>>>;
  RowGradients gradients(const LookupBatch& batch, Outputs& grad, double scale) const;
  void compare_weight_gradients(const LookupBatch& batch, Outputs& grad, double scale, const Array& got) const;
  void update(const RowGradients& gradients, int64_t step);
  // Call once per update. The kernel's rows replace those here, so that different rounding does not accumulate.
  // Compares each element, and the change of all elements of a table together, which shows a gradient 1 % off.
  void compare_rows(KernelBed& bed, const std::string& when);

 private:
  std::vector<float*> states_of(size_t table, int64_t row);
  void compare_changes(size_t table, const KernelBed::Rows& got, const std::string& when) const;
  double value(const tsr_lookup_feature& f, int64_t id, int64_t d) const;
  double reaching(const LookupBatch& batch, const tsr_lookup_feature& f, int64_t bag, int64_t position, int64_t d,
                  Outputs& grad, double scale) const;
  int64_t winner(const LookupBatch& batch, const tsr_lookup_feature& f, int64_t bag, int64_t d) const;

  const KernelBed& bed_;
  KernelShape shape_;
  std::vector<KernelBed::Rows> rows_;
  std::vector<std::vector<float>> before_;    // weights before the updates since the last comparison; empty: no update
  std::vector<std::vector<double>> changes_;  // what these updates add, without the rounding of stored rows
};

// The learning rate of a step. It differs from those of the steps around it, so that a stale one is noticed.
inline double learning_rate_at(int64_t step) { return 0.015625 * static_cast<double>(1 + step * 3 % 5); }

// Forward, backward and update of a random batch, in both; compares the outputs.
void train_step(KernelBed& bed, PlainTables& plain, Random& random, int64_t step);
// The same with batches of a given shape.
void train_step(KernelBed& bed, PlainTables& plain, Random& random, int64_t step, const BatchShape& how);

}  // namespace tessera::cli::verify
