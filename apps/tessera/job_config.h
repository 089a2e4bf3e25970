// A job's config, with another model's layers where the command line names one.
#pragma once

#include <string>
#include <vector>

#include "tessera/config.h"

namespace tessera::cli {

// load_config(), and, if `model` is not empty, that preset of `tessera model new` in place of the job's layers: its
// layers and heads over the job's columns and tables. Labels are the job's; so is dense_optimizer, unless it
// is as by default. A layer that is called like a column or a table gets another name. UsageError: there
// is no such preset, or the job has not what it takes.
Config job_config(const std::string& path, const std::vector<std::string>& overrides, const std::string& model);

std::vector<std::string> preset_names();

}  // namespace tessera::cli
