// tessera/quantization.h - tables for inference, whose stored rows have 2 to 32 bits per value, and the embedding
// collections that look them up: on one rank, or spread over ranks.
//
//   auto tables = quantize(trained, {.format = RowFormat::kInt8, .formats = {{"film", RowFormat::kInt4}}});
//   QuantEmbeddingBagCollection served(runtime, {.tables = tables});
//   KeyedTensor out = served.forward(batch);
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/jagged_tensor.h"
#include "tessera/runtime.h"
#include "tessera/sharded_modules.h"
#include "tessera/tensor.h"

namespace tessera {

// All functions over tables are [any-thread]. A row's bytes are those of sdk/row_format.h, which are FBGEMM's.

class EmbeddingTables;

RowFormat row_format_from(std::string_view name);  // "int8", "int4", "int2", "fp16", "fp32", "fp8"; kInvalidArgument

// Maps ids to stored rows, for tables with pruned rows. Immutable; threads may share it.
class IndexRemapping {
 public:
  // rows: int32 or int64, one per id: its stored row; -1: pruned.
  static std::shared_ptr<const IndexRemapping> array(const Tensor& rows);
  // The same as a hash map, for tables of which little is left: id keys[i] has row rows[i]. Other ids below `ids` were
  // pruned. keys and rows are int32 or int64.
  static std::shared_ptr<const IndexRemapping> hash(int64_t ids, const Tensor& keys, const Tensor& rows);
  // For rows with their own ids: row i belongs to id keys[i], int64 [rows]. Other ids below `ids` have no row. `seats`,
  // int32 [a power of two], come from seats_of(). Both may be borrowed memory, such as a mapped file, and are not read
  // here.
  static std::shared_ptr<const IndexRemapping> keyed(int64_t ids, const Tensor& keys, const Tensor& seats);
  // kInvalidArgument: an id occurs twice or is negative. kUnimplemented: there are more than 2^30 keys.
  static Tensor seats_of(const Tensor& keys);
  ~IndexRemapping();

  int64_t ids() const { return ids_; }                  // valid ids are [0, ids())
  int64_t rows_needed() const { return rows_needed_; }  // one more than the largest row
  int64_t row(int64_t id) const;                        // for a valid id; -1: pruned
  // Only for keyed(): the row that belongs only to this id; -1: none. Ids without one may share a row, see row().
  int64_t own_row(int64_t id) const;
  bool is_array() const { return map_ == nullptr && !keys_.defined(); }
  const Tensor& keys() const { return keys_; }  // of keyed(); else undefined
  const Tensor& seats() const { return seats_; }

 private:
  struct Map;
  IndexRemapping();
  void note(int64_t row);

  int64_t ids_ = 0;
  int64_t rows_needed_ = 0;
  std::vector<int64_t> array_;
  std::unique_ptr<Map> map_;
  Tensor keys_, seats_;
};

struct QuantizedTable {
  // row_format is set, and num_embeddings counts the rows in `rows`. With a remapping, valid ids are those that it
  // knows.
  EmbeddingBagConfig config;
  // uint8 [num_embeddings, bytes from row to row]. May be borrowed memory, such as a mapped file, because it is only
  // read.
  Tensor rows;
  std::optional<RowFigures> figures = {};  // of on-demand tables, from the training that wrote them
};

// Checks that names, sizes, formats and remappings fit, and fills in features. kInvalidArgument names the table.
std::vector<QuantizedTable> validated(std::vector<QuantizedTable> tables);
std::vector<EmbeddingBagConfig> configs_of(const std::vector<QuantizedTable>& tables);

// Packs float32 or float16 [rows, dim] to uint8 [rows, row bytes rounded up to `alignment`]. kInvalidArgument: a row
// has NaN or infinity (with table and row number), or the format cannot have the dim (int8: multiples of 2, int4: 4,
// int2: 8).
Tensor quantize_rows(const Tensor& weights, RowFormat format, std::string_view table, int64_t alignment = 1);
// Unpacks to float32 [rows, dim].
Tensor dequantize_rows(const Tensor& rows, RowFormat format, int64_t dim);
// Converts uint8 [rows, dim + 8], the INT8 format of checkpoints and communication with float32 scale and bias after
// the codes, to rows of a kInt8 table. Codes stay the same; scale and bias are rounded to half. kInvalidArgument: a
// row's scale or bias is not finite (with table and row number).
Tensor import_int8_sbfloat(const Tensor& fused, std::string_view table, int64_t alignment = 1);
// Takes columns [col, col + cols) of stored rows [row, row + count), with scale and bias of the whole rows. Shares the
// memory if all columns are wanted. kInvalidArgument: a column split is inside a byte.
struct RowSlice {
  int64_t row = 0, count = 0, col = 0, cols = 0;
};
Tensor slice_rows(const QuantizedTable& table, const RowSlice& slice);

struct QuantizeOptions {
  RowFormat format = RowFormat::kInt8;
  std::map<std::string, RowFormat> formats = {};  // of tables that differ
  int64_t alignment = 1;                          // of rows, in bytes; FBGEMM's unsharded tables have 16
  // Tables of which only the first rows are kept: name to number of rows. Later ids are then out of range.
  std::map<std::string, int64_t> first_rows = {};
};
// Quantizes the tables of a float collection. Rows pass through float32 in blocks. kNotFound: a table is not in it.
std::vector<QuantizedTable> quantize(const EmbeddingTables& collection, const QuantizeOptions& options);

// Collections over quantized tables. Ids are checked against the existing rows, by the same policies as in training.
// The caller's buffers never change. The id -1 (a pruned row) is valid: it contributes nothing, but counts in MEAN's
// length. One thread at a time uses a module, which must not outlive its Runtime. A second module made from options()
// shares the rows, so each thread can have its own.

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
