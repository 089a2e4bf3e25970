// A small model for the tests of checkpoints: four tables with different optimizers under any plan, and dense weights.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/test_directory.h"
#include "config/test_refusal.h"
#include "tessera/checkpoint.h"
#include "tessera/config.h"
#include "tessera/distributed_model_parallel.h"
#include "tessera/embedding_modules.h"

namespace tessera::test {

inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Path of the files of the newest checkpoint in `directory`.
inline std::string newest_in(const std::string& directory) {
  int64_t newest = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("save-", 0) == 0) newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
  }
  return directory + "/save-" + std::to_string(newest);
}

inline std::vector<EmbeddingBagConfig> test_tables() {
  const auto table = [](const char* name, int64_t rows, int64_t dim, const char* optimizer) {
    EmbeddingBagConfig t{.name = name, .num_embeddings = rows, .embedding_dim = dim, .feature_names = {name}};
    t.optimizer = {optimizer, R"({"learning_rate": 0.1})", 0};
    return t;
  };
  auto tables = std::vector{table("film", 41, 8, "exact_rowwise_adagrad"), table("user", 23, 8, "adam"),
                            table("tag", 17, 8, "exact_adagrad"), table("genre", 9, 8, "partial_rowwise_adam")};
  tables[2].data_type = DType::kFloat16;
  return tables;
}

using Combine = ParameterSharding::Combine;
using Cut = std::function<ParameterSharding(const EmbeddingBagConfig&, int world)>;

inline ParameterSharding whole(const EmbeddingBagConfig& t, int rank) {
  return {"table_wise", "fused", Combine::kConcat, false, {{t.num_embeddings, t.embedding_dim, 0, 0, rank}}};
}
inline ParameterSharding by_rows(const EmbeddingBagConfig& t, int world) {
  ParameterSharding p{"row_wise", "fused", Combine::kSum, false, {}};
  const int64_t block = (t.num_embeddings + world - 1) / world;
  for (int r = 0; r < world; ++r) {
    const int64_t first = std::min(t.num_embeddings, r * block);
    p.shards.push_back({std::min(block, t.num_embeddings - first), t.embedding_dim, first, 0, r});
  }
  return p;
}
// Columns of the given widths, dealt to the ranks in turn.
inline ParameterSharding by_columns(const EmbeddingBagConfig& t, int world, const std::vector<int64_t>& widths) {
  ParameterSharding p{"column_wise", "fused", Combine::kConcat, false, {}};
  int64_t col = 0;
  for (int64_t width : widths) {
    p.shards.push_back({t.num_embeddings, width, 0, col, static_cast<int>(p.shards.size()) % world});
    col += width;
  }
  return p;
}
inline ParameterSharding replicated(const EmbeddingBagConfig& t, int world) {
  ParameterSharding p{"data_parallel", "dense", Combine::kDataParallel, false, {}};
  for (int r = 0; r < world; ++r) p.shards.push_back({t.num_embeddings, t.embedding_dim, 0, 0, r});
  return p;
}
// The first rows are on every rank, the others are split by rows.
inline ParameterSharding hot(const EmbeddingBagConfig& t, int world) {
  constexpr int64_t kHot = 5;
  ParameterSharding p{"by_hand", "fused", Combine::kSum, false, {}};
  for (int r = 0; r < world; ++r) p.shards.push_back({kHot, t.embedding_dim, 0, 0, r, true});
  EmbeddingBagConfig cold = t;
  cold.num_embeddings -= kHot;
  for (ShardMetadata s : by_rows(cold, world).shards) {
    s.row += kHot;
    p.shards.push_back(s);
  }
  return p;
}
// Does the same as plugins/template's sharder: row r is on shard r mod `shards`.
inline ParameterSharding striped(const EmbeddingBagConfig& t, int world, int shards) {
  ParameterSharding p{"acme.stripe", "fused", Combine::kSum, true, {}};
  for (int s = 0; s < shards; ++s)
    p.shards.push_back({(t.num_embeddings - s + shards - 1) / shards, t.embedding_dim, 0, 0, s % world});
  return p;
}

struct TestModelOptions {
  std::vector<EmbeddingBagConfig> tables = test_tables();
  Cut cut = [](const EmbeddingBagConfig& t, int) { return whole(t, 0); };
  DenseOptimizerSpec dense{"adam", R"({"learning_rate": 0.05})"};
  std::string dense_name = "over_arch.model.1.weight";
  std::string kernel = "reference";
};

// The loss is 1/2 (pooled . w - y)^2, summed over a global batch that the ranks share.
class TestModel {
 public:
  static constexpr const char* kPath = "sparse_arch.embedding_bag_collection";
  static constexpr int64_t kBatch = 8;

