// tessera/embedding_configs.h - what a table is: TorchRec's EmbeddingBagConfig and EmbeddingConfig, and its optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/abi/kernel.h"
#include "tessera/sdk/row_format.h"
#include "tessera/tensor.h"

namespace tessera {

class IndexRemapping;              // quantized_table.h
using RowFormat = sdk::RowFormat;  // how rows of tables that only infer are stored

enum class PoolingType : int32_t { kNone = 0, kSum = 1, kMean = 2, kMax = 3 };  // TSR_POOLING_*
PoolingType pooling_from(std::string_view name);                                // "SUM", "sum", "MEAN", "NONE", ...
const char* to_string(PoolingType pooling);                                     // "SUM", ...

// A fused optimizer by name: the id of an optimizer/1 component and the JSON it is created with.
struct OptimizerSpec {
  std::string name;            // "exact_rowwise_adagrad"; empty: none chosen
  std::string options = "{}";  // {"learning_rate": 0.05, "eps": 1e-8}
  double max_gradient = 0;     // clamp of the output's gradient, elementwise; 0: not
  bool operator==(const OptimizerSpec&) const = default;
};

// The treatment of an id outside [0, rows), which is decided before anything is read or written; the caller's buffers
// are never changed.
enum class BoundsCheckMode {
  kFatal,    // Error(kOutOfRange) naming feature, sample, id and bound
  kIgnore,   // the id is dropped: it contributes nothing, but counts in MEAN's length
  kWarning,  // as kIgnore, counted, the first one logged
};
BoundsCheckMode bounds_check_from(std::string_view name);  // "fatal", "ignore", "warning"

// One table. EmbeddingCollections use the same struct with pooling kNone.
struct EmbeddingBagConfig {
  std::string name;
  int64_t num_embeddings = 0;
  int64_t embedding_dim = 0;
  std::vector<std::string> feature_names;  // empty: the table's own name
  PoolingType pooling = PoolingType::kSum;
  DType data_type = DType::kFloat32;
  // Start values: uniform in [-init_range, init_range]; unset: 1 / sqrt(rows). Value (row, column) depends on seed,
  // table name, row and column alone, so it is the same under every plan.
  std::optional<double> init_range;
  OptimizerSpec optimizer;  // apply_optimizer_in_backward, per table; empty: the collection's
  // Tables that only infer (quantized_table.h): data_type is not used then, and num_embeddings counts stored rows.
  std::optional<RowFormat> row_format;
  std::shared_ptr<const IndexRemapping> remapping;  // ids to stored rows; none: an id is its row
  // Ids are any in [0, INT64_MAX), and num_embeddings says how many have a row at a time: for compute kernels whose
  // rows come on demand.
  bool any_id = false;
  int64_t id_bound() const { return any_id ? INT64_MAX : num_embeddings; }  // ids are below
};

// Checks names, sizes, duplicates and fills in empty feature_names. kInvalidArgument.
std::vector<EmbeddingBagConfig> validated(std::vector<EmbeddingBagConfig> tables);

// Output names of tables, in table order then feature order: "feature", or "feature@table" for a feature that occurs in
// more than one table.
std::vector<std::vector<std::string>> embedding_names_by_table(const std::vector<EmbeddingBagConfig>& tables);

// How the start values of a shard that begins there are made; scale 0 makes zeros.
tsr_start_formula start_formula(const EmbeddingBagConfig& table, uint64_t seed, int64_t first_row, int64_t first_col);
// Start values of rows [row, row + count) x columns [col, col + cols) into out[count, cols].
void initial_values(const EmbeddingBagConfig& table, uint64_t seed, int64_t row, int64_t count, int64_t col,
                    int64_t cols, float* out);

}  // namespace tessera
