// Weights of a batch's ids that its collection would not use.
#pragma once

#include "tessera/error.h"
#include "tessera/jagged_tensor.h"

namespace tessera {

// For collections of pooled rows. kInvalidArgument: the batch has weights, and the collection is not weighted.
inline void require_no_weights(bool is_weighted, const KeyedJaggedTensor& batch) {
  if (is_weighted || !batch.weights_or_null().defined()) return;
  fail(
      Code::kInvalidArgument,
      "this collection is not weighted: is_weighted = true makes its sums take the batch's weights; or leave them out");
}

}  // namespace tessera
