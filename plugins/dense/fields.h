// Layers over fields: a value [batch, fields * dim] is a matrix [fields, dim] for each sample, with a row per feature.
// Every layer here has the option "dim". Backward recomputes everything from the inputs.
#pragma once

#include <vector>

#include "combine.h"
#include "weights.h"

namespace tessera_dense {

class FieldLayer : public Stateless {
 protected:
  FieldLayer(const tessera::sdk::Setup& setup, const char* layer);
  // The number of fields in a value of this width; throws Failure if it is not a multiple of "dim".
  int64_t fields_of(int64_t width) const;

  tessera::sdk::Host host_;
  const char* layer_;
  const RowLoops& loops_;
  int64_t dim_;
};

// "field_linear": each of "fields" outputs is a weighted sum of the input's fields, y_k = sum of w_kf x_f. Parameters
// "weight" [fields, fields of the input] and, with "bias" (false), "bias" [fields], which is added to all dim values.
class FieldLinear : public FieldLayer {
 public:
  explicit FieldLinear(const tessera::sdk::Setup& setup);
  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
  int64_t fields_, from_;
  Joined joined_;
  std::vector<tessera::sdk::Parameter> parameters_;
  std::vector<float*> pointers_, gradients_;
};

// "field_products": the product, element by element, of each field i of the first input and each field j of the second.
// With "later", both inputs have the same number of fields, and only pairs i < j count.
class FieldProducts : public FieldLayer {
 public:
  explicit FieldProducts(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
  int64_t pairs_of(int64_t x, int64_t y) const;
  // Calls body(i, j, k) for each pair k.
  template <class Body>
  void for_pairs(int64_t x, int64_t y, const Body& body) const {
    int64_t k = 0;
    for (int64_t i = 0; i < x; ++i) {
      for (int64_t j = later_ ? i + 1 : 0; j < y; ++j) body(i, j, k++);
    }
  }
  bool later_;
};

// "field_sum": the sum of each field's dim values, or their mean if "mean" (false) is set.
class FieldSum : public FieldLayer {
 public:
  explicit FieldSum(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
  float factor_;
  Joined joined_;
};

// "field_scale": multiplies each field of the first input by its value in the second, [batch, fields].
class FieldScale : public FieldLayer {
 public:
  explicit FieldScale(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

// "numeric_embedding": AutoDis (Guo et al., 2021). Each of the n input columns has "buckets" learnt rows. A number x
// becomes their sum weighted by softmax(z / temperature), where h = leaky_relu(x w) and z = W h + skip * h. Parameters:
// "weight" [n, buckets], "mix.weight" [n, buckets, buckets], "rows" [n, buckets, dim].
class NumericEmbedding : public FieldLayer {
 public:
  explicit NumericEmbedding(const tessera::sdk::Setup& setup);
  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
  // Computes h and the softmax p, each of "buckets" values, for the number x in column j.
  void weigh(int64_t j, float x, float* h, float* p) const;

  int64_t buckets_;
  float temperature_, skip_;
  Joined joined_;
  std::vector<tessera::sdk::Parameter> parameters_;
  std::vector<float*> pointers_, gradients_;
  Floats scratch_;
};

}  // namespace tessera_dense
