// Losses and ranks over items, for the cases of area "sequences".
#pragma once

#include <cstdint>
#include <vector>

#include "conformance/runner.h"

namespace tessera::cli {

std::vector<int64_t> integers_of(const Tensor& t);
// Rows of a table, and their gradients added up for it.
Tensor rows_at(const Tensor& table, const std::vector<int64_t>& ids);
void add_rows_at(const Tensor& sums, const std::vector<int64_t>& ids, const Tensor& gradients);

void training_trajectory_op(CaseContext& c);

OpTable item_ops();

}  // namespace tessera::cli
