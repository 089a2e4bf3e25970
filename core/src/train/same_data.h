// Checks that all ranks have read the same data. A stale copy on one host would train a model on two data sets.
#pragma once

#include <string>

#include "tessera/data.h"
#include "tessera/process_group.h"

namespace tessera {

// kFailedPrecondition, on all ranks: names the first rank whose data differ from rank 0's, and the difference. That is
// a number of rows, a column's learned values, the samples, or their order. `arriving`: only rank 0 reads the rows.
// Collective.
void check_same_data(const ProcessGroup& group, const Dataset& data, bool arriving);

}  // namespace tessera
