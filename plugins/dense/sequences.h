// Layers over sequences. A sequence is an input whose number of rows differs from sample to sample.
#pragma once

#include <vector>

#include "chain_layer.h"

namespace tessera_dense {

// The rows of a jagged input: sample s has [offsets[s], offsets[s + 1]).
struct Sequence {
  const float* rows;
  const int64_t* offsets;
  int64_t count, width;  // number of rows of all samples, values per row
};

// Input `i` of a call, which must be a sequence of float32 rows, `width` wide (0: any).
Sequence sequence_of(const tessera::sdk::ModuleCall& call, size_t i, int64_t width, const char* layer);
// The offsets of input `i`, which must be a sequence.
const int64_t* offsets_of(const tessera::sdk::ModuleCall& call, size_t i, const char* layer);
// The width of a value that must be a sequence of float32 rows.
int64_t width_of_rows(const tessera::sdk::Value& value, const char* layer);

// Element i of integers, int32 or int64.
inline int64_t integer_at(const DLTensor& tensor, int64_t i) {
  return tensor.dtype.bits == 32 ? tessera::sdk::data_as<int32_t>(tensor)[i]
                                 : tessera::sdk::data_as<int64_t>(tensor)[i];
}
inline bool is_float(DLDataType type) { return tessera::sdk::same_dtype(type, tessera::sdk::dtype_of<float>()); }
// Checks that a side input has an integer for each row of the sequence `like`, or for each sample if that is NULL.
void check_integers(const tessera::sdk::Value& value, const tessera::sdk::Value* like, const char* layer,
                    const char* what);

// A side input of integers: one for each row of a sequence, or one for each sample.
class IntegerRows {
 public:
  IntegerRows(const tessera::sdk::ModuleCall& call, size_t i, const char* layer);
  int64_t count(int64_t sample) const { return offsets_ ? offsets_[sample + 1] - offsets_[sample] : 1; }
  int64_t at(int64_t sample, int64_t row) const {
    return integer_at(*values_, offsets_ ? offsets_[sample] + row : sample);
  }

 private:
  const DLTensor* values_;
  const int64_t* offsets_ = nullptr;  // NULL: one for each sample
};

// A side input that gives a number of rows for each sample. It has an integer for each sample, or it has rows, which
// are counted: those of a sequence, or one for each sample.
class RowCounts {
 public:
  RowCounts() = default;  // counts none
  RowCounts(const tessera::sdk::ModuleCall& call, size_t i, const char* layer);
  bool given() const { return values_ != nullptr; }
  int64_t of(int64_t sample) const {
    if (offsets_) return offsets_[sample + 1] - offsets_[sample];
    return values_ ? is_float(values_->dtype) ? 1 : integer_at(*values_, sample) : 0;
  }
  static void check(const tessera::sdk::Value& value, const char* layer, const char* what);

 private:
  const DLTensor* values_ = nullptr;
  const int64_t* offsets_ = nullptr;
};

// Option "drawn", which the core gives to layers: a number for each input. The ids of a batch are rows of its first
// sample. A layer checks it in outputs(), because the core makes a layer again without the option if it is refused.
class DrawnInputs {
 public:
  enum Draw : int64_t { kNot, kAll, kPerBatch, kPerSample };
  explicit DrawnInputs(tessera::sdk::Options& options) : drawn_(options.integers("drawn", {})) {}
  int64_t of(size_t input) const { return input < drawn_.size() ? drawn_[input] : kNot; }
  // Refuses candidates of a batch if each sample should have its own, and the reverse.
  void check(size_t candidates, bool per_sample, const char* layer) const;

 private:
  std::vector<int64_t> drawn_;
};

// Writes zeros to the gradient of input `i`, if it is wanted: the output does not depend on the input's values.
void clear_gradient(const tessera::sdk::ModuleCall& call, size_t i);

// Maps a sequence to one row per sample, of the same width.
class SequenceLayer : public tessera::sdk::Module {
 public:
  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;

