// The load that a table's input puts on the rank that holds the table.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/embedding_configs.h"
#include "tessera/planner.h"

namespace tessera {

// One table's input.
struct Workload {
  double ids = 0;      // of one rank's batch
  double outputs = 0;  // rows handed out for it: bags, or ids where nothing is pooled
  bool pooled = true;
  bool weighted = false;
  int64_t rows = 0, cols = 0;  // of the table
  int64_t element_bytes = 4;
  std::optional<RowFormat> row_format;  // of quantized tables: outputs have element_bytes all the same
};
Workload workload_of(const EmbeddingBagConfig& table, const ParameterConstraints& constraints, double batch_size);

// The share of a batch's ids of the table that travel to another rank, if ids follow the constraints' Zipf law. It is 1
// if repeated rows do not travel once (EmbeddingBagConfig::use_index_dedup).
double distinct_share(const EmbeddingBagConfig& table, bool sequence, const ParameterConstraints& constraints,
                      double batch_size);

// `value` as an integer; the largest int64 stands for everything above it.
int64_t to_bytes(double value);

}  // namespace tessera
