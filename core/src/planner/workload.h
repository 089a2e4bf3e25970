// A table's input as a load on the rank that has the table.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/embedding_configs.h"
#include "tessera/planner.h"

namespace tessera {

// One table's input.
struct Workload {
  double ids = 0;      // ids in one rank's batch
  double outputs = 0;  // output rows for that batch: bags, or ids if nothing is pooled
  bool pooled = true;
  bool weighted = false;
  int64_t rows = 0, cols = 0;  // the table's size
  int64_t element_bytes = 4;
  std::optional<RowFormat> row_format;  // set for quantized tables; output elements still have element_bytes
};
Workload workload_of(const EmbeddingBagConfig& table, const ParameterConstraints& constraints, double batch_size);

// The share of the table's ids in a batch that travel to another rank, if ids follow the constraints' Zipf law. It is 1
// unless repeated rows travel once (EmbeddingBagConfig::use_index_dedup).
double distinct_share(const EmbeddingBagConfig& table, bool sequence, const ParameterConstraints& constraints,
                      double batch_size);

// `value` as an integer; the largest int64 stands for everything above it.
int64_t to_bytes(double value);

}  // namespace tessera
