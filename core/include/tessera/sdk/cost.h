// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/cost.h - a kernel's estimate from a machine's figures, by interpolation between the points of
// tsr_machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tessera/abi/draft/cost.h"

namespace tessera::sdk {
inline namespace v1 {

namespace detail {

// The logarithmic position of `x` between two ascending values: 0 at the first, 1 at the second.
inline double between(double x, double first, double second) {
  if (!(second > first) || !(first > 0)) return 0;
  return std::clamp(std::log(std::max(x, first) / first) / std::log(second / first), 0.0, 1.0);
}

inline double mixed(double a, double b, double t) { return a > 0 && b > 0 ? a * std::pow(b / a, t) : a + t * (b - a); }

inline tsr_row_cost mixed(const tsr_row_cost& a, const tsr_row_cost& b, double t) {
  return {mixed(a.row_bytes, b.row_bytes, t),
          mixed(a.reuse_bytes, b.reuse_bytes, t),
          mixed(a.lookup, b.lookup, t),
          mixed(a.update, b.update, t),
          mixed(a.repeat, b.repeat, t),
          mixed(a.bag_forward, b.bag_forward, t),
          mixed(a.bag_backward, b.bag_backward, t)};
}

}  // namespace detail

// The fraction of a shard's rows that a workload covers. Multiply things that a kernel has once per shard (a capacity,
// factors of its rows) by it, because a planner asks about each band of rows separately and adds up the answers.
inline double part_of_shard(const tsr_kernel_table& shard, const tsr_workload& work) {
  return std::min(1.0, static_cast<double>(work.rows) / static_cast<double>(std::max<int64_t>(shard.rows, 1)));
}

// The costs of one row of row_bytes: interpolated between the grid's points in logarithms. Outside the grid the nearest
// point is used. Beyond the longest row, costs grow with its length. The machine needs at least one point.
inline tsr_row_cost row_cost_at(const tsr_machine& machine, double row_bytes, double reuse_bytes) {
  const auto point = [&](uint32_t i) -> const tsr_row_cost& {
    return *reinterpret_cast<const tsr_row_cost*>(reinterpret_cast<const char*>(machine.row_costs) +
                                                  size_t{machine.row_cost_stride} * i);
  };
  uint32_t columns = 1;  // points with one row length
  while (columns < machine.num_row_costs && point(columns).row_bytes == point(0).row_bytes) ++columns;
  const uint32_t lines = machine.num_row_costs / columns;
  const auto along = [&](uint32_t line) {
    uint32_t c = 0;
    while (c + 2 < columns && point(line * columns + c + 1).reuse_bytes < reuse_bytes) ++c;
    const tsr_row_cost& a = point(line * columns + c);
    if (c + 1 == columns) return a;
    const tsr_row_cost& b = point(line * columns + c + 1);
    return detail::mixed(a, b, detail::between(reuse_bytes, a.reuse_bytes, b.reuse_bytes));
  };
  uint32_t l = 0;
  while (l + 2 < lines && point((l + 1) * columns).row_bytes < row_bytes) ++l;
  tsr_row_cost cost = along(l);
  if (l + 1 < lines) {
    const tsr_row_cost next = along(l + 1);
    cost = detail::mixed(cost, next, detail::between(row_bytes, cost.row_bytes, next.row_bytes));
  }
  const double longer = std::max(1.0, row_bytes / cost.row_bytes);
  for (double* x : {&cost.lookup, &cost.update, &cost.repeat, &cost.bag_forward, &cost.bag_backward}) *x *= longer;
  return cost;
}

// Estimates forward and backward of a workload by these figures, for rows of row_bytes, with state_bytes of optimizer
// state in addition to the measured 4 bytes. An update finds the row where the lookup of the same step has left it, but
// its state was last touched in another step.
inline tsr_estimate estimate_by_figures(const tsr_machine& machine, const tsr_workload& work, double row_bytes,
                                        double state_bytes) {
  const double held = static_cast<double>(work.rows) * (row_bytes + state_bytes);
  const double reuse = work.reuse_bytes > 0 ? work.reuse_bytes : std::max(held, 1.0);
  const double distinct = work.distinct > 0 ? std::min(work.distinct, work.ids) : work.ids;
  const tsr_row_cost cost = row_cost_at(machine, row_bytes, reuse);
  const double wide = row_bytes + std::max(0.0, state_bytes - 4);
  double update = row_cost_at(machine, wide, reuse).update;
  if (work.update_bytes > 0 && work.update_bytes < reuse) {
    // Cache lines are fetched in pairs, so a state smaller than one line takes as long.
    const double row_lines = std::max(1.0, row_bytes / 64), state_lines = std::max(2.0, state_bytes / 64);
    const double row_part = row_lines / (row_lines + state_lines);
    update += row_part * (row_cost_at(machine, wide, work.update_bytes).update - update);
  }
  tsr_estimate out{};
  out.struct_size = sizeof(out);
  out.bytes = static_cast<uint64_t>(held);
  out.forward_seconds = work.ids * cost.lookup + work.bags * cost.bag_forward + work.runs * machine.run_forward;
  out.backward_seconds = distinct * update + (work.ids - distinct) * cost.repeat + work.bags * cost.bag_backward +
                         work.runs * machine.run_backward;
  return out;
}

}  // namespace v1
}  // namespace tessera::sdk
