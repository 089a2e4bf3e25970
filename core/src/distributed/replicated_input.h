// The ids of replicated rows (Wiring::replicated_rows) in the form that a kernel looks up, on the device of the rows.
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
  // Takes the ids that a step has routed. The batch must live until the last lookup of this step.
  void take(const Wiring& wiring, const RoutedBatch& batch, RowExecutor& executor);
  LookupView view() const { return {ids_, offsets_, weights_}; }
  // Index of the first offset of its bags. Only bags with ids have an offset.
  int64_t first_offset(int replicated_rows) const { return first_offset_[static_cast<size_t>(replicated_rows)]; }

 private:
  Buffer host_offsets_{DType::kInt64}, offsets_there_{DType::kInt64};
  Buffer ids_there_{DType::kInt64}, weights_there_{DType::kFloat32};
  Tensor ids_, offsets_, weights_;  // undefined weights: the batch has none
  std::vector<int64_t> first_offset_;
};

}  // namespace tessera
