// Losses. Each gives one value per sample; the mean of the values is the loss.
#pragma once

#include <vector>

#include "combine.h"
#include "joined.h"
#include "loops.h"
#include "weights.h"

namespace tessera_dense {

// "mse": the mean of the squared differences between a prediction and a label of the same width.
class SquaredError : public Stateless {
 public:
  explicit SquaredError(const tessera::sdk::Setup& setup) { tessera::sdk::joined_width(setup.options); }
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

// "sampled_softmax": every other sample's item is a negative. Inputs: queries and items of one width; optionally, in
// any order, the logarithm of how often the item is drawn, float [batch, 1], and its id, integer [batch, 1]. The value
// of sample s is -log softmax over j of (q_s . i_j / temperature - log_q_j), at j = s. Another sample with the same id
// is not a negative (Yi et al., Sampling-Bias-Corrected Neural Modeling, 2019). Option "temperature" (1).
class SampledSoftmax : public tessera::sdk::Module {
 public:
  explicit SampledSoftmax(const tessera::sdk::Setup& setup);

  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;
  void release(tsr_module_context* context) noexcept override { contexts_.give_back(context); }

 private:
  struct Context {
    Floats log_sums;  // per sample, log of the softmax's denominator
  };
  struct Inputs {
    int64_t batch, width;
    const float *queries, *items;
    const float* log_q;     // NULL if there is no such input
    const DLTensor* ids;    // NULL if there is no such input
    const float* log_sums;  // from the context; only in backward
  };
  Inputs inputs_of(const tessera::sdk::ModuleCall& call) const;
  // Computes the logits of samples [begin, end) for all items, [end - begin, batch], in `scratch`, and returns them.
  float* logits(const Inputs& in, int64_t begin, int64_t end, float* scratch) const;
  int64_t block(int64_t batch) const;

  tessera::sdk::Host host_;
  float scale_;  // 1 / temperature
  ContextPool<Context> contexts_;
  Floats scratch_;
};

// "pairwise_loss": a loss of z = x_larger - x_smaller for every pair of samples with different labels. Option "kind":
// "logistic", log(1 + exp(-z)) (RankNet; Burges et al., 2005), or "hinge", max(0, margin - z) (PyTorch's
// MarginRankingLoss), with the option "margin" (1). A pair's loss is added to the value of its sample with the larger
// label, scaled so that the mean over samples is the mean over pairs; without pairs, all values are 0. Inputs: values
// [batch, 1], labels [batch, 1], optionally groups, integer [batch, 1]: pairs are then within one group.
class PairwiseLoss : public tessera::sdk::Module {
 public:
  explicit PairwiseLoss(const tessera::sdk::Setup& setup);

  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;

 private:
  // Calls body(larger, smaller) for every pair, in an order that depends only on labels and groups. Returns the number
  // of pairs.
  template <class Body>
  int64_t each_pair(const tessera::sdk::ModuleCall& call, const Body& body);
  bool hinge_;
  float margin_;
  std::vector<int64_t> order_;

 protected:
  explicit PairwiseLoss(bool hinge, float margin) : hinge_(hinge), margin_(margin) {}
  // Called with the pairs of each training batch.
  virtual void paired(const tessera::sdk::ModuleCall& /*call*/, int64_t /*pairs*/) {}
};

// "bpr": the logistic "pairwise_loss" of labels 0 and 1, -log sigmoid(x_positive - x_negative). Groups are required: a
// group is a user's items (Rendle et al., BPR: Bayesian Personalized Ranking from Implicit Feedback, 2009). Throws
// Failure after ten consecutive large batches without any pair, because it would learn nothing.
class Bpr : public PairwiseLoss {
 public:
  explicit Bpr(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;

 private:
  void paired(const tessera::sdk::ModuleCall& call, int64_t pairs) override;
  int unpaired_ = 0;  // consecutive large batches without a pair
};

}  // namespace tessera_dense
