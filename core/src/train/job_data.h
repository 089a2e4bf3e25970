// Combines a job's config with its data. All commands that read both do it here, so that they agree.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/arriving_rows.h"
#include "planner/step_model.h"
#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/embedding_configs.h"
#include "tessera/runtime.h"

namespace tessera {

struct JobData {
  Dataset data;
  std::vector<TableConfig> tables;  // from the config, or one for each column of the data; never empty
  std::unique_ptr<data::ArrivingRows> arriving = nullptr;  // used instead of data's samples
};

// `encoding` is that of the model to continue (Dataset::encoding); empty: it is made from the data. kInvalidArgument:
// there is no table, or tables have different bounds_check policies. With "fatal" also: an id has no row, or a table
// has fewer rows than its column's vocabulary, hash or buckets have ids.
JobData read_job_data(const Runtime& runtime, const Config& config, const std::string& encoding = "");

// Does the same for training, whose rows may arrive over time.
JobData read_training_data(const Runtime& runtime, const Config& config, const std::string& encoding);

// Returns the policy that all tables share. kInvalidArgument: there is none, or several.
BoundsCheckMode bounds_check_of(const std::vector<TableConfig>& tables);

// Checks the components that a job names but only its steps would look up: its transport, its tables' optimizers with
// their options, and their sharders. The transport must be known or "auto"; it need not run on this machine. For the
// CPU, whose kernels are always installed, it also checks compute kernels. kNotFound, kInvalidArgument.
void check_components(const Runtime& runtime, const Config& config, const std::vector<TableConfig>& tables,
                      const std::string& compute_device);

}  // namespace tessera
