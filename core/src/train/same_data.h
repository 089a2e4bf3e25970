// The check that all ranks have read the same data: a stale copy on one host would train a model of two data sets.
#pragma once

#include <string>

#include "tessera/data.h"
#include "tessera/process_group.h"

namespace tessera {

// kFailedPrecondition, on every rank alike, names the first rank whose data are not rank 0's, and what differs: a
// number of rows, what a column has learned, or the samples or their order. `arriving`: rank 0 alone reads the rows.
// Collective.
void check_same_data(const ProcessGroup& group, const Dataset& data, bool arriving);

}  // namespace tessera
