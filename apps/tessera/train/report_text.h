// What a job's report (TrainJob::report) says, for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tessera/train_job.h"

namespace tessera::cli {

// A value of a report; null is NaN.
double number(const nlohmann::ordered_json& value);

// How many steps of what, how fast, and with which loss.
void print_training(const nlohmann::ordered_json& report);
// "AUC 0.7312  logloss 0.5521  (10000 samples)", with `note` behind it; of more than two heads a table, a line for
// each.
std::string metrics_text(const MetricValues& metrics, int digits, const std::string& note = "");
// "auc 0.7312"
std::string monitor_text(const std::string& monitor, const MetricValues& metrics);
// "validation at step 500: AUC 0.7312  logloss 0.5521  (10000 samples)  best so far"
std::string validation_text(const TrainValidation& validation);
// "tessera: warning: b.csv: user: 100 % of the 1200 ids were not in the vocabulary, ...": of ids that are many.
std::string unknown_ids_text(const std::string& rows, const UnknownIds& ids);
// Where the time of a step went, and what its exchanges carried.
void print_tables(const nlohmann::ordered_json& report);

}  // namespace tessera::cli
