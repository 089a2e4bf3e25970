// tessera/embedding_modules.h - unsharded embedding modules with the names and numbers of TorchRec and PyTorch.
//
// There is no autograd: forward() fills a context, and backward() takes it with the output's gradient. A module may
// have several live contexts. It is used by one thread at a time and must not outlive its Runtime. Rows live in kernels
// (lookup.h). An object on kMeta describes tables without allocating, and refuses to compute.
//
// tests/conformance/README.md, section embedding_modules, has the exact semantics.
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

// The gradient of one table: ascending unique rows and their sums. For FP16 tables, values are rounded to half.
struct TableGradient {
  std::string table;
  DType data_type = DType::kFloat32;
  int64_t num_embeddings = 0;
  RowGradient rows;
  Tensor dense() const;  // [num_embeddings, dim] in data_type; zeros for rows that did not occur
};

struct EmbeddingGradients {
  std::vector<TableGradient> tables;                        // in table order, without those that backward() updated
  Tensor per_sample_weights;                                // shaped like the weights; undefined if they are not used
  const TableGradient& table(std::string_view name) const;  // kNotFound
};

// State that a forward keeps for its backward. Its contents belong to the module.
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
  bool is_weighted = false;     // EmbeddingBagCollection: the KJT's weights scale lookups; SUM tables only
  bool need_indices = false;    // EmbeddingCollection: outputs carry the input ids as their weights
  std::string kernel = "auto";  // kernel plugin: "reference", "cpu", "cuda", ...
  // "fused": backward() updates tables that have an optimizer. "dense": backward() returns all gradients, and apply()
  // updates.
  std::string compute_kernel = "fused";
  OptimizerSpec optimizer;  // of tables without their own; none at all: gradients are returned
  BoundsCheckMode bounds_check = BoundsCheckMode::kFatal;
  Device device;
  uint64_t seed = 0;  // of the start values
  bool train = true;  // false: no backward, no optimizer state
};

// The common base of EmbeddingBagCollection and EmbeddingCollection: named tables in kernels, and their optimizers.
class EmbeddingTables {
 public:
  virtual ~EmbeddingTables();
  EmbeddingTables(const EmbeddingTables&) = delete;
  EmbeddingTables& operator=(const EmbeddingTables&) = delete;

  // The validated configs; a table's optimizer is the one in use. The fields `tables` and `device` are kept current.
  const CollectionOptions& options() const;
  const std::vector<EmbeddingBagConfig>& tables() const;
  const Runtime& runtime() const;
  int64_t table_index(std::string_view table) const;   // kNotFound lists the tables
  const std::vector<std::string>& kernel_ids() const;  // kernel of each table; empty on kMeta
  const std::vector<std::vector<std::string>>& embedding_names_by_table() const;
  const std::vector<std::string>& embedding_names() const;  // the same in one list: the output's keys

  // "embedding_bags.<table>.weight", in table order.
  std::vector<std::string> state_dict_keys() const;
  // The same names with meta tensors, because values live in kernels. in_backward is set for tables that backward()
  // updates.
  ParameterList named_parameters() const;
  Tensor weight(std::string_view table) const;  // a copy in the table's data_type, [rows, dim]
  void set_weight(std::string_view table, const Tensor& value);
  // The kernel instance of a table and the table's index in it, for rows and states by range (checkpoints).
  struct Place {
    std::shared_ptr<Lookup> lookup;
    int table = 0;
  };
  Place place(std::string_view table) const;

  // Makes backward() update these tables (empty: all) with a fused optimizer/1, but only rows that occurred. Weights
  // stay, and states start at 0. Views made by fused_optimizer() become invalid. kNotFound: an unknown table or
  // optimizer.
  void apply_optimizer_in_backward(const OptimizerSpec& spec, const std::vector<std::string>& tables = {});
  // Makes backward() update these tables with an optimizer of dense parameters, as PyTorch does with plain modules.
  // Every row takes part, so Adam moves rows that did not occur. It costs a pass over the table.
  void apply_optimizer_in_backward(const DenseOptimizerSpec& spec, const std::vector<std::string>& tables = {});
  // Name and options of the optimizer that updates a table during backward(); nullopt: none.
  std::optional<DenseOptimizerSpec> in_backward_optimizer(std::string_view table) const;
  // The fused optimizers, one member for each kernel instance. Keys are state_dict_keys(), states "<table>.momentum1".
  std::shared_ptr<CombinedOptimizer> fused_optimizer() const;
  // For compute_kernel "dense": updates tables with their optimizers, all in one step. Fails for tables without one.
  void apply(const std::vector<TableGradient>& gradients);

  // Number of ids dropped since construction (kIgnore counts them too; kWarning logs the first).
  int64_t bad_ids(std::string_view table) const;

 protected:
  struct Impl;
  EmbeddingTables(const Runtime& runtime, CollectionOptions options, std::string prefix);
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Pooled lookups. The constructor throws kInvalidArgument for two tables of one name, or a weighted MEAN table.
class EmbeddingBagCollection : public EmbeddingTables {
 public:
  EmbeddingBagCollection(const Runtime& runtime, CollectionOptions options);
  // Returns a KeyedTensor [batch, sum of dims] with keys embedding_names(), whatever the KJT's order. Other keys of the
  // KJT are ignored. With inverse indices each feature's rows are gathered to the full batch. context nullptr: no
  // backward follows. kNotFound: a feature is missing. kOutOfRange: bounds.h. kInvalidArgument: weights are missing.
  KeyedTensor forward(const KeyedJaggedTensor& features, EmbeddingContext* context = nullptr);
  // grad_output is [batch, sum of dims] in the output's order. Ends the context.
  EmbeddingGradients backward(EmbeddingContext context, const Tensor& grad_output);
};

// Lookups without pooling. The constructor throws kInvalidArgument for two tables of one name, or of different dims.
class EmbeddingCollection : public EmbeddingTables {
 public:
  EmbeddingCollection(const Runtime& runtime, CollectionOptions options);
  // Returns embedding_names() -> JaggedTensor with values [ids of the feature, dim]. Dropped ids give rows of zeros.
  JaggedTensorDict forward(const KeyedJaggedTensor& features, EmbeddingContext* context = nullptr);
  // Takes one gradient per output in their order, shaped like its values; undefined: zeros.
  EmbeddingGradients backward(EmbeddingContext context, const std::vector<Tensor>& grad_outputs);
};

// One table without feature names: PyTorch's nn.EmbeddingBag and, with mode kNone, nn.Embedding.
struct EmbeddingOptions {
  int64_t num_embeddings = 0;
  int64_t embedding_dim = 0;
  PoolingType mode = PoolingType::kMean;  // for EmbeddingBag: kSum, kMean, kMax
  std::optional<int64_t> padding_idx;     // is left out of bags and gets no gradient; negative: from the end
  bool include_last_offset = false;       // offsets have one more entry than there are bags
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
  // The same gradient with one entry per lookup, not summed: rows int64 [lookups], values [lookups, dim] (autograd's
  // sparse gradient). Does not support kMax. The context stays valid.
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
