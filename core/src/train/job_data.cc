#include "train/job_data.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "modules/kernel_config.h"
#include "planner/compute_kernels.h"
#include "tessera/abi/collective.h"
#include "tessera/abi/optimizer.h"
#include "tessera/abi/sharder.h"
#include "tessera/runtime.h"
#include "tessera/sdk/nearest.h"
#include "train/drawn_ids.h"
#include "train/observed_inputs.h"

namespace tessera {

namespace {

void check_compute_kernels(const std::vector<std::string>& known, const std::vector<TableConfig>& tables) {
  const auto check = [&](const TableConfig& t, const std::string& kernel) {
    if (std::find(known.begin(), known.end(), compute_kernel_name(kernel).name) != known.end()) return;
    fail(Code::kInvalidArgument, "table ", t.name, ": ", sdk::unknown_name("compute kernel", kernel, known),
         ", and there are ", sdk::joined(known),
         "; others are in plugins whose folder [plugins] path has to name (tessera plugins lists what is found)");
  };
  for (const TableConfig& t : tables) {
    if (t.compute_kernels.empty() && t.compute_kernel != "auto") check(t, t.compute_kernel);
    for (const std::string& kernel : t.compute_kernels) check(t, kernel);
  }
}

// Fails early on a table with fewer rows than its column has ids, because some sample would fail later.
void check_sizes(const std::vector<TableConfig>& tables, const std::vector<DataColumn>& columns) {
  std::unordered_map<std::string_view, const DataColumn*> index;
  for (const DataColumn& column : columns) index.emplace(column.name, &column);
  for (const TableConfig& table : tables) {
    for (const std::string& feature : table.features) {
      const auto found = index.find(feature);
      if (found == index.end()) continue;
      const DataColumn& column = *found->second;
      if (!column.all_ids || table.any_id || column.rows <= table.rows) continue;
      fail(Code::kInvalidArgument, "table \"", table.name, "\" has ", table.rows, " rows, but column \"", column.name,
           "\" has ", column.rows, " ids: set the table's rows to ", column.rows,
           " or more, leave them out, or hash the column to fewer (ids = \"hash\", rows = ", table.rows, ")");
    }
  }
}

// If an id without a row is fatal, report it before planning, as far as the data are known by then.
template <class Rows>
void require_rows(const std::vector<TableConfig>& tables, const std::vector<DataColumn>& columns, Rows& rows) {
  if (bounds_check_of(tables) != BoundsCheckMode::kFatal) return;
  check_sizes(tables, columns);
  rows.require_known_ids();
}

}  // namespace

void observe_job(const Config& config, const JobData& job, PlannerOptions* options) {
  observe_inputs(job.data, job.tables, config.data.batch, options);
  count_drawn(drawn_features(config, job.tables, job.data), job.tables, options);
}

JobData read_job_data(const Runtime& runtime, const Config& config, const std::string& encoding) {
  JobData job{read_dataset(runtime, config, encoding), {}};
  job.tables = tables_of(config, job.data.columns);
  require_rows(job.tables, job.data.columns, job.data);
  return job;
}

TrainingData read_training_data(const Runtime& runtime, const Config& config, const std::string& encoding) {
  if (!data::ArrivingRows::reads(runtime, config.data.reader)) return {read_job_data(runtime, config, encoding)};
  auto rows = std::make_unique<data::ArrivingRows>(runtime, config, encoding);
  Dataset data = rows->dataset();
  std::vector<TableConfig> tables = tables_of(config, data.columns);
  TrainingData job{{std::move(data), std::move(tables)}, std::move(rows)};
  require_rows(job.tables, job.data.columns, *job.arriving);
  return job;
}

BoundsCheckMode bounds_check_of(const std::vector<TableConfig>& tables) {
  if (tables.empty())
    fail(Code::kInvalidArgument, "the job has no tables: the data has no columns and the config no [[table]]");
  const TableConfig& first = tables.front();
  for (const TableConfig& t : tables) {
    if (t.bounds_check == first.bounds_check) continue;
    fail(Code::kInvalidArgument, "table ", t.name, " has bounds_check \"", t.bounds_check, "\", table ", first.name,
         " has \"", first.bounds_check, "\": all tables of a collection need the same");
  }
  return bounds_check_from(first.bounds_check);
}

void check_components(const Runtime& runtime, const Config& config, const std::vector<TableConfig>& tables,
                      const std::string& compute_device) {
  if (config.comm.backend != "auto") {
    try {  // only look it up; a wrapper without an inner name gets one when ranks connect
      for (std::string id = config.comm.backend; !id.empty(); id = parse_component_name(id).inner)
        (void)runtime.component(TSR_COLLECTIVE_KIND, id);
    } catch (const Error& e) {
      if (e.code() == Code::kNotFound) throw;
    }
  }
  for (const TableConfig& t : tables) {
    try {
      (void)runtime.create(TSR_OPTIMIZER_KIND, t.optimizer.name, t.optimizer.options);
    } catch (const Error& e) {
      throw Error(e.code(), str_cat("table ", t.name, ": ", e.what()));
    }
  }
  for (const TableConfig& t : tables) {
    for (const std::string& sharding : t.sharding) {
      try {
        (void)runtime.component(TSR_SHARDER_KIND, parse_component_name(sharding).id);
      } catch (const Error& e) {
        throw Error(e.code(), str_cat("table ", t.name, ": ", e.what()));
      }
    }
  }
  if (compute_device == "cpu")
    check_compute_kernels(ComputeKernels(runtime, config.job.kernel_plugin, Topology::of(1)).names(), tables);
}

}  // namespace tessera
