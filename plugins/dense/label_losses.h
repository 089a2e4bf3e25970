// Losses of a prediction and a label; some compare the samples of a group. Labels get no gradient.
#pragma once

#include <vector>

#include "support.h"
#include "tessera/sdk/module.h"

namespace tessera_dense {

// A loss without state. Inputs: a prediction [batch, width], a label [batch, 1] and, if it compares samples, their
// groups, integer [batch, 1].
class LabelLoss : public tessera::sdk::Module {
 public:
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;

 protected:
  struct Samples {
    int64_t count, width;
    const float *values, *labels;
    const DLTensor* groups;  // NULL: none
  };
  // `width`: values of a prediction; 0: two or more.
  LabelLoss(const char* loss, int64_t width, bool groups) : loss_(loss), width_(width), groups_(groups) {}
  // Throws Failure unless every label is 0 or 1.
  void check_binary(const Samples& in) const;
  // Writes one value for each sample.
  virtual void values(const Samples& in, float* out) = 0;
  // Writes the gradient of the prediction, for gradients `grad` of the values.
  virtual void gradient(const Samples& in, const float* grad, float* out) = 0;

  const char* loss_;

 private:
  Samples samples_of(const tessera::sdk::ModuleCall& call) const;
  int64_t width_;
  bool groups_;
};

// "hinge": max(0, margin - t x), where t is 1 for label 1 and -1 for label 0. Option "margin" (1).
class Hinge : public LabelLoss {
 public:
  explicit Hinge(const tessera::sdk::Setup& setup);

 private:
  void values(const Samples& in, float* out) override;
  void gradient(const Samples& in, const float* grad, float* out) override;
  float margin_;
};

// "contrastive": draws pairs with label 1 together, and pushes pairs with label 0 apart up to a margin. The option
// "kind" says if the prediction x is a "similarity", such as a cosine: 1 - x for label 1, max(0, x - margin) for label
// 0 (PyTorch's CosineEmbeddingLoss); or a "distance": x^2 and max(0, margin - x)^2 (Hadsell et al., Dimensionality
// Reduction by Learning an Invariant Mapping, 2006). Option "margin": 0 for similarities, 1 for distances.
class Contrastive : public LabelLoss {
 public:
  explicit Contrastive(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void values(const Samples& in, float* out) override;
  void gradient(const Samples& in, const float* grad, float* out) override;
  bool distance_;
  float margin_;
};

// "softmax_cross_entropy": -log p_y, where p is the softmax of the prediction's C values, and y the label, from 0 to
// C - 1. Options: "class_weights" w, one for each class, and "label_smoothing" e: (1 - e) w_y (-log p_y) + e / C sum_c
// w_c (-log p_c), PyTorch's cross_entropy with reduction "none".
class SoftmaxCrossEntropy : public LabelLoss {
 public:
  static constexpr bool kClasses = true;
  explicit SoftmaxCrossEntropy(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void values(const Samples& in, float* out) override;
  void gradient(const Samples& in, const float* grad, float* out) override;
  size_t label(const Samples& in, int64_t sample) const;
  // Returns the loss of sample s. Writes its gradient times `grad` to `out` unless that is NULL.
  double sample(const Samples& in, int64_t s, double grad, float* out) const;
  double weight(size_t label) const { return weights_.empty() ? 1 : weights_[label]; }
  std::vector<double> weights_;
  double smoothing_;
};

// "jrc": a sample has two values, one for label 0 and one for label 1. The loss is alpha times their cross-entropy,
// plus 1 - alpha times the cross-entropy of the label's value among that value of all samples in the group (Sheng et
// al., Joint Optimization of Ranking and Calibration with Contextualized Hybrid Model, 2023). Option "alpha" (0.5).
class Jrc : public LabelLoss {
 public:
  explicit Jrc(const tessera::sdk::Setup& setup);

 private:
  void values(const Samples& in, float* out) override;
  void gradient(const Samples& in, const float* grad, float* out) override;
  // Calls body(first, last) for each group: its samples are order_[first] to order_[last - 1].
  template <class Body>
  void each_group(const Samples& in, const Body& body);
  double alpha_;
  std::vector<int64_t> order_;
};

}  // namespace tessera_dense
