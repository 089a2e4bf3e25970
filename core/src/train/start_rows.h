// Start values of tables that do not follow from the seed: another model's rows, frequencies of ids.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "checkpoint/tables.h"
#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/model_trainer.h"

namespace tessera {

// Changes columns [col, col + cols) of a row of the table, which stand in `to`, or leaves them.
using SetRow = std::function<void(int64_t row, int64_t col, int64_t cols, float* to)>;
// Of all rows, wherever they are. The optimizer's states and what the kernel keeps stay as they are. Collective.
void set_rows(const checkpoint::ModelTable& table, const ProcessGroup& group, const SetRow& set);

// Of a table whose rows come on demand: each rank takes those of these ids that are its own, row i with what `set` puts
// for i, and states and all else as those of new rows. Returns how many rows the table has then. Collective.
int64_t add_rows(const checkpoint::ModelTable& table, const ProcessGroup& group, std::span<const int64_t> ids,
                 const SetRow& set);

// kInvalidArgument: a table whose `init` it cannot have.
void check_init(const std::vector<TableConfig>& tables);
// Rows of tables with init = "log_frequency": ln of the part of all ids of their features, in `samples`, that are this
// one; of an id that is not there as if it were there once. Collective.
void set_frequencies(const std::vector<TableConfig>& tables, const Samples& samples, ModelTrainer& trainer);

}  // namespace tessera
