// tessera/embedding_configs.h - TorchRec's EmbeddingBagConfig and EmbeddingConfig: a table and its optimizer.
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

class IndexRemapping;              // quantization.h
using RowFormat = sdk::RowFormat;  // storage format of rows in tables that only infer

enum class PoolingType : int32_t { kNone = 0, kSum = 1, kMean = 2, kMax = 3 };  // TSR_POOLING_*
PoolingType pooling_from(std::string_view name);                                // "SUM", "sum", "MEAN", "NONE", ...
const char* to_string(PoolingType pooling);                                     // "SUM", ...

// A fused optimizer: the id of an optimizer/1 component and the JSON it is created with.
struct OptimizerSpec {
  std::string name;            // "exact_rowwise_adagrad"; empty: none
  std::string options = "{}";  // {"learning_rate": 0.05, "eps": 1e-8}
  double max_gradient = 0;     // elementwise clamp of the output's gradient; 0: none
  bool operator==(const OptimizerSpec&) const = default;
};

// Treatment of ids outside [0, rows), decided before anything is read or written. The caller's buffers never change.
enum class BoundsCheckMode {
  kFatal,    // Error(kOutOfRange) that names feature, sample, id and bound
  kIgnore,   // the id is dropped; it contributes nothing, but counts in MEAN's length
  kWarning,  // like kIgnore, but ids are counted and the first one is logged
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
  // Start values are uniform in [-init_range, init_range]; unset: 1 / sqrt(rows). Value (row, column) depends only on
  // seed, table name, row and column, so it is the same under every plan.
  std::optional<double> init_range;
  OptimizerSpec optimizer;  // the table's apply_optimizer_in_backward; empty: the collection's
  // Set for tables that only infer (quantization.h). data_type is then not used, and num_embeddings counts stored
  // rows.
  std::optional<RowFormat> row_format;
  std::shared_ptr<const IndexRemapping> remapping;  // from ids to stored rows; null: an id is its row
  // Ids may be anything in [0, INT64_MAX), and num_embeddings is the number of rows at one time. Needs a compute kernel
  // with on-demand rows.
  bool any_id = false;
  // True: a row that a batch needs in several places travels once between two ranks, and its gradients travel as their
  // sum. This works for sequences, and for features with at most one id per bag, in host memory only.
  bool use_index_dedup = false;
  int64_t id_bound() const { return any_id ? INT64_MAX : num_embeddings; }  // ids must be below this
};

// Checks names, sizes and duplicates, and fills in empty feature_names. kInvalidArgument.
std::vector<EmbeddingBagConfig> validated(std::vector<EmbeddingBagConfig> tables);

// Output names by table, then by feature: "feature", or "feature@table" if several tables have the feature.
std::vector<std::vector<std::string>> embedding_names_by_table(const std::vector<EmbeddingBagConfig>& tables);

// The formula for start values of a shard that begins at this row and column; scale 0 makes zeros.
tsr_start_formula start_formula(const EmbeddingBagConfig& table, uint64_t seed, int64_t first_row, int64_t first_col);
// Writes start values of rows [row, row + count) x columns [col, col + cols) to out[count, cols].
void initial_values(const EmbeddingBagConfig& table, uint64_t seed, int64_t row, int64_t count, int64_t col,
                    int64_t cols, float* out);

// Statistics of an on-demand table, which its checkpoints and packed models keep for people.
struct RowFigures {
  int64_t capacity = 0;       // largest number of rows; 0: its kernel does not say
  int64_t lookups = 0;        // in the run that wrote it, including evaluations
  int64_t hits = 0;           // lookups that found a row
  int64_t evictions = 0;      // removed rows
  std::vector<int64_t> ages;  // number of rows by time since their last lookup: abi/draft/on_demand.h; empty: unknown

  // Adds the statistics of another part of the table.
  RowFigures& operator+=(const RowFigures& other);
  // The smallest 2^k such that at least `share` of the rows were looked up in the last 2^k steps; 0: ages are unknown.
  int64_t steps_of(double share) const;
};

}  // namespace tessera
