// A job's config, with another model's layers if the command line names one.
#pragma once

#include <string>
#include <vector>

#include "tessera/config.h"

namespace tessera::cli {

// Calls load_config(). If `model` is not empty, the layers and heads of that preset of `tessera model new` replace the
// job's, over the job's columns and tables. Labels stay the job's; so does dense_optimizer, unless it has its default
// value. A layer with the name of a column or a table gets another name. Throws UsageError if there is no such preset,
// or if the job lacks what it takes.
Config job_config(const std::string& path, const std::vector<std::string>& overrides, const std::string& model);

std::vector<std::string> preset_names();

}  // namespace tessera::cli
