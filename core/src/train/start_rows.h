// Start values of tables that do not come from the seed: rows of another model, or frequencies of ids.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "checkpoint/tables.h"
#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/trainer.h"

namespace tessera {

// Changes columns [col, col + cols) of a row in `to`, or leaves them.
using SetRow = std::function<void(int64_t row, int64_t col, int64_t cols, float* to)>;
// Sets all rows of a table on all ranks. Optimizer states and the kernel's extra data stay. Collective.
void set_rows(const checkpoint::ModelTable& table, const ProcessGroup& group, const SetRow& set);

// Adds rows to an on-demand table. Each rank adds those of the ids that it owns; row i gets the values that `set` gives
// for i, and everything else is as for new rows. Returns the table's number of rows afterwards. Collective.
int64_t add_rows(const checkpoint::ModelTable& table, const ProcessGroup& group, std::span<const int64_t> ids,
                 const SetRow& set);

// kInvalidArgument: a table cannot have its `init`.
void check_init(const std::vector<TableConfig>& tables);
// Sets rows of tables with init = "log_frequency" to the logarithm of the id's share of all ids of the table's features
// in `samples`. An id that does not occur counts as if it occurred once. Collective.
void set_frequencies(const std::vector<TableConfig>& tables, const Samples& samples, ModelTrainer& trainer);

}  // namespace tessera
