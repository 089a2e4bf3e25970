// tessera/embedding_modules.h - unsharded embedding modules with the names and numbers of TorchRec and PyTorch.
//
// There is no autograd: forward() fills a context, backward() takes it with the output's gradient. Several contexts of
// one module may be live. A module is used by one thread at a time and must not outlive its Runtime. Rows live in
// kernels (lookup.h); an object on kMeta describes tables without allocating, and refuses to compute.
//
// Semantics, to the letter: tests/conformance/README.md, section embedding_modules.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/jagged_tensor.h"
#include "tessera/lookup.h"
#include "tessera/optim.h"
#include "tessera/runtime.h"

namespace tessera {

// The gradient of one table: unique ascending rows and their sums. FP16 tables: values are rounded to half.
struct TableGradient {
  std::string table;
  DType data_type = DType::kFloat32;
  int64_t num_embeddings = 0;
  RowGradient rows;
  Tensor dense() const;  // [num_embeddings, dim] in data_type, zeros where no row occurred
};

struct EmbeddingGradients {
  std::vector<TableGradient> tables;  // in table order, those that backward() did not update itself
  Tensor per_sample_weights;          // shaped like the weights; undefined where they are not used
  const TableGradient& table(std::string_view name) const;  // kNotFound
};

// The state that a forward keeps for its backward. Its contents belong to the module.
class EmbeddingContext {
 public:
  EmbeddingContext();
  EmbeddingContext(EmbeddingContext&&) noexcept;
  EmbeddingContext& operator=(EmbeddingContext&&) noexcept;
  ~EmbeddingContext();
  bool defined() const { return state_ != nullptr; }

  struct State;

 private:
  friend class EmbeddingBagCollection;
  friend class EmbeddingCollection;
  friend class EmbeddingBag;
  std::unique_ptr<State> state_;
};

struct CollectionOptions {
  std::vector<EmbeddingBagConfig> tables;
  bool is_weighted = false;     // EmbeddingBagCollection: lookups are scaled by the KJT's weights; SUM tables only
  bool need_indices = false;    // EmbeddingCollection: outputs carry the input ids as their weights
  std::string kernel = "auto";  // kernel plugin: "reference", "cpu", "cuda", ...
  std::string compute_kernel = "fused";  // "fused": tables having an optimizer are updated in backward();
                                         // "dense": backward() hands all gradients out, apply() updates
  OptimizerSpec optimizer;               // of tables that name none; none at all: gradients are handed out
  BoundsCheckMode bounds_check = BoundsCheckMode::kFatal;
  Device device;
  uint64_t seed = 0;  // of the start values
  bool train = true;  // false: no backward, no optimizer state
};

// The common part of EmbeddingBagCollection and EmbeddingCollection: named tables in kernels, and their optimizers.
class EmbeddingTables {
 public:
  virtual ~EmbeddingTables();
  EmbeddingTables(const EmbeddingTables&) = delete;
  EmbeddingTables& operator=(const EmbeddingTables&) = delete;

  // The configs as given and validated; a table's optimizer is the one in use. (Fields `tables` and `device` are
  // current.)
  const CollectionOptions& options() const;
  const std::vector<EmbeddingBagConfig>& tables() const;
  const Runtime& runtime() const;
  int64_t table_index(std::string_view table) const;   // kNotFound lists the tables
  const std::vector<std::string>& kernel_ids() const;  // which kernel serves each table; empty on kMeta
  const std::vector<std::vector<std::string>>& embedding_names_by_table() const;
  const std::vector<std::string>& embedding_names() const;  // the same, one after the other: the output's keys

  // "embedding_bags.<table>.weight", in table order.
  std::vector<std::string> state_dict_keys() const;
  // The same names with meta tensors: values live in kernels. in_backward is set where backward() updates.
  ParameterList named_parameters() const;
  Tensor weight(std::string_view table) const;  // a copy in the table's data_type, [rows, dim]
  void set_weight(std::string_view table, const Tensor& value);
  // The kernel instance that holds a table, and the table's number there: rows and states by range (checkpoints).
  struct Place {
    std::shared_ptr<Lookup> lookup;
    int table = 0;
  };
  Place place(std::string_view table) const;

