// tessera/row_figures.h - how a table fared whose rows come on demand: what checkpoints and packed models of it keep
// for people.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct RowFigures {
  int64_t capacity = 0;       // rows that it has room for; 0: its kernel does not say
  int64_t lookups = 0;        // of the run that wrote it, evaluations among them
  int64_t hits = 0;           // those that found a row
  int64_t evictions = 0;      // rows given up
  std::vector<int64_t> ages;  // rows by how long they were not seen: abi/draft/row_ages.h; empty: not known

  // Adds the figures of another part of the table.
  RowFigures& operator+=(const RowFigures& other);
  // The smallest 2^k such that at least `share` of the rows were looked up in the last 2^k steps; 0: ages are not
  // known.
  int64_t steps_of(double share) const;
};

}  // namespace tessera
