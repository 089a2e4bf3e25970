// Losses: one value per sample; their mean is the loss.
#pragma once

#include <vector>

#include "combine.h"
#include "joined.h"
#include "loops.h"
#include "weights.h"

namespace tessera_dense {

// "mse": the mean of the squared differences of a prediction and a label with the same width.
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
    const float* log_q;     // NULL if not given
    const DLTensor* ids;    // NULL if not given
    const float* log_sums;  // backward only
  };
  Inputs inputs_of(const tessera::sdk::ModuleCall& call) const;
  // For samples [begin, end): the logits of all items, [end - begin, batch], in scratch of the slot.
  float* logits(const Inputs& in, int64_t begin, int64_t end, float* scratch) const;
  int64_t block(int64_t batch) const;

  tessera::sdk::Host host_;
  float scale_;  // 1 / temperature
  ContextPool<Context> contexts_;
  Floats scratch_;
};

// "pairwise_loss": a loss of z = x_larger - x_smaller for every pair of samples with different labels. By the option
// "kind", it is "logistic", log(1 + exp(-z)) (RankNet; Burges et al., 2005), or "hinge", max(0, margin - z) (PyTorch's
// MarginRankingLoss), with the option "margin" (1). The value is assigned to the sample with the larger label, scaled
// so that the mean over samples is the mean over pairs. Inputs: values [batch, 1], labels [batch, 1], optionally
// groups, integer [batch, 1]; pairs are within one group. 0 without pairs.
class PairwiseLoss : public tessera::sdk::Module {
 public:
  explicit PairwiseLoss(const tessera::sdk::Setup& setup);

  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) override;

 private:
  // Calls body(larger, smaller) for every pair, in an order that depends only on labels and groups; returns the number
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

// "bpr": the logistic "pairwise_loss" of labels 0 and 1, -log sigmoid(x_positive - x_negative), within groups, which it
// needs: a user's items (Rendle et al., BPR: Bayesian Personalized Ranking from Implicit Feedback, 2009). It refuses to
// go on after ten large batches without any pair, because it would learn nothing.
class Bpr : public PairwiseLoss {
 public:
  explicit Bpr(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;

 private:
  void paired(const tessera::sdk::ModuleCall& call, int64_t pairs) override;
  int unpaired_ = 0;  // batches without a pair, one after the other
};

}  // namespace tessera_dense
