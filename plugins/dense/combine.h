// Layers without parameters that combine inputs: concat, dropout, sum, product, matmul, fm.
#pragma once

#include <vector>

#include "joined.h"
#include "loops.h"
#include "tessera/sdk/module.h"

namespace tessera_dense {

// A layer whose backward needs only the inputs, so that forward keeps nothing.
class Stateless : public tessera::sdk::Module {
 public:
  static constexpr bool kRowByRow = true;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override {
    compute(call);
    if (context) *context = reinterpret_cast<tsr_module_context*>(this);
  }
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context*) override {
    if (!nothing_comes_back(call)) compute_back(call);
  }

 protected:
  virtual void compute(const tessera::sdk::ModuleCall& call) = 0;
  virtual void compute_back(const tessera::sdk::ModuleCall& call) = 0;

 private:
};

// "concat": concatenates the inputs.
class Concat : public Stateless {
 public:
  explicit Concat(const tessera::sdk::Setup& setup)
      : host_(setup.host), joined_(setup.host, "concat", tessera::sdk::joined_width(setup.options)) {}
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override {
    return {tessera::sdk::Value{joined_.width_of(inputs)}};
  }

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
  tessera::sdk::Host host_;
  Joined joined_;
};

// "dropout": concatenates the inputs; training drops some of their values. Option "rate" (0.5).
class Dropout : public Stateless {
 public:
  explicit Dropout(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override {
    return {tessera::sdk::Value{joined_.width_of(inputs)}};
  }

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
  void pass(const tessera::sdk::ModuleCall& call, std::span<const DLTensor> parts, const DLTensor& whole,
            bool back) const;
  tessera::sdk::Host host_;
  double rate_;
  Joined joined_;
};

// "split_columns": divides the columns of the concatenated inputs into outputs. Option "widths" lists their widths.
class Split : public tessera::sdk::Module {
 public:
  static constexpr bool kRowByRow = true;
  explicit Split(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context*) override;

 private:
  void check_width(int64_t width) const;
  tessera::sdk::Host host_;
  std::vector<int64_t> widths_;
  Joined joined_;
};

// "sum" and "product" of the inputs, element by element. All inputs have the same width.
class Elementwise : public Stateless {
 public:
  Elementwise(const tessera::sdk::Setup& setup, const char* layer);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 protected:
  // Elements per input; all inputs have the same shape.
  int64_t size(const tessera::sdk::ModuleCall& call) const;
  tessera::sdk::Host host_;
  const char* layer_;
  const Loops& loops_;
};
class Sum : public Elementwise {
 public:
  explicit Sum(const tessera::sdk::Setup& setup) : Elementwise(setup, "sum") {}

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};
class Hadamard : public Elementwise {
 public:
  explicit Hadamard(const tessera::sdk::Setup& setup) : Elementwise(setup, "product") {}

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

// "logit_product": the logit of the product of several probabilities. The inputs are their logits, of the same width.
class LogitProduct : public Elementwise {
 public:
  explicit LogitProduct(const tessera::sdk::Setup& setup) : Elementwise(setup, "logit_product") {}

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

// "matmul": the product of two matrices for each sample. A matrix is stored row by row; the inputs are [rows * dim] and
// [dim * columns], the output [rows * columns]. Options "dim", and "transposed" (false): the second is [columns * dim].
class Matmul : public Stateless {
 public:
  explicit Matmul(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  struct Shape {
    int64_t rows, columns;
  };
  Shape shape_of(std::span<const int64_t> widths) const;
  Shape shape_of(const tessera::sdk::ModuleCall& call) const;
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
  const RowLoops& loops_;
  int64_t dim_;
  bool transposed_;
};

// "fm": ((sum of vectors)^2 - sum of squares) / 2, summed over elements, which is the sum of all pairs' dot products.
// The concatenated inputs consist of vectors of `dim` values. The output is one value. Option "dim" (1): with 1, every
// value is a vector, as in TorchRec's FactorizationMachine.
class Fm : public Stateless {
 public:
  explicit Fm(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void check_width(int64_t width) const;
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
  tessera::sdk::Host host_;
  const RowLoops& loops_;
  int64_t dim_;
  Joined joined_;
  Floats sums_;  // scratch
};

}  // namespace tessera_dense
