// The inside of EmbeddingTables: which kernel instance holds which table, and what updates it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "modules/lookup_batch.h"
#include "tessera/embedding_modules.h"

namespace tessera {

// One kernel instance and the tables in it, by their number in the collection.
struct TableGroup {
  LookupOptions options;
  std::vector<size_t> tables;
  std::shared_ptr<Lookup> lookup;
};

struct EmbeddingTables::Impl {
  // A feature of a table, in output order.
  struct TableFeature {
    size_t table = 0;
    std::string feature;
  };
  // A table's place and, where PyTorch's optimizers update it in backward, the optimizer.
  struct TableState {
    size_t group = 0;
    int index = 0;
    std::optional<DenseOptimizerSpec> dense_spec;
    KeyedOptimizerPtr dense_optimizer;
    ParameterPtr dense_parameter;
    int64_t bad_ids = 0;
  };

  Impl(const Runtime& runtime, CollectionOptions options, std::string prefix);

  // Makes the kernel instances that the tables' optimizers ask for; rows and, where the optimizer is still the same,
  // states move over from the present ones.
  void build();
  std::vector<TableGroup> grouping() const;
  bool hands_gradients_out(const OptimizerSpec& optimizer) const;
  void use_optimizer(const OptimizerSpec& spec, const std::vector<size_t>& chosen);
  std::vector<size_t> chosen(const std::vector<std::string>& names) const;
  size_t index_of(std::string_view table) const;
  std::string key(size_t table) const { return prefix + "." + options.tables[table].name + ".weight"; }
  void require_rows() const;  // kFailedPrecondition on kMeta
  bool in_backward(size_t table) const;

  // Checks ids and prepares one call per group; the caller adds features to the calls.
  std::unique_ptr<EmbeddingContext::State> start(const KeyedJaggedTensor& batch, bool sequences);
  // Runs backward of all calls. `grad` lies as the kernels' output did.
  EmbeddingGradients finish(EmbeddingContext::State& state, const Tensor& grad);

  const Runtime& runtime;
  CollectionOptions options;
  std::string prefix;
  std::vector<std::vector<std::string>> names_by_table;
  std::vector<std::string> names;
  std::vector<std::string> kernel_ids;
  std::vector<TableFeature> table_features;
  bool warned = false;      // kWarning logs the first finding only
  bool key_shared = false;  // a feature is read by more than one table
  std::vector<TableState> states;
  std::vector<TableGroup> groups;
  int64_t generation = 0;

 private:
  void place_tables();
  void count_bad(const CheckedIds& checked);
  void update_dense(size_t table, const RowGradient& gradient);
};

// `state` belongs to `owner` as it is now, or kFailedPrecondition.
void require_context(const EmbeddingContext::State* state, const void* owner, int64_t generation);

// kInvalidArgument unless `grad` is float32 of this shape.
void require_gradient(const Tensor& grad, const std::vector<int64_t>& shape, const char* what);
std::string shape_text(const std::vector<int64_t>& shape);

// float32 values become those that half can hold.
void round_to_half(float* values, int64_t count);

}  // namespace tessera
