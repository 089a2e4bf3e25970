// The implementation of EmbeddingTables: which kernel instance holds which table, and what updates it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "modules/lookup_batch.h"
#include "tessera/embedding_modules.h"

namespace tessera {

// One kernel instance, and the numbers of its tables in the collection.
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
  // A table's place and, if PyTorch's optimizers update it in backward, its optimizer.
  struct TableState {
    size_t group = 0;
    int index = 0;
    std::optional<DenseOptimizerSpec> dense_spec;
    KeyedOptimizerPtr dense_optimizer;
    ParameterPtr dense_parameter;
    int64_t bad_ids = 0;
  };

  Impl(const Runtime& runtime, CollectionOptions options, std::string prefix);

  // Makes the kernel instances that the tables' optimizers need. Rows move over from the present instances, and so do
  // states of tables whose optimizer stays the same.
  void build();
  std::vector<TableGroup> grouping() const;
  bool hands_gradients_out(const OptimizerSpec& optimizer) const;
  void use_optimizer(const OptimizerSpec& spec, const std::vector<size_t>& chosen);
  std::vector<size_t> chosen(const std::vector<std::string>& names) const;
  size_t index_of(std::string_view table) const;
  std::string key(size_t table) const { return prefix + "." + options.tables[table].name + ".weight"; }
  void require_rows() const;  // kFailedPrecondition on kMeta
  bool in_backward(size_t table) const;

  // Checks ids and prepares one call per group. The caller adds features to the calls.
  std::unique_ptr<EmbeddingContext::State> start(const KeyedJaggedTensor& batch, bool sequences);
  // Runs backward of all calls. `grad` has the layout of the kernels' output.
  EmbeddingGradients finish(EmbeddingContext::State& state, const Tensor& grad);

  const Runtime& runtime;
  CollectionOptions options;
  std::string prefix;
  std::vector<std::vector<std::string>> names_by_table;
  std::vector<std::string> names;
  std::vector<std::string> kernel_ids;
  std::vector<TableFeature> table_features;
  bool warned = false;      // only the first finding of kWarning is logged
  bool key_shared = false;  // several tables read one feature
  std::vector<TableState> states;
  std::vector<TableGroup> groups;
  int64_t generation = 0;

 private:
  void place_tables();
  void count_bad(const CheckedIds& checked);
  void update_dense(size_t table, const RowGradient& gradient);
};

// kFailedPrecondition, unless `state` belongs to `owner` in its present form.
void require_context(const EmbeddingContext::State* state, const void* owner, int64_t generation);

// kInvalidArgument unless `grad` is float32 of this shape.
void require_gradient(const Tensor& grad, const std::vector<int64_t>& shape, const char* what);
std::string shape_text(const std::vector<int64_t>& shape);

// Rounds float32 values to values that half can represent.
void round_to_half(float* values, int64_t count);

}  // namespace tessera
