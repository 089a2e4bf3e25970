// Layers without parameters that move rows of sequences: concat_sequences, split_sequences, last_row, rows_of, add.
#pragma once

#include <vector>

#include "sequences.h"

namespace tessera_dense {

// An input's rows of each sample: those of a sequence, or the one of a dense input.
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

// Backward needs only the inputs. Gradients of inputs are zeros before compute_back(), which adds to them.
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
  // The rows of all inputs; valid until the next call.
  const std::vector<SampleRows>& take_rows(const tessera::sdk::ModuleCall& call, const char* layer);

  const Loops& loops_;
  std::vector<tessera::sdk::Parameter> parameters_;
  std::vector<float*> values_, gradients_;  // of the parameters

 private:
  std::vector<SampleRows> rows_;
};

// The width of inputs, which must be equal.
int64_t one_width(std::span<const tessera::sdk::Value> inputs, size_t least, const char* layer);
float* output_rows(const tessera::sdk::ModuleCall& call, size_t k, const char* layer);
// NULL: all zeros.
const float* output_gradient(const tessera::sdk::ModuleCall& call, size_t k, const char* layer);
int64_t* written_offsets(const tessera::sdk::ModuleCall& call, size_t k);

// "concat_sequences": for each sample the rows of the first input, then those of the second, and so on. A dense input
// is one row for each sample.
class ConcatSequences : public MovesRows {
 public:
  explicit ConcatSequences(const tessera::sdk::Setup& setup) : MovesRows(setup) {}
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void max_rows(const tessera::sdk::ModuleCall& call, std::span<int64_t> rows) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

// "split_sequences": the inverse. The second input is a sequence with as many rows as the first output gets; the second
// output gets the rest.
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

// "rows_of": the last rows of each sample, as many as RowCounts reads in the second input, whose rows they have if it
// has any.
class RowsOf : public MovesRows {
 public:
  explicit RowsOf(const tessera::sdk::Setup& setup) : MovesRows(setup) {}
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void max_rows(const tessera::sdk::ModuleCall& call, std::span<int64_t> rows) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

// "add": the sum of inputs of one width. The first is a sequence; others have its rows, or one row for each sample,
// which is added to all rows of the sample.
class Add : public MovesRows {
 public:
  explicit Add(const tessera::sdk::Setup& setup) : MovesRows(setup) {}
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

}  // namespace tessera_dense