  TestModel(const Runtime& runtime, std::shared_ptr<ProcessGroup> group, const TestModelOptions& options = {})
      : group_(std::move(group)), tables_(options.tables) {
    for (const EmbeddingBagConfig& t : tables_) width_ += t.embedding_dim;
    w_ = std::make_shared<Parameter>();
    w_->name = options.dense_name;
    w_->value = Tensor::empty({1, width_});
    for (int64_t i = 0; i < width_; ++i) w_->value.data<float>()[i] = 0.1f * static_cast<float>(i % 7 - 3);
    CollectionOptions describe{.tables = tables_, .device = kMeta};
    const EmbeddingBagCollection collection(runtime, std::move(describe));
    DistributedModelParallelOptions parallel;
    parallel.plan.emplace();
    parallel.plan->world_size = parallel.plan->local_world_size = group_->world_size();
    EmbeddingModuleShardingPlan plan;
    for (const EmbeddingBagConfig& t : tables_) plan.add(t.name, options.cut(t, group_->world_size()));
    parallel.plan->modules.emplace_back(kPath, plan);
    parallel.sharded.kernel = options.kernel;
    parallel.sharded.seed = 7;
    parallel.sharded.gradient_scale = parallel.sharded.data_parallel_gradient_scale = 1.0;
    parallel.sum_dense_gradients = true;
    ParallelModel model{.bag_collections = {{kPath, &collection}}, .dense = {w_}};
    parallel_ = std::make_unique<DistributedModelParallel>(runtime, model, group_, parallel);
    optimizer_ = make_dense_optimizer(options.dense, {w_});
  }

  // Runs steps [first, last) of the same training on any number of ranks. Returns the loss of each, summed over ranks.
  std::vector<double> train(int first, int last) {
    std::vector<double> losses;
    for (int step = first; step < last; ++step) losses.push_back(train_step(step));
    return losses;
  }
  void save(const std::string& directory, const std::string& progress = "{}") {
    save_checkpoint(directory, *parallel_, *optimizer_, progress);
  }
  std::string load(const std::string& directory) { return load_checkpoint(directory, *parallel_, *optimizer_); }

  DistributedModelParallel& parallel() { return *parallel_; }
  ShardedEmbeddingBagCollection& bags() { return parallel_->bags(kPath); }
  KeyedOptimizer& optimizer() { return *optimizer_; }
  Tensor dense() const { return w_->value; }

 private:
  KeyedJaggedTensor batch(int step, int64_t first, int64_t last) const {
    std::vector<std::string> keys;
    std::vector<int64_t> ids, lengths;
    for (size_t t = 0; t < tables_.size(); ++t) {
      keys.push_back(tables_[t].feature_names[0]);
      for (int64_t b = first; b < last; ++b) {
        lengths.push_back(1 + (b + step) % 3);
        for (int64_t i = 0; i < lengths.back(); ++i)
          ids.push_back((int64_t{step} * 31 + b * 7 + i * 5 + static_cast<int64_t>(t)) % tables_[t].num_embeddings);
      }
    }
    return KeyedJaggedTensor::from_lengths_sync(keys, Tensor::from(ids), Tensor::from(lengths));
  }

  double train_step(int step) {
    const int64_t share = kBatch / group_->world_size(), first = group_->rank() * share;
    auto out = bags().forward(batch(step, first, first + share)).wait();
    const Tensor grad = Tensor::empty({share, width_}), loss = Tensor::zeros({1}, DType::kFloat64);
    w_->grad = Tensor::zeros({1, width_});
    for (int64_t b = 0; b < share; ++b) {
      const float* x = out.values.values().data<float>() + b * width_;
      float error = static_cast<float>((first + b + step) % 5) - 2;
      for (int64_t i = 0; i < width_; ++i) error += x[i] * w_->value.data<float>()[i];
      loss.data<double>()[0] += 0.5 * error * error;
      for (int64_t i = 0; i < width_; ++i) {
        grad.data<float>()[b * width_ + i] = error * w_->value.data<float>()[i];
        w_->grad.data<float>()[i] += error * x[i];
      }
    }
    bags().backward(out, grad);
    parallel_->all_reduce_gradients();
    optimizer_->step();
    if (group_->world_size() > 1) group_->all_reduce(loss).wait();
    return loss.item();
  }

  std::shared_ptr<ProcessGroup> group_;
  std::vector<EmbeddingBagConfig> tables_;
  int64_t width_ = 0;
  ParameterPtr w_;
  std::unique_ptr<DistributedModelParallel> parallel_;
  KeyedOptimizerPtr optimizer_;
};

}  // namespace tessera::test
