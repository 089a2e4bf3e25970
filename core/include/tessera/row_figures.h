// tessera/row_figures.h - statistics of an on-demand table, which its checkpoints and packed models keep for people.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct RowFigures {
  int64_t capacity = 0;       // largest number of rows; 0: its kernel does not say
  int64_t lookups = 0;        // in the run that wrote it, including evaluations
  int64_t hits = 0;           // lookups that found a row
  int64_t evictions = 0;      // removed rows
  std::vector<int64_t> ages;  // number of rows by time since their last lookup: abi/draft/on_demand.h; empty: unknown

  // Adds the statistics of another part of the table.
  RowFigures& operator+=(const RowFigures& other);
  // The smallest 2^k such that at least `share` of the rows were looked up in the last 2^k steps; 0: ages are unknown.
  int64_t steps_of(double share) const;
};

}  // namespace tessera
