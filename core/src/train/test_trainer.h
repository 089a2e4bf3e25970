// A trainer of one table on one rank, with losses given by its batches, for tests of the code that drives trainers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/train_loop.h"

namespace tessera::test {

inline const Runtime& runtime() {
  static const Runtime runtime({.plugin_path = {TESSERA_PLUGINS_BUILT}, .default_path = false});
  return runtime;
}

inline constexpr int64_t kRows = 10, kSamples = 2;

// Both samples have the step's number as label, and as id modulo rows.
inline void fill_batch(int64_t step, Batch& batch) {
  batch.dense = Tensor::empty({kSamples, 0});
  batch.labels = Tensor::from(std::vector<float>(kSamples, static_cast<float>(step)));
  batch.sparse = KeyedJaggedTensor::from_lengths_sync({"f"}, Tensor::from(std::vector<int64_t>(kSamples, step % kRows)),
                                                      Tensor::from(std::vector<int32_t>(kSamples, 1)));
  batch.global_size = kSamples;
}

class TestTrainer : public Trainer {
 public:
  TestTrainer() : group_(ProcessGroup::connect(runtime(), {})) {
    EmbeddingBagConfig table{.name = "t", .num_embeddings = kRows, .embedding_dim = 4, .feature_names = {"f"}};
    EmbeddingModuleShardingPlan plan;
    plan.add("t", {"table_wise", "fused", ParameterSharding::Combine::kConcat, false, {{kRows, 4, 0, 0, 0}}});
    ShardedModuleOptions options{.kernel = "reference", .optimizer = {"exact_sgd", "{}", 0}};
    tables_.emplace(EmbeddingBagCollectionSharder(runtime(), options).shard({table}, plan, group_));
  }

  bool step(const Batch& batch, TakenBatch taken, bool finished) override {
    taken_ += taken ? 1 : 0;
    const auto pooled =
        (taken ? tables_->forward(std::move(taken.pooled), false) : tables_->forward(batch.sparse, finished, false))
            .wait();
    labels_.push_back(batch.labels.item());
    losses_.push_back(loss_of_sample * static_cast<double>(kSamples));
    return pooled.any_finished;
  }
  using Trainer::step;
  std::vector<double> take_losses() override { return std::exchange(losses_, {}); }
  const ProcessGroup& group() const override { return *group_; }
  ShardedEmbeddingBagCollection& embeddings() override { return *tables_; }

  double loss_of_sample = 1;                                     // of the steps to come
  const std::vector<double>& labels() const { return labels_; }  // the batch's label for each step
  int taken() const { return taken_; }                           // batches taken by a pipeline

 private:
  std::shared_ptr<ProcessGroup> group_;
  std::optional<ShardedEmbeddingBagCollection> tables_;
  std::vector<double> losses_, labels_;
  int taken_ = 0;
};

}  // namespace tessera::test
