// Layers without parameters that move rows of sequences: concat_sequences, split_sequences, last_row, rows_of, add.
#pragma once

#include <vector>

#include "sequences.h"

namespace tessera_dense {

// An input's rows of each sample: any number if it is a sequence, one if it is dense.
class SampleRows {
 public:
  SampleRows(const tessera::sdk::ModuleCall& call, size_t i, const char* layer);
  bool dense() const { return dense_; }
  int64_t begin(int64_t sample) const { return dense_ ? sample : offsets_[sample]; }
  int64_t count(int64_t sample) const { return dense_ ? 1 : offsets_[sample + 1] - offsets_[sample]; }
  const float* values(int64_t sample) const { return values_ + begin(sample) * width_; }
  // NULL: not wanted.
  float* gradient(int64_t sample) const { return gradient_ ? gradient_ + begin(sample) * width_ : nullptr; }

 private:
  int64_t width_;
  bool dense_;
  const int64_t* offsets_;
  const float* values_ = nullptr;
  float* gradient_ = nullptr;
};

// A layer that moves rows, and whose backward needs only the inputs. compute_back() adds to the inputs' gradients,
// which backward() has set to zeros.
class MovesRows : public tessera::sdk::Module {
 public:
  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override {
    parameter_data(call.parameters, parameters_, values_);
    compute(call);
    if (context) *context = reinterpret_cast<tsr_module_context*>(this);
  }
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context*) override;

 protected:
  explicit MovesRows(const tessera::sdk::Setup& setup) : loops_(choose_loops()) {
    tessera::sdk::joined_width(setup.options);  // the value is not needed, because the inputs give their widths
  }
  virtual void compute(const tessera::sdk::ModuleCall& call) = 0;
  virtual void compute_back(const tessera::sdk::ModuleCall& call) = 0;
  // Returns the rows of all inputs, valid until the next call.
  const std::vector<SampleRows>& take_rows(const tessera::sdk::ModuleCall& call, const char* layer);

  const Loops& loops_;
  std::vector<tessera::sdk::Parameter> parameters_;
  std::vector<float*> values_, gradients_;  // of the parameters

 private:
  std::vector<SampleRows> rows_;
};

// The width of the inputs; throws Failure if they have different widths or are fewer than `least`.
int64_t one_width(std::span<const tessera::sdk::Value> inputs, size_t least, const char* layer);
float* output_rows(const tessera::sdk::ModuleCall& call, size_t k, const char* layer);
// Returns NULL if the gradient is all zeros.
const float* output_gradient(const tessera::sdk::ModuleCall& call, size_t k, const char* layer);
int64_t* written_offsets(const tessera::sdk::ModuleCall& call, size_t k);

// "concat_sequences": for each sample, the rows of the first input, then the rows of the second, and so on. A dense
// input has one row for each sample.
class ConcatSequences : public MovesRows {
 public:
  explicit ConcatSequences(const tessera::sdk::Setup& setup) : MovesRows(setup) {}
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void max_rows(const tessera::sdk::ModuleCall& call, std::span<int64_t> rows) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

// "split_sequences": the inverse of concat_sequences. The first output gets as many rows of the first input as the
// second input, a sequence, has; the second output gets the rest.
class SplitSequences : public MovesRows {
 public:
  explicit SplitSequences(const tessera::sdk::Setup& setup) : MovesRows(setup) {}
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void max_rows(const tessera::sdk::ModuleCall& call, std::span<int64_t> rows) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

// "last_row": a sample's last row; zeros if it has none.
class LastRow : public MovesRows {
 public:
  explicit LastRow(const tessera::sdk::Setup& setup) : MovesRows(setup) {}
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

// "rows_of": the last rows of each sample. RowCounts reads their number from the second input. If that is a sequence,
// the output has the same rows.
class RowsOf : public MovesRows {
 public:
  explicit RowsOf(const tessera::sdk::Setup& setup) : MovesRows(setup) {}
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void max_rows(const tessera::sdk::ModuleCall& call, std::span<int64_t> rows) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

// "add": the sum of inputs of one width. The first is a sequence. Each other input has the same rows, or one row for
// each sample, which is added to all rows of the sample.
class Add : public MovesRows {
 public:
  explicit Add(const tessera::sdk::Setup& setup) : MovesRows(setup) {}
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

}  // namespace tessera_dense
