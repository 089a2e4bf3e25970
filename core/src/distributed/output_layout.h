// The places of the output's rows, or of their gradients.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

// The place of each table feature's rows in one tensor: row i of [0, rows[s]) of table feature s begins at element
// offset[s] + i * stride[s]. A pooled table feature has a row for each bag, a sequence has one for each id.
struct OutputLayout {
  std::vector<int64_t> offset;
  std::vector<int64_t> stride;
  std::vector<int64_t> rows;
};

}  // namespace tessera
