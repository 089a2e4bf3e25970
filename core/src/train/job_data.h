// What a job's config and its data say together. Every command that reads both does it here, so that they agree.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/arriving_rows.h"
#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/embedding_configs.h"
#include "tessera/runtime.h"
#include "tessera/step_model.h"

namespace tessera {

struct JobData {
  Dataset data;
  std::vector<TableConfig> tables;  // those of the config, or one for each column of the data; at least one
  std::unique_ptr<data::ArrivingRows> arriving = nullptr;  // instead of data's samples
};

// `encoding`: of the model that goes on (Dataset::encoding); empty: made anew. kInvalidArgument: no table; tables whose
// policies differ; with "fatal", an id that is no row of its column, or a table with fewer rows than a vocabulary, a
// hash or buckets have given its column ids.
JobData read_job_data(const Runtime& runtime, const Config& config, const std::string& encoding = "");

// The same for training, which may be on rows that arrive.
JobData read_training_data(const Runtime& runtime, const Config& config, const std::string& encoding);

// The one policy of all tables. kInvalidArgument: there is none, or several.
BoundsCheckMode bounds_check_of(const std::vector<TableConfig>& tables);

// The parts that a job names and that only its steps would ask for: its transport, known or "auto" (that it can be used
// on this machine does not matter), its tables' optimizers with their options, their sharders, and, for the CPU, whose
// kernels are always installed, its tables' compute kernels. kNotFound, kInvalidArgument.
void check_components(const Runtime& runtime, const Config& config, const std::vector<TableConfig>& tables,
                      const std::string& compute_device);

}  // namespace tessera