  // Updates these tables (empty: all) during backward(), rows that occurred only, by a fused optimizer/1. Weights stay,
  // states start at 0. kNotFound names an unknown table or optimizer. Views made by fused_optimizer() become stale.
  void apply_optimizer_in_backward(const OptimizerSpec& spec, const std::vector<std::string>& tables = {});
  // Updates these tables during backward() by an optimizer of dense parameters, as PyTorch does with plain modules:
  // every row takes part, Adam moves rows that did not occur. Costs a pass over the table.
  void apply_optimizer_in_backward(const DenseOptimizerSpec& spec, const std::vector<std::string>& tables = {});
  // The optimizer that updates a table during backward(): name and options; nullopt: none does.
  std::optional<DenseOptimizerSpec> in_backward_optimizer(std::string_view table) const;
  // The fused optimizers, one member for each kernel instance: keys as state_dict_keys(), states "<table>.momentum1".
  std::shared_ptr<CombinedOptimizer> fused_optimizer() const;
  // compute_kernel "dense": updates by the tables' optimizers, all in one step. Tables without one are refused.
  void apply(const std::vector<TableGradient>& gradients);

  // Ids dropped since construction (kIgnore counts too, kWarning logs the first).
  int64_t bad_ids(std::string_view table) const;

 protected:
  struct Impl;
  EmbeddingTables(const Runtime& runtime, CollectionOptions options, std::string prefix);
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Pooled lookups. kInvalidArgument at construction: two tables of one name, a weighted MEAN table.
class EmbeddingBagCollection : public EmbeddingTables {
 public:
  EmbeddingBagCollection(const Runtime& runtime, CollectionOptions options);
  // KeyedTensor [batch, sum of dims], keys = embedding_names() whatever the KJT's order; its other keys are ignored.
  // With inverse indices each feature's rows are gathered to the full batch. kNotFound: a feature is missing;
  // kOutOfRange: bounds.h; kInvalidArgument: no weights where they are needed. context nullptr: no backward follows.
  KeyedTensor forward(const KeyedJaggedTensor& features, EmbeddingContext* context = nullptr);
  // grad_output [batch, sum of dims] in the output's order. Ends the context.
  EmbeddingGradients backward(EmbeddingContext context, const Tensor& grad_output);
};

// Lookups that are not pooled. kInvalidArgument at construction: two tables of one name, tables of different dims.
class EmbeddingCollection : public EmbeddingTables {
 public:
  EmbeddingCollection(const Runtime& runtime, CollectionOptions options);
  // embedding_names() -> JaggedTensor with values [ids of the feature, dim]. Dropped ids give rows of zeros.
  JaggedTensorDict forward(const KeyedJaggedTensor& features, EmbeddingContext* context = nullptr);
  // One gradient per output in their order, shaped like its values; an undefined one is zero.
  EmbeddingGradients backward(EmbeddingContext context, const std::vector<Tensor>& grad_outputs);
};

// One table, no feature names: PyTorch's nn.EmbeddingBag and, with mode kNone, nn.Embedding.
struct EmbeddingOptions {
  int64_t num_embeddings = 0;
  int64_t embedding_dim = 0;
  PoolingType mode = PoolingType::kMean;  // of EmbeddingBag: kSum, kMean, kMax
  std::optional<int64_t> padding_idx;     // takes no part in bags and gets no gradient; negative: from the end
  bool include_last_offset = false;       // offsets have one entry more than there are bags
  Tensor weight;                          // start values; undefined: uniform in +-init_range (1 / sqrt(rows))
  std::string kernel = "auto";
  BoundsCheckMode bounds_check = BoundsCheckMode::kFatal;
  uint64_t seed = 0;
};

class EmbeddingBag {
 public:
  EmbeddingBag(const Runtime& runtime, EmbeddingOptions options);
  ~EmbeddingBag();

  struct Input {
    Tensor indices;             // int32 or int64: 1-D with offsets, or 2-D [bags, width] without
    Tensor offsets;             // int32 or int64, the first is 0
    Tensor per_sample_weights;  // float32, shaped like indices; mode kSum only
  };
  Tensor forward(const Input& input, EmbeddingContext* context = nullptr);  // [bags, dim]
  EmbeddingGradients backward(EmbeddingContext context, const Tensor& grad_output);
  // The same gradient, one entry per lookup and not summed: rows int64 [lookups], values [lookups, dim] (a sparse
  // gradient as autograd leaves it). Not for kMax. The context stays.
  RowGradient uncoalesced_gradient(const EmbeddingContext& context, const Tensor& grad_output) const;

  Tensor weight() const;
  void set_weight(const Tensor& value);

 private:
  friend class Embedding;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class Embedding {
 public:
  Embedding(const Runtime& runtime, EmbeddingOptions options);
  Tensor forward(const Tensor& indices, EmbeddingContext* context = nullptr);  // [shape of indices..., dim]
  EmbeddingGradients backward(EmbeddingContext context, const Tensor& grad_output);
  RowGradient uncoalesced_gradient(const EmbeddingContext& context, const Tensor& grad_output) const;
  Tensor weight() const { return bag_.weight(); }
  void set_weight(const Tensor& value) { bag_.set_weight(value); }

 private:
  EmbeddingBag bag_;
};

}  // namespace tessera
