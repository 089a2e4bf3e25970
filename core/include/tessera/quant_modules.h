// tessera/quant_modules.h - embedding collections over quantized tables (quantized_table.h) on one rank, for inference
// only.
//
//   QuantEmbeddingBagCollection served(runtime, {.tables = quantize(trained, {.format = RowFormat::kInt8})});
//   KeyedTensor out = served.forward(batch);
//
// Ids are checked against the existing rows, by the same policies as in training. The caller's buffers never change.
// The id -1 (a pruned row) is valid: it contributes nothing, but counts in MEAN's length. One thread at a time uses a
// module, which must not outlive its Runtime. A second module made from options() shares the rows, so each thread can
// have its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/jagged_tensor.h"
#include "tessera/quantized_table.h"
#include "tessera/runtime.h"
#include "tessera/sharded_modules.h"

namespace tessera {

struct QuantCollectionOptions {
  std::vector<QuantizedTable> tables = {};
  bool is_weighted = false;              // the batch's weights scale lookups: SUM, or MEAN by the bag's length
  DType output_dtype = DType::kFloat32;  // or kFloat16, kBFloat16
  std::string kernel = "auto";           // kernel plugin for the compute kernel "quant"
  BoundsCheckMode bounds_check = BoundsCheckMode::kFatal;
  bool bad_ids_become_0 = false;  // kIgnore, kWarning: look up a bad id as id 0 (TorchRec) instead of dropping it
};

// The common base of the two collections.
class QuantEmbeddings {
 public:
  virtual ~QuantEmbeddings();
  QuantEmbeddings(const QuantEmbeddings&) = delete;
  QuantEmbeddings& operator=(const QuantEmbeddings&) = delete;

  const QuantCollectionOptions& options() const;
  const std::vector<QuantizedTable>& tables() const { return options().tables; }
  const QuantizedTable& table(std::string_view name) const;  // kNotFound lists the tables
  const std::vector<std::string>& embedding_names() const;   // the output's keys, in the float collection's order
  const std::vector<std::string>& kernel_ids() const;        // kernel of each table
  // "embedding_bags.<table>.weight" or "embeddings.<table>.weight", in table order: the names of QuantizedTable::rows.
  std::vector<std::string> state_dict_keys() const;
  int64_t bad_ids(std::string_view table) const;  // since construction; kWarning logs the first

 protected:
  struct Impl;
  QuantEmbeddings(const Runtime& runtime, QuantCollectionOptions options, std::string prefix);
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Pooled lookups. The constructor throws kInvalidArgument for two tables of one name, or rows that do not fit their
// table.
class QuantEmbeddingBagCollection : public QuantEmbeddings {
 public:
  QuantEmbeddingBagCollection(const Runtime& runtime, QuantCollectionOptions options);
  // Returns a KeyedTensor [batch, sum of dims] in output_dtype with keys embedding_names(), whatever the batch's order.
  // Other keys of the batch are ignored. kNotFound: a feature is missing. kOutOfRange: bounds.h. kInvalidArgument:
  // weights are missing, or features have different numbers of samples.
  KeyedTensor forward(const KeyedJaggedTensor& features);
  // Writes the same to the caller's `values`, [batch, width()] in output_dtype. Allocates nothing that grows with the
  // batch while all ids are in range and no table is remapped.
  void forward_into(const KeyedJaggedTensor& features, const Tensor& values);
  int64_t width() const;  // sum of dims
};

// Lookups without pooling. The constructor throws kInvalidArgument for two tables of one name, or of different dims.
class QuantEmbeddingCollection : public QuantEmbeddings {
 public:
  QuantEmbeddingCollection(const Runtime& runtime, QuantCollectionOptions options);
  // Returns embedding_names() -> JaggedTensor with values [ids of the feature, dim] and the batch's lengths. Dropped
  // ids give rows of zeros.
  JaggedTensorDict forward(const KeyedJaggedTensor& features);
};

// Returns the undecoded rows of a kInt8 table, uint8 [ids, 4 + dim]: scale, bias and codes of each id, for callers that
// decode elsewhere. kOutOfRange: an id has no row; the error names it.
Tensor gather_stored_rows(const QuantizedTable& table, const Tensor& ids);

// Gives a batch weights by the position of ids: weights[f][j] for the j-th id of a bag of feature f, and 1 for other
// features. kInvalidArgument: a bag is longer than its feature's weights.
struct PositionWeights {
  std::string feature;
  Tensor weights;  // float32 [longest bag]
};
KeyedJaggedTensor with_position_weights(const KeyedJaggedTensor& batch, const std::vector<PositionWeights>& weights);

// Spreads quantized tables over ranks with the plans, sharders and transports of training.
//
//   auto plan = construct_module_sharding_plan(runtime, configs_of(tables), quant_requests, topology);
//   auto sharded = QuantEmbeddingBagCollectionSharder(runtime, {}).shard(tables, plan, group);
//   KeyedTensor out = sharded.forward(batch, false, false).wait().values;
//
// The result is a sharded collection without backward, in float32. Its plan has the compute kernel "quant" for every
// table. Whole tables and blocks of rows are read in place, so a rank that has mapped a file touches only its own
// shards. A column shard is a copy: its codes, with scale and bias of the whole rows.
//
// Ignores optimizer, seed and gradient scales of ShardedModuleOptions. shard() is collective, like the float sharders'.
class QuantEmbeddingBagCollectionSharder {
 public:
  QuantEmbeddingBagCollectionSharder(const Runtime& runtime, ShardedModuleOptions options)
      : runtime_(runtime), options_(std::move(options)) {}
  // Every rank passes all tables. kInvalidArgument: a column split is inside a byte.
  ShardedEmbeddingBagCollection shard(const std::vector<QuantizedTable>& tables,
                                      const EmbeddingModuleShardingPlan& plan,
                                      std::shared_ptr<ProcessGroup> group) const;

 private:
  const Runtime& runtime_;
  ShardedModuleOptions options_;
};

class QuantEmbeddingCollectionSharder {
 public:
  QuantEmbeddingCollectionSharder(const Runtime& runtime, ShardedModuleOptions options)
      : runtime_(runtime), options_(std::move(options)) {}
  ShardedEmbeddingCollection shard(const std::vector<QuantizedTable>& tables, const EmbeddingModuleShardingPlan& plan,
                                   std::shared_ptr<ProcessGroup> group) const;

 private:
  const Runtime& runtime_;
  ShardedModuleOptions options_;
};

// The stored rows of one shard, in the form that QuantEmbeddingBagCollectionSharder gives to the rank.
Tensor shard_rows(const QuantizedTable& table, const ShardMetadata& shard);

}  // namespace tessera
