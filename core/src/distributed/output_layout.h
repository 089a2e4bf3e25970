// Where rows of the output, or their gradients, lie.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

// Where each slot's rows lie in one tensor: row i of slot s begins at element offset[s] + i * stride[s].
struct SlotLayout {
  std::vector<int64_t> offset;
  std::vector<int64_t> stride;
};

// Where the rows of a slot go: bag b at data + b * stride. Pooled slots have `bags` rows, sequence slots one per id.
struct SlotView {
  float* data = nullptr;
  int64_t stride = 0;
};

}  // namespace tessera