 protected:
  SequenceLayer(const tessera::sdk::Setup& setup, const char* layer)
      : layer_(layer), width_(tessera::sdk::joined_width(setup.options)), loops_(*choose_loops().of_rows) {}
  // Pools the `count` rows of a sample into one. `parameter` is the layer's only parameter, NULL if it has none.
  virtual void pool(int64_t count, int64_t width, const float* rows, const float* parameter, float* out) const = 0;
  // Adds the gradients. `drows` has zeros, or is NULL if not wanted; `dparameter` is NULL if there is no parameter.
  virtual void pool_back(int64_t count, int64_t width, const float* rows, const float* parameter, const float* dout,
                         float* drows, float* dparameter) const = 0;

  const char* layer_;
  int64_t width_;  // 0: any
  const RowLoops& loops_;
  std::vector<tessera::sdk::Parameter> parameters_;

 private:
  std::vector<float*> pointers_, gradients_;
};

// "sum_pooling", "mean_pooling" and "max_pooling" give zeros for a sample without rows. In max_pooling, a column's
// gradient goes to the first row that has the maximum.
class SumPooling : public SequenceLayer {
 public:
  explicit SumPooling(const tessera::sdk::Setup& setup, bool mean = false)
      : SequenceLayer(setup, mean ? "mean_pooling" : "sum_pooling"), mean_(mean) {}

 private:
  void pool(int64_t count, int64_t width, const float* rows, const float* parameter, float* out) const override;
  void pool_back(int64_t count, int64_t width, const float* rows, const float* parameter, const float* dout,
                 float* drows, float* dparameter) const override;
  bool mean_;
};
class MeanPooling : public SumPooling {
 public:
  explicit MeanPooling(const tessera::sdk::Setup& setup) : SumPooling(setup, true) {}
};
class MaxPooling : public SequenceLayer {
 public:
  explicit MaxPooling(const tessera::sdk::Setup& setup) : SequenceLayer(setup, "max_pooling") {}

 private:
  void pool(int64_t count, int64_t width, const float* rows, const float* parameter, float* out) const override;
  void pool_back(int64_t count, int64_t width, const float* rows, const float* parameter, const float* dout,
                 float* drows, float* dparameter) const override;
};

// "position_weights": the sum of the rows, with row j multiplied by trained weight j. This is TorchRec's
// PositionWeightedModule followed by a sum. Sequences longer than the option "max_length" are refused. Parameter
// "position_weight" [max_length].
class PositionWeights : public SequenceLayer {
 public:
  explicit PositionWeights(const tessera::sdk::Setup& setup);

 private:
  void check_length(int64_t count) const;
  void pool(int64_t count, int64_t width, const float* rows, const float* parameter, float* out) const override;
  void pool_back(int64_t count, int64_t width, const float* rows, const float* parameter, const float* dout,
                 float* drows, float* dparameter) const override;
  int64_t max_length_ = 0;
};

// "target_attention": from a target q [batch, d] and a sequence of rows k, computes the sum of score(q, k) * k. The
// scores are an mlp of [q, k, q - k, q * k] with one output, used directly or (option "softmax") after a softmax over
// the sequence (Zhou et al., Deep Interest Network, 2018).
class TargetAttention : public tessera::sdk::Module {
 public:
  static constexpr bool kPrecision = true;
  static constexpr bool kInt8 = true;
  explicit TargetAttention(const tessera::sdk::Setup& setup);

  const std::vector<tessera::sdk::Parameter>& parameters() const override { return chain_.parameters(); }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    Floats features;  // [rows, 4 d]
    Floats scores;    // [rows], the weights of the sum
    Floats kept;      // what the chain keeps
  };
  void add_rows_gradients(const tessera::sdk::ModuleCall& call, const Context& kept, const float* dfeatures) const;

  tessera::sdk::Host host_;
  const RowLoops& loops_;
  int64_t width_;
  bool softmax_;
  Chain chain_;
  ChainCall pointers_;
  ContextPool<Context> contexts_;
  Floats dscores_, dfeatures_;
};

}  // namespace tessera_dense
