// Compares the bytes that the tables' exchanges sent with the plan's estimate.
#pragma once

#include <vector>

#include "tessera/process_group.h"
#include "tessera/step_figures.h"
#include "tessera/train_job.h"

namespace tessera {

// Fills `traffic` and `ids` of the report, per step and summed over ranks. `sent`: by this rank in `steps` steps.
// `planned`: for this rank in one step. Collective.
void report_traffic(const ProcessGroup& group, const ExchangeBytes<int64_t>& sent, double steps,
                    const ExchangeBytes<double>& planned, RunReport& out);

}  // namespace tessera
