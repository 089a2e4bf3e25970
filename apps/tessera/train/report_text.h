// Prints a job's report for people.
#pragma once

#include <string>

#include "tessera/train_job.h"

namespace tessera::cli {

// Prints the number of steps, the speed, and the loss; if `verbose`, also the time of the first step and the plan's
// prediction.
void print_training(const RunReport& report, bool verbose);
// For example "AUC 0.7312  logloss 0.5521  (10000 samples)", followed by `note`. More than two heads give a table with
// a line for each.
std::string metrics_text(const MetricValues& metrics, int digits, const std::string& note = "");
// "auc 0.7312"
std::string monitor_text(const std::string& monitor, const MetricValues& metrics);
// "validation at step 500: AUC 0.7312  logloss 0.5521  (10000 samples)  best so far"
std::string validation_text(const TrainValidation& validation);
// A warning about many unknown ids: "tessera: warning: b.csv: user: 100 % of the 1200 ids were not in the vocabulary,
// ...".
std::string unknown_ids_text(const std::string& rows, const UnknownIds& ids);
// A line about the part of a test's AUC or RMSE that is chance, if its interval of 95 % is wide; else nothing. For
// example "By chance alone, the AUC of 129 rows may be 0.06 higher or lower.".
std::string chance_text(const MetricValues& test);
// Lines about a result that is better or worse than an honest model's is likely to be; else nothing.
std::string doubts_text(const MetricValues& test);
// Prints how the time of a step is divided, and how many bytes its exchanges carried.
void print_tables(const RunReport& report);

}  // namespace tessera::cli
