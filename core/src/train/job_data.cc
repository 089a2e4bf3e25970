#include "train/job_data.h"

#include <algorithm>

#include "tessera/abi/collective.h"
#include "tessera/abi/optimizer.h"

namespace tessera {

JobData read_job_data(const Config& config) {
  JobData job{read_dataset(config.data, static_cast<uint64_t>(config.job.seed)), {}};
  job.tables = tables_of(config, job.data.columns);
  if (bounds_check_of(job.tables) == BoundsCheckMode::kFatal) job.data.require_known_ids();
  return job;
}

BoundsCheckMode bounds_check_of(const std::vector<TableConfig>& tables) {
  if (tables.empty())
    fail(Code::kInvalidArgument, "the job has no tables: the data has no columns and the config no [[table]]");
  const TableConfig& first = tables.front();
  for (const TableConfig& t : tables) {
    if (t.bounds_check == first.bounds_check) continue;
    fail(Code::kInvalidArgument, "table ", t.name, " has bounds_check \"", t.bounds_check, "\", table ", first.name,
         " has \"", first.bounds_check, "\": one collection has one policy");
  }
  return bounds_check_from(first.bounds_check);
}

DenseWork dense_work(const Config& config, const std::vector<TableConfig>& tables, int64_t dense_inputs) {
  int64_t outputs = 0;
  for (const TableConfig& t : tables) outputs += static_cast<int64_t>(std::max<size_t>(1, t.features.size()));
  DenseWork out =
      dlrm_dense_work(dense_inputs, outputs, config.model.embedding_dim, config.model.bottom_mlp, config.model.top_mlp);
  out.bucket_bytes = config.comm.bucket_mib * (1 << 20);
  return out;
}

void check_parts(const Runtime& runtime, const Config& config, const std::vector<TableConfig>& tables) {
  if (config.comm.backend != "auto") {
    try {
      (void)runtime.create(TSR_COLLECTIVE_KIND, config.comm.backend);
    } catch (const Error& e) {
      if (e.code() == Code::kNotFound) throw;
    }
  }
  for (const TableConfig& t : tables) {
    try {
      (void)runtime.create(TSR_OPTIMIZER_KIND, t.optimizer.name, t.optimizer.options);
    } catch (const Error& e) {
      throw Error(e.code(), cat("table ", t.name, ": ", e.what()));
    }
  }
}

}  // namespace tessera
