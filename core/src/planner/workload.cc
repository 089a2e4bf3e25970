#include "planner/workload.h"

#include <algorithm>

#include "planner/reuse.h"
#include "tessera/tensor.h"

namespace tessera {

int64_t to_bytes(double value) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  return value < kLimit ? static_cast<int64_t>(value) : INT64_MAX;
}

Workload workload_of(const EmbeddingBagConfig& table, const ParameterConstraints& constraints, double batch_size) {
  Workload work;
  work.pooled = table.pooling != PoolingType::kNone;
  for (size_t i = 0; i < constraints.pooling_factors.size(); ++i) {
    const double factor = constraints.pooling_factors[i];
    const double poolings = constraints.num_poolings.empty() ? 1.0 : constraints.num_poolings[i];
    const double batch = constraints.batch_sizes.empty() ? batch_size : constraints.batch_sizes[i];
    work.ids += factor * poolings * batch;
    work.outputs += std::min(1.0, factor) * poolings * batch;
  }
  if (!work.pooled) work.outputs = work.ids;
  work.weighted = constraints.is_weighted;
  work.rows = table.num_embeddings;
  work.cols = table.embedding_dim;
  work.element_bytes = size_of(table.row_format ? DType::kFloat32 : table.data_type);
  work.row_format = table.row_format;
  return work;
}

double distinct_share(const EmbeddingBagConfig& table, bool sequence, const ParameterConstraints& constraints,
                      double batch_size) {
  const Workload work = workload_of(table, constraints, batch_size);
  if (!table.use_index_dedup || work.weighted || work.ids <= 0 || (!sequence && work.ids > work.outputs)) return 1;
  double rows = 0;
  for (const PopularityBand& band : popularity_bands(work.rows, constraints.zipf_exponent))
    rows += distinct_rows(band.rows, work.ids * band.share);
  return std::min(1.0, rows / work.ids);
}

}  // namespace tessera
