// The ids of replicated rows (Wiring::replicated_rows), as a kernel looks them up: where those rows are.
#pragma once

#include <cstdint>
#include <vector>

#include "distributed/buffer.h"
#include "distributed/routed_batch.h"
#include "distributed/row_executor.h"
#include "modules/lookup_view.h"
#include "tessera/device.h"
#include "wiring/wiring.h"

namespace tessera {

class ReplicatedInput {
 public:
  explicit ReplicatedInput(const DeviceStreamPtr& stream);
  // Takes what was routed in a step, which lives as long as this is asked for it.
  void take(const Wiring& wiring, const RoutedBatch& batch, RowExecutor& executor);
  LookupView view() const { return {ids_, offsets_, weights_}; }
  // The place where the offsets of its bags begin. Only bags with ids have an offset.
  int64_t first_offset(int replicated_rows) const { return first_offset_[static_cast<size_t>(replicated_rows)]; }

 private:
  Buffer host_offsets_{DType::kInt64}, offsets_there_{DType::kInt64};
  Buffer ids_there_{DType::kInt64}, weights_there_{DType::kFloat32};
  Tensor ids_, offsets_, weights_;  // undefined weights: there are none
  std::vector<int64_t> first_offset_;
};

}  // namespace tessera
