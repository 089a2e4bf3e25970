// tessera/quant_modules.h - embedding collections over quantized tables (quantized_table.h), on one rank. They only
// infer.
//
//   QuantEmbeddingBagCollection served(runtime, {.tables = quantize(trained, {.format = RowFormat::kInt8})});
//   KeyedTensor out = served.forward(batch);
//
// Ids are checked against the rows that exist, by the same policies as in training; the caller's buffers are never
// changed. The id -1 (a pruned row) is in order: it contributes nothing, but counts in MEAN's length. A module is used
// by one thread at a time and must not outlive its Runtime; a second module made from options() shares the rows, so
// threads have one each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/jagged_tensor.h"
#include "tessera/quantized_table.h"
#include "tessera/runtime.h"

namespace tessera {

struct QuantCollectionOptions {
  std::vector<QuantizedTable> tables = {};
  bool is_weighted = false;              // lookups are scaled by the batch's weights: SUM, and MEAN by the bag's length
  DType output_dtype = DType::kFloat32;  // or kFloat16, kBFloat16
  std::string kernel = "auto";           // kernel plugin that serves the compute kernel "quant"
  BoundsCheckMode bounds_check = BoundsCheckMode::kFatal;
  bool bad_ids_become_0 = false;  // kIgnore, kWarning: a bad id is looked up as id 0 (TorchRec), instead of dropped
};

// The common part of the two collections.
class QuantEmbeddings {
 public:
  virtual ~QuantEmbeddings();
  QuantEmbeddings(const QuantEmbeddings&) = delete;
  QuantEmbeddings& operator=(const QuantEmbeddings&) = delete;

  const QuantCollectionOptions& options() const;
  const std::vector<QuantizedTable>& tables() const { return options().tables; }
  const QuantizedTable& table(std::string_view name) const;  // kNotFound lists the tables
  const std::vector<std::string>& embedding_names() const;   // the output's keys: the order of the float collection
  const std::vector<std::string>& kernel_ids() const;        // which kernel serves each table
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

// Pooled lookups. kInvalidArgument at construction: two tables of one name, rows that do not fit their table.
class QuantEmbeddingBagCollection : public QuantEmbeddings {
 public:
  QuantEmbeddingBagCollection(const Runtime& runtime, QuantCollectionOptions options);
  // KeyedTensor [batch, sum of dims] in output_dtype, keys = embedding_names() whatever the batch's order; its other
  // keys are ignored. kNotFound: a feature is missing; kOutOfRange: bounds.h; kInvalidArgument: no weights where they
  // are needed, features with different numbers of samples.
  KeyedTensor forward(const KeyedJaggedTensor& features);
  // The same into `values` [batch, width()] of output_dtype, which is the caller's. Allocates nothing that grows with
  // the batch while all ids are in range and no table is remapped.
  void forward_into(const KeyedJaggedTensor& features, const Tensor& values);
  int64_t width() const;  // sum of dims
};

// Lookups that are not pooled. kInvalidArgument at construction: two tables of one name, tables of different dims.
class QuantEmbeddingCollection : public QuantEmbeddings {
 public:
  QuantEmbeddingCollection(const Runtime& runtime, QuantCollectionOptions options);
  // embedding_names() -> JaggedTensor with values [ids of the feature, dim] and the batch's lengths. Ids that are
  // dropped give rows of zeros.
  JaggedTensorDict forward(const KeyedJaggedTensor& features);
};

// The stored rows of a kInt8 table as they are, uint8 [ids, 4 + dim]: scale, bias and codes of each id, none of which
// is decoded. For callers that decode elsewhere. kOutOfRange names an id that has no row.
Tensor gather_stored_rows(const QuantizedTable& table, const Tensor& ids);

// Batch weights by an id's position: the j-th id of a bag of feature f gets weights[f][j], and 1 where f has none.
// kInvalidArgument: a bag longer than its feature's weights.
struct PositionWeights {
  std::string feature;
  Tensor weights;  // float32 [longest bag]
};
KeyedJaggedTensor with_position_weights(const KeyedJaggedTensor& batch, const std::vector<PositionWeights>& weights);

}  // namespace tessera
